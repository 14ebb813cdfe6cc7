"""Aggregates over tasks: means of chance-normalized values, shared ranks and win rates.

Each evaluation is represented by its first headline metric with a chance level for which higher is better. The value is
normalized to (value - chance) / (1 - chance), so that 0 is chance and 1 is all correct, whatever the number of options.
Evaluations that differ only in the few-shot seed count as one. A language counts as often as it has evaluations; the
mean over languages, beside it, is of the means of each. Models of one scope are compared on the same evaluations
and the same items.

The bootstrap is stratified: items (clusters) are drawn within each dataset (task and language), and all evaluations of
a dataset use the same draws, since they share items. The intervals cover the sampling of items, not of tasks: they hold
for *these* tasks and do not generalize to others.
"""

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
from scipy.special import ndtr

from vernacular.comparison.align import Items, Side
from vernacular.metrics.metric import Metric, chance_level
from vernacular.statistics import paired, significance
from vernacular.statistics.intervals import redrawn, resample_statistic

RESAMPLES = 1_000
_GROUP_KEYS = ("task", "language", "protocol", "shots", "style")

# of which an evaluation is part; no tag of a language has a colon
_SCOPES = (lambda metadata: metadata["language"], lambda metadata: "all", lambda metadata: f"task:{metadata['task']}")

# an evaluation: metadata, metrics, items, and sides aligned to the items
Evaluation = tuple[dict, list[Metric], Items, dict[str, Side]]


def overall(evaluations: list[Evaluation], *, seed: int = 0, resamples: int = RESAMPLES) -> list[dict]:
    """Return OVERALL rows: one per model and scope (each language, each task, and "all").

    A model with no evaluation of a scope is not in that scope. An evaluation that one of the scope's models lacks, or
    without a value of a metric with a chance level, is excluded for all models and counted.
    """
    scopes = [sorted({scope_of(metadata) for metadata, *_ in evaluations}) for scope_of in _SCOPES]
    cache: dict[tuple, tuple] = {}  # results per evaluation and models, reused by later scopes
    rows = []
    for scope in chain(*scopes):
        own = [each for each in evaluations if scope in [scope_of(each[0]) for scope_of in _SCOPES]]
        models = sorted({model for *_, sides in own for model, side in sides.items() if side.present.any()})
        if usable := [evaluation for evaluation in own if _representative_metric(evaluation, models)]:
            rows += _aggregate_scope(scope, models, usable, len(own) - len(usable), seed, resamples, cache)
    return rows


def _is_candidate(metric: Metric) -> bool:
    return bool(metric.headline and metric.higher_is_better)


def with_normalized_values(side: Side, metrics: list[Metric]) -> Side:
    """Return a side with only those values that `overall` reads."""
    names = {name for metric in metrics if _is_candidate(metric) for name in metric.inputs}
    return replace(side, values={name: array for name, array in side.values.items() if name in names})


def _representative_metric(evaluation: Evaluation, models: list[str]) -> Metric | None:
    """Return the representative metric; None if no suitable metric has a value on items that all models share."""
    _, metrics, items, sides = evaluation
    for metric in metrics:
        if not _is_candidate(metric) or any(model not in sides for model in models):
            continue
        shared = _shared_items(evaluation, metric, models)
        chance = chance_level(metric.name, items.chance[shared])
        if not (shared.any() and chance is not None and chance < 1):
            continue
        inputs = ([array[shared] for array in sides[model].inputs(metric)] for model in models)
        if all(np.isfinite(metric.value(arrays)) for arrays in inputs):  # an area under the curve needs both labels
            return metric
    return None


def _shared_items(evaluation: Evaluation, metric: Metric, models: list[str]) -> np.ndarray:
    """Return an (N,) mask of items that all models have with the same texts and a value of the metric."""
    _, _, items, sides = evaluation
    mask = np.ones(len(items.ids), dtype=bool)
    for model in models:
        mask &= sides[model].value_mask(metric) & (sides[model].text_id == sides[models[0]].text_id)
    return mask


def _aggregate_scope(
    scope: str,
    models: list[str],
    evaluations: list[Evaluation],
    n_excluded: int,
    seed: int,
    resamples: int,
    cache: dict,
) -> list[dict]:
    groups: dict[tuple, list[int]] = {}
    normalized = []
    clusters = _dataset_clusters(evaluations)
    for index, evaluation in enumerate(evaluations):
        groups.setdefault(tuple(evaluation[0][name] for name in _GROUP_KEYS), []).append(index)
        key = (evaluation[0]["evaluation"], *models)
        if key not in cache:
            cache[key] = _normalize(evaluation, models, clusters, seed, resamples)
        normalized.append(cache[key])
    values, draws = map(np.array, zip(*normalized, strict=True))
    weights = np.empty(len(evaluations))
    for indices in groups.values():
        weights[indices] = 1 / len(indices) / len(groups)
    means = weights @ values
    drawn_means = np.einsum("e,erm->rm", weights, draws)
    languages = np.array([metadata["language"] for metadata, *_ in evaluations])
    by_language = np.zeros(len(evaluations))
    for language in (names := np.unique(languages)):  # each counts once, however many evaluations it has
        own = languages == language
        by_language[own] = weights[own] / weights[own].sum() / len(names)
    language_means, language_draws = by_language @ values, np.einsum("e,erm->rm", by_language, draws)
    rates = _win_rates(values, weights)
    better = _better(means, drawn_means)
    ranks = significance.competition_ranks(better)
    return [
        {
            "model": model,
            "scope": scope,
            "n_evaluations": len(evaluations),
            "n_excluded": n_excluded,
            "mean": float(means[m]),
            **dict(zip(("ci_low", "ci_high"), _interval(drawn_means[:, m]), strict=True)),
            "n_languages": len(names),
            "mean_over_languages": float(language_means[m]),
            **dict(zip(("languages_low", "languages_high"), _interval(language_draws[:, m]), strict=True)),
            "rank": int(ranks[m]),
            "rank_worst": len(models) - int(better[m].sum()),
            "win_rate": None if len(models) < 2 else float(rates[m]),
        }
        for m, model in enumerate(models)
    ]


def _dataset_clusters(evaluations: list[Evaluation]) -> dict[tuple[str, str], dict[str, int]]:
    """Return {(task, language): {cluster or item: number}} over all evaluations of the dataset."""
    labels_by_dataset: dict[tuple[str, str], set[str]] = {}
    for metadata, _, items, _ in evaluations:
        labels_by_dataset.setdefault((metadata["task"], metadata["language"]), set()).update(_labels(items))
    return {name: {label: i for i, label in enumerate(sorted(labels))} for name, labels in labels_by_dataset.items()}


def _labels(items: Items) -> list[str]:
    pairs = zip(items.ids, items.clusters, strict=True)
    return [f"item {item_id}" if cluster is None else f"cluster {cluster}" for item_id, cluster in pairs]


def _normalize(evaluation: Evaluation, models, clusters, seed: int, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (value - chance) / (1 - chance) as ((models,), (resamples, models))."""
    metadata, _, items, sides = evaluation
    metric = _representative_metric(evaluation, models)
    indices = np.flatnonzero(_shared_items(evaluation, metric, models))
    code_of = clusters[metadata["task"], metadata["language"]]
    codes = np.array([code_of[label] for label in _labels(items)])[indices]
    chance = chance_level(metric.name, items.chance[indices])
    arrays = [[array[indices] for array in sides[model].inputs(metric)] for model in models]
    k = len(code_of)
    if metric.corpus:
        value = np.array([metric.value(own) for own in arrays])

        def resampled(own: list[np.ndarray]) -> np.ndarray:
            rng = np.random.default_rng(seed)  # the same draws for each model
            return resample_statistic(metric.corpus, own, codes, k, resamples, rng)

        draws = np.column_stack([resampled(own) for own in arrays])
    else:
        columns = np.column_stack([model_arrays[0] for model_arrays in arrays])
        value = columns.mean(0)
        padded = np.append(codes, k - 1)  # so that the sums include clusters without items
        sums = paired.cluster_sums(np.vstack([columns, np.zeros(len(models))]), padded)
        sizes = paired.cluster_sums(np.append(np.ones(len(indices)), 0.0)[:, None], padded)
        counts = paired.cluster_counts(k, resamples, seed)
        draws = paired.resample_means(sums, np.repeat(sizes, len(models), axis=1), counts)
    return (value - chance) / (1 - chance), (redrawn(draws) - chance) / (1 - chance)


def _interval(draws: np.ndarray) -> tuple[float | None, float | None]:
    if not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return None, None
    return tuple(np.quantile(draws, [significance.ALPHA / 2, 1 - significance.ALPHA / 2]).tolist())


def _better(means: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return (models, models) whether the first is significantly better than the second.

    The test is the difference over its bootstrap standard error, with Holm's correction over all pairs.
    """
    pairs = list(combinations(range(len(means)), 2))
    differences, p_values = [means[i] - means[j] for i, j in pairs], []
    for (i, j), difference in zip(pairs, differences, strict=True):
        se = (draws[:, i] - draws[:, j]).std(ddof=1)
        p_values.append(2 * ndtr(-abs(difference) / se) if se > 0 else float("nan"))
    return significance.significantly_better(len(means), pairs, differences, p_values)


def _win_rates(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return (models,) weighted shares of (other model, evaluation) that a model leads, ties half; values (E, M)."""
    model_values, opponent_values = values[:, :, None], values[:, None, :]
    wins = (model_values > opponent_values) + 0.5 * (model_values == opponent_values)
    n_models = values.shape[1]
    return (np.einsum("e,eij->i", weights, wins) - 0.5) / max(1, n_models - 1)
