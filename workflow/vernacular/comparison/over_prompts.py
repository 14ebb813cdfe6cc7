"""Means over the prompts of a group: values of models, differences of pairs, and where their variance comes from.

Formulas: `statistics.over_prompts`, `statistics.crossed`. Rows per PROMPTS.

The value of the best prompt is stated without the bias of having chosen it. The highest of K values is high partly by
chance: of five equally good prompts with 500 items, the best shows about one point that it does not keep on new items.
A prompt is therefore chosen on one half of the clusters and evaluated on the other half; both directions and several
divisions are averaged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.prompt_groups import GroupValues, PromptGroup, group_values
from vernacular.comparison.schema import PROMPTS
from vernacular.core.tables import finite_or_none
from vernacular.metrics.metric import Metric, chance_level
from vernacular.statistics.over_prompts import (
    FEWEST_PROMPTS,
    LIKE_THESE,
    MeanOverPrompts,
    cluster_table,
    clustered_variance,
    components,
    mean_over_prompts,
    probability_better,
    resampled_variance,
)

DIVISIONS = 50  # random divisions into halves; the value changes by less than a tenth of a standard error beyond


CORPUS_RESAMPLES = 400  # a standard error to about 4 %
_SHARES = {
    "share_items": ("items",),
    "share_prompts": ("prompts",),
    "share_seeds": ("seeds", "prompts × seeds"),
    "share_items_prompts": ("items × prompts",),
    "share_rest": ("items × seeds", "items × prompts × seeds"),
}
Aligned = Mapping[str, tuple[Items, dict[str, Side]]]


def group_rows(group: PromptGroup, aligned: Aligned, metrics: list[Metric], models: list[str]) -> list[dict]:
    """Return the PROMPTS rows of a group: each model, then all pairs of models (headline metrics)."""
    rows = []
    for metric in metrics:
        available, missing = _split(group, aligned, models, metric)
        found = {model: group_values(group, aligned, [model], metric) for model in available}
        found = {model: values for model, values in found.items() if values is not None}
        own_rows = [_value_row(group, metric, model, values) for model, values in found.items()]
        _add_ranks(own_rows, metric)
        rows += own_rows
        if metric.headline and metric.higher_is_better is not None:
            for baseline, candidate in combinations(models, 2):
                rows += _pair_rows(group, aligned, metric, baseline, candidate, missing)
    return rows


def _split(group, aligned: Aligned, models: list[str], metric: Metric) -> tuple[list[str], dict[str, list[str]]]:
    """Return the models with values under every prompt, and the prompts that each of the others lacks."""
    available, missing = [], {}
    for model in models:
        lacking = [
            prompt
            for prompt, row in zip(group.prompts, group.runs, strict=True)
            if not all(model in aligned[run][1] and aligned[run][1][model].value_mask(metric).any() for run in row)
        ]
        if not lacking:
            available.append(model)
        elif len(lacking) < len(group.prompts):
            missing[model] = lacking
    return available, missing


def _row(group: PromptGroup, metric: Metric, **values) -> dict:
    described = {"unit": metric.unit, "higher_is_better": metric.higher_is_better, "headline": metric.headline}
    shape = {"n_prompts": len(group.prompts), "n_seeds": len(group.runs[0]), "prompts": list(group.prompts)}
    shape["evaluations"] = group.evaluations
    empty = dict.fromkeys(PROMPTS.schema.names)
    return empty | group.setting | {"metric": metric.name} | described | shape | values


def _value_row(group: PromptGroup, metric: Metric, model: str, values: GroupValues) -> dict:
    arrays = values.inputs[model]
    cells = _cells(metric, arrays)
    found = _mean(metric, [arrays], [1.0], cells, values.clusters)
    by_prompt = cells.mean(axis=1)
    low, high = int(by_prompt.argmin()), int(by_prompt.argmax())
    row = _row(
        group, metric, model=model, n=len(values.clusters), chance_level=chance_level(metric.name, values.chance)
    )
    row |= _interval(found, clip=metric.unit == "share")
    row |= {
        "prompt_values": by_prompt.tolist(),
        "lowest": finite_or_none(by_prompt[low]),
        "lowest_prompt": group.prompts[low],
        "highest": finite_or_none(by_prompt[high]),
        "highest_prompt": group.prompts[high],
    }
    if not metric.corpus and np.isfinite(arrays[0]).all():
        table = cluster_table(arrays[0], values.clusters)
        row |= _variances(table)
        if metric.higher_is_better is not None:
            best = best_prompt(table.mean(axis=2), higher_is_better=metric.higher_is_better)
            row |= {"best_prompt": group.prompts[best.index], "best_corrected": finite_or_none(best.corrected)}
        if metric.proportion:
            row["agreement"] = _agreement(arrays[0][:, :, 0])
    return row


def _pair_rows(group, aligned: Aligned, metric: Metric, baseline: str, candidate: str, missing: dict) -> list[dict]:
    """Return the row of a pair: compared only on the same prompts, else with a note that names those that differ."""
    pair = {"model": candidate, "baseline": baseline}
    if lacking := {side: missing[side] for side in (baseline, candidate) if side in missing}:
        texts = [f"{side} has no values for {', '.join(prompts)}" for side, prompts in lacking.items()]
        return [_row(group, metric, **pair, n=0, note=f"different prompts, not compared: {'; '.join(texts)}")]
    values = group_values(group, aligned, [baseline, candidate], metric)
    if values is None:
        return []
    arrays = [values.inputs[model] for model in (baseline, candidate)]
    sides = [_cells(metric, side) for side in arrays]
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = sides[1] - sides[0]
    found = _mean(metric, arrays, [-1.0, 1.0], difference, values.clusters)
    row = _row(group, metric, **pair, n=len(values.clusters)) | _interval(found)
    row |= {
        "baseline_value": finite_or_none(sides[0].mean()),
        "candidate_value": finite_or_none(sides[1].mean()),
        "n_baseline": values.n_own[baseline],
        "n_candidate": values.n_own[candidate],
        "p_value": finite_or_none(found.p),
        "prompt_values": difference.mean(axis=1).tolist(),
    }
    # without a table, the variance between the values, which includes the interaction: nearer to even
    variance_prompts = float(found.sd_prompts**2)
    if not metric.corpus and np.isfinite(difference).all():
        cells = arrays[1][0] - arrays[0][0]
        if np.isfinite(cells).all():
            row |= _variances(cluster_table(cells, values.clusters))
            variance_prompts = row["variance_prompts"]
    sign = 1 if metric.higher_is_better else -1
    probability = probability_better(sign * found.value, variance_prompts, found.se, len(group.prompts))
    return [row | {"probability_better": finite_or_none(probability)}]


def _cells(metric: Metric, arrays: list[np.ndarray]) -> np.ndarray:
    """Return the value of each run, (prompts, seeds), of arrays (n items, prompts, seeds)."""
    if not metric.corpus:
        return arrays[0].mean(axis=0)
    _, prompts, seeds = arrays[0].shape
    return np.array(
        [[float(metric.corpus(*(array[:, p, s] for array in arrays))) for s in range(seeds)] for p in range(prompts)]
    )


def _mean(metric: Metric, sides: list, signs: list[float], cells: np.ndarray, clusters) -> MeanOverPrompts:
    """Return the mean over prompts of a signed sum of `sides` (one model, or candidate - baseline)."""
    if metric.corpus:
        runs = [
            [array[:, p, s] for arrays in sides for array in arrays]
            for p in range(cells.shape[0])
            for s in range(cells.shape[1])
        ]
        width = len(sides[0])

        def statistic(*arrays):
            parts = [metric.corpus(*arrays[i * width : (i + 1) * width]) for i in range(len(signs))]
            return sum(sign * part for sign, part in zip(signs, parts, strict=True))

        with np.errstate(invalid="ignore"):
            variance, n_clusters = resampled_variance(
                statistic, runs, clusters, vectorized=metric.vectorized, resamples=CORPUS_RESAMPLES
            )
    else:
        with np.errstate(invalid="ignore"):  # inf - inf
            values = sum(sign * arrays[0].mean(axis=(1, 2)) for sign, arrays in zip(signs, sides, strict=True))
            variance, n_clusters = clustered_variance(values, clusters)
    values = cells if cells.shape[1] > 1 else cells[:, 0]
    return mean_over_prompts(values, variance, n_clusters)


def _interval(found: MeanOverPrompts, *, clip: bool = False) -> dict:
    low, high = (max(0.0, found.low), min(1.0, found.high)) if clip and found.se > 0 else (found.low, found.high)
    names = ("value", "se", "df", "se_items", "se_prompts", "sd_prompts")
    row = {name: finite_or_none(getattr(found, name)) for name in names}
    row |= {"ci_low": finite_or_none(low), "ci_high": finite_or_none(high), "question": found.question}
    notes = []
    if not found.se > 0:
        notes.append("no variation, or undefined in more than a fifth of the resamples: no interval")
    if found.question != LIKE_THESE:
        notes.append(f"an interval for prompts like these needs at least {FEWEST_PROMPTS} prompts")
    return row | {"note": "; ".join(notes) or None}


def _variances(table: np.ndarray) -> dict:
    """Return the components of a table (clusters, prompts, seeds), and their shares in one run's variance."""
    mean_of_seeds = components(table.mean(axis=2))
    shares = (components(table) if table.shape[2] > 1 else mean_of_seeds).shares()
    row = {
        "n_clusters": len(table),
        "variance_items": mean_of_seeds.of("items"),
        "variance_prompts": mean_of_seeds.of("prompts"),
        "variance_items_prompts": mean_of_seeds.of("items", "prompts"),
    }
    for name, effects in _SHARES.items():
        known = [shares[effect] for effect in effects if effect in shares]
        row[name] = sum(known) if known else None
    return row


def _agreement(correct: np.ndarray) -> float:
    """Return the share of items with the same outcome under two prompts, over all pairs of prompts; (n, prompts)."""
    pairs = list(combinations(range(correct.shape[1]), 2))
    return float(np.mean([(correct[:, i] == correct[:, j]).mean() for i, j in pairs]))


def _add_ranks(rows: list[dict], metric: Metric) -> None:
    """Add the best, worst and mean rank of each model over the prompts."""
    if metric.higher_is_better is None or len(rows) < 2:
        return
    values = np.array([row["prompt_values"] for row in rows])
    ranks = ranks_by_prompt(values, higher_is_better=metric.higher_is_better)
    for row, model_ranks in zip(rows, ranks, strict=True):
        row |= {"rank_best": int(model_ranks.min()), "rank_worst": int(model_ranks.max())}
        row |= {"rank_mean": float(model_ranks.mean()), "ranks": model_ranks.tolist()}


@dataclass(frozen=True)
class BestPrompt:
    """Values of the prompt that does best.

    Attributes:
        index: the prompt with the best value over all items
        shown: its value, biased by the choice
        corrected: value of a prompt chosen by one half of the clusters on the other half; NaN with fewer than 4
    """

    index: int
    shown: float
    corrected: float


def best_prompt(table: np.ndarray, *, higher_is_better: bool = True, seed: int = 0) -> BestPrompt:
    """Return the best prompt of a table (clusters, prompts) of `crossed.cluster_table`.

    >>> best = best_prompt(np.array([[1.0, 0.0]] * 8))
    >>> best.index, best.shown, best.corrected
    (0, 1.0, 1.0)
    """
    table = np.asarray(table, dtype=float)
    signed = table if higher_is_better else -table
    means = table.mean(axis=0)
    index = int(signed.mean(axis=0).argmax())
    n_clusters = len(table)
    if n_clusters < 4:
        return BestPrompt(index, float(means[index]), float("nan"))
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(DIVISIONS):
        order = rng.permutation(n_clusters)
        halves = order[: n_clusters // 2], order[n_clusters // 2 :]
        for chosen_on, valued_on in (halves, halves[::-1]):
            chosen = signed[chosen_on].mean(axis=0).argmax()
            values.append(table[valued_on, chosen].mean())
    return BestPrompt(index, float(means[index]), float(np.mean(values)))


def ranks_by_prompt(values: np.ndarray, *, higher_is_better: bool = True) -> np.ndarray:
    """Return the ranks of models under each prompt, (models, prompts) of `values` (models, prompts); ties share a rank.

    >>> ranks_by_prompt(np.array([[0.5, 0.6], [0.7, 0.6], [0.4, 0.2]])).tolist()
    [[2, 1], [1, 1], [3, 3]]
    """
    values = np.asarray(values, dtype=float)
    signed = values if higher_is_better else -values
    return 1 + (signed[None, :, :] > signed[:, None, :]).sum(axis=1)
