"""Across tasks: the mean of chance-normalised values, ranks that are shared, and win rates.

One metric speaks for an evaluation: its first headline metric with a chance level, where higher is better. Its value
becomes (value - chance) / (1 - chance), so that 0 is chance and 1 is everything right whatever the number of options.
Evaluations that differ in nothing but the few-shot seed count together as one. Differences between models of one scope
are over the same evaluations and the same items.

The bootstrap is stratified: items (clusters) are drawn within each data set, task and language, and all evaluations of
a data set use the same draw, since they share their items. It says how sure the mean is for *these* tasks, not for
tasks that were not asked.
"""

from itertools import combinations

import numpy as np
from scipy.special import ndtr

from vernacular.comparison.align import Items, Side
from vernacular.metrics.metric import Metric, chance_level
from vernacular.statistics.intervals import resampled
from vernacular.statistics.paired import ALPHA, cluster_counts, cluster_sums, holm, places, resampled_means

RESAMPLES = 1_000
_SAME_BUT_SEED = ("task", "language", "protocol", "shots", "style")

# an evaluation: its facts, its metrics, and its sides laid out over its items
Evaluation = tuple[dict, list[Metric], Items, dict[str, Side]]


def overall(evaluations: list[Evaluation], *, seed: int = 0, resamples: int = RESAMPLES) -> list[dict]:
    """Rows per OVERALL: a row per model and scope (each language, and "all").

    A model that has none of a scope's evaluations is not in that scope; an evaluation that one of the scope's models
    lacks, or that has no metric with a chance level, is left out for all and counted.
    """
    languages = sorted({facts["language"] for facts, *_ in evaluations})
    known: dict[tuple, tuple] = {}  # what one scope has computed of an evaluation serves the next
    rows = []
    for scope in [*languages, "all"]:
        of_scope = [each for each in evaluations if scope in ("all", each[0]["language"])]
        models = sorted({model for *_, sides in of_scope for model, side in sides.items() if side.has.any()})
        speaking = [each for each in of_scope if _speaker(each, models)]
        if speaking:
            rows += _scope(scope, models, speaking, len(of_scope) - len(speaking), seed, resamples, known)
    return rows


def _speaker(evaluation: Evaluation, models: list[str]) -> Metric | None:
    """The metric that speaks for the evaluation: None where there is none that all models have on some items."""
    _, metrics, items, sides = evaluation
    for metric in metrics:
        if not metric.headline or not metric.higher_is_better or any(model not in sides for model in models):
            continue
        shared = _shared(evaluation, metric, models)
        chance = chance_level(metric.name, items.chance[shared])
        if shared.any() and chance is not None and chance < 1:
            return metric
    return None


def _shared(evaluation: Evaluation, metric: Metric, models: list[str]) -> np.ndarray:
    """(N,) items that all models were asked in the same words and have the metric for."""
    _, _, items, sides = evaluation
    shared = np.ones(len(items.ids), dtype=bool)
    for model in models:
        shared &= sides[model].known(metric) & (sides[model].text == sides[models[0]].text)
    return shared


def _scope(
    scope: str, models: list[str], evaluations: list[Evaluation], left_out: int, seed: int, resamples: int, known: dict
) -> list[dict]:
    groups: dict[tuple, list[int]] = {}
    values, draws = [], []
    clusters = _clusters_of_data_sets(evaluations)
    for number, evaluation in enumerate(evaluations):
        groups.setdefault(tuple(evaluation[0][name] for name in _SAME_BUT_SEED), []).append(number)
        key = (evaluation[0]["evaluation"], *models)
        if key not in known:
            known[key] = _normalised(evaluation, models, clusters, seed, resamples)
        value, drawn = known[key]
        values.append(value)
        draws.append(drawn)
    weights = np.empty(len(evaluations))
    for same in groups.values():
        weights[same] = 1 / len(same) / len(groups)
    means = weights @ np.array(values)
    drawn_means = np.einsum("e,erm->rm", weights, np.array(draws))
    rates = _win_rates(np.array(values), weights)
    ranks = _ranks(means, drawn_means)
    return [
        {
            "model": model,
            "scope": scope,
            "n_evaluations": len(evaluations),
            "left_out": left_out,
            "mean": float(means[m]),
            **dict(zip(("ci_low", "ci_high"), _interval(drawn_means[:, m]), strict=True)),
            "rank": int(ranks[m]),
            "win_rate": None if len(models) < 2 else float(rates[m]),
        }
        for m, model in enumerate(models)
    ]


def _clusters_of_data_sets(evaluations: list[Evaluation]) -> dict[tuple[str, str], dict[str, int]]:
    """{(task, language): {cluster or item: number}} over all evaluations of the data set."""
    found: dict[tuple[str, str], set[str]] = {}
    for facts, _, items, _ in evaluations:
        found.setdefault((facts["task"], facts["language"]), set()).update(_labels(items))
    return {name: {label: i for i, label in enumerate(sorted(labels))} for name, labels in found.items()}


def _labels(items: Items) -> list[str]:
    pairs = zip(items.ids, items.clusters, strict=True)
    return [f"item {item_id}" if cluster is None else f"cluster {cluster}" for item_id, cluster in pairs]


def _normalised(evaluation: Evaluation, models, clusters, seed: int, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """((models,), (resamples, models)) of (value - chance) / (1 - chance)."""
    facts, _, items, sides = evaluation
    metric = _speaker(evaluation, models)
    use = np.flatnonzero(_shared(evaluation, metric, models))
    numbers = clusters[facts["task"], facts["language"]]
    codes = np.array([numbers[label] for label in _labels(items)])[use]
    chance = chance_level(metric.name, items.chance[use])
    arrays = [[array[use] for array in sides[model].needed(metric)] for model in models]
    k = len(numbers)
    if metric.corpus:
        value = np.array([float(metric.corpus(*of_model)) for of_model in arrays])
        drawn = [
            resampled(metric.corpus, of_model, codes, k, resamples, np.random.default_rng(seed), metric.vectorised)
            for of_model in arrays
        ]
        draws = np.column_stack(drawn)
    else:
        columns = np.column_stack([of_model[0] for of_model in arrays])
        value = columns.mean(0)
        padded = np.append(codes, k - 1)  # so that clusters without items are counted too
        sums = cluster_sums(np.vstack([columns, np.zeros(len(models))]), padded)
        sizes = cluster_sums(np.append(np.ones(len(use)), 0.0)[:, None], padded)
        counts = cluster_counts(k, resamples, seed)
        draws = resampled_means(sums, np.repeat(sizes, len(models), axis=1), counts)
    return (value - chance) / (1 - chance), (draws - chance) / (1 - chance)


def _interval(draws: np.ndarray) -> tuple[float | None, float | None]:
    if not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return None, None
    low, high = np.quantile(draws, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def _ranks(means: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Shared where no difference is significant: difference over its bootstrap standard error, Holm over all pairs."""
    pairs = list(combinations(range(len(means)), 2))
    p_values = []
    for i, j in pairs:
        difference, se = means[i] - means[j], (draws[:, i] - draws[:, j]).std(ddof=1)
        p_values.append(2 * ndtr(-abs(difference) / se) if se > 0 else float("nan"))
    better = np.zeros((len(means), len(means)), dtype=bool)
    for (i, j), p in zip(pairs, holm(p_values), strict=True):
        if p < ALPHA:
            winner, loser = (i, j) if means[i] > means[j] else (j, i)
            better[winner, loser] = True
    return places(better)


def _win_rates(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(models,) weighted share of (other model, evaluation) in which a model is ahead, a tie half; values (E, M)."""
    mine, other = values[:, :, None], values[:, None, :]
    ahead = (mine > other) + 0.5 * (mine == other)
    m = values.shape[1]
    return (np.einsum("e,eij->i", weights, ahead) - 0.5) / max(1, m - 1)
