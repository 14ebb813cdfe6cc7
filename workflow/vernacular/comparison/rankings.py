"""Ranks of models by a headline metric of one evaluation, from paired tests on the items that both models have.

Holm's correction is over the tests of the column: over those against the best model for `in_best_group`, and over all
pairs for `rank`. Earlier checkpoints of a series are tested against the best model only, and have no rank: the number
of tests grows with the number of checkpoints, not with the square of it, and does not weaken those of other models.
"""

from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.pairwise import RESAMPLES, compare_sides
from vernacular.metrics.metric import Metric
from vernacular.statistics.paired import ALPHA, competition_ranks, holm


def rankings(
    items: Items,
    sides: dict[str, Side],
    metrics: list[Metric],
    metadata: dict,
    *,
    comparisons: Sequence[dict] = (),
    unranked: Collection[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[dict]:
    """Return RANKINGS rows of one evaluation; none for metrics with values of fewer than two models.

    Models in `unranked` are tested against the best model only, and have no rank.

    `comparisons` holds rows of `compare_sides` for this evaluation, whose pairs are not tested again. The best model is
    determined by each model's own value. A model without items in common with it counts as not significantly different.
    """
    headline_metrics = [metric for metric in metrics if metric.headline and metric.higher_is_better is not None]
    values_by_metric = {metric.name: _model_values(sides, metric) for metric in headline_metrics}
    best = {_best(metric, values) for metric in headline_metrics if (values := values_by_metric[metric.name])}
    compared_pairs = {frozenset((row["baseline"], row["candidate"])) for row in comparisons}
    pairs = [
        pair
        for pair in combinations(sorted(sides), 2)
        if frozenset(pair) not in compared_pairs and (best & {*pair} or not {*pair} & {*unranked})
    ]
    new_comparisons = compare_sides(
        items, sides, pairs, headline_metrics, metadata, seed=seed, resamples=resamples, categories=False
    )
    all_comparisons = [row for row in [*comparisons, *new_comparisons] if not row["category"]]
    rows = []
    for metric in headline_metrics:
        values = values_by_metric[metric.name]
        if len(values) >= 2:
            metric_rows = [row for row in all_comparisons if row["metric"] == metric.name]
            rows += rank_by_metric(metric, values, metric_rows, unranked)
    return [metadata | row for row in rows]


def _model_values(sides: dict[str, Side], metric: Metric) -> dict[str, float]:
    """Return the value of each model that has one."""
    return {model: value for model in sorted(sides) if (value := _model_value(sides[model], metric)) is not None}


def _best(metric: Metric, values: dict[str, float]) -> str:
    return max(values, key=lambda model: (1 if metric.higher_is_better else -1) * values[model])


def _model_value(side: Side, metric: Metric) -> float | None:
    mask = side.value_mask(metric)
    if not mask.any():
        return None
    arrays = [array[mask] for array in side.inputs(metric)]
    value = float(metric.corpus(*arrays)) if metric.corpus else float(arrays[0].mean())
    return value if np.isfinite(value) else None


def rank_by_metric(
    metric: Metric, values: dict[str, float], comparisons: list[dict], unranked: Collection[str] = ()
) -> list[dict]:
    """Return a RANKINGS row, without the columns of the evaluation, per model.

    Args:
        values: Value of each model.
        comparisons: COMPARISONS rows of pairs of these models, of this metric.
        unranked: Models without a rank.
    """
    models, best = list(values), _best(metric, values)
    differences: dict[tuple[str, str], tuple[float, float]] = {}  # (model, other): difference model - other, p
    for row in comparisons:
        difference, p = (float("nan") if row[name] is None else row[name] for name in ("difference", "p_value"))
        differences[row["candidate"], row["baseline"]] = difference, p
        differences[row["baseline"], row["candidate"]] = -difference, p
    unknown = (float("nan"), float("nan"))
    vs_best = [differences.get((model, best), unknown) for model in models]
    adjusted_p = holm([p for _, p in vs_best])
    ranked = [model for model in models if model not in unranked]
    ranks = dict(zip(ranked, _rank_models(ranked, differences, 1 if metric.higher_is_better else -1), strict=True))
    rows = []
    for model, (difference, p), p_holm in zip(models, vs_best, adjusted_p, strict=True):
        rows.append(
            {
                "model": model,
                "metric": metric.name,
                "best": best,
                "difference": 0.0 if model == best else _finite_or_none(difference),
                "p_value": _finite_or_none(p),  # null for the best model itself
                "p_holm": _finite_or_none(p_holm),
                "in_best_group": bool(not p_holm < ALPHA),
                "rank": None if model in unranked else int(ranks[model]),
            }
        )
    return rows


def _rank_models(models: list[str], differences: dict, direction: int) -> np.ndarray:
    pairs = [(i, j) for i in range(len(models)) for j in range(i)]
    tests = [differences.get((models[i], models[j]), (float("nan"), float("nan"))) for i, j in pairs]
    better = np.zeros((len(models), len(models)), dtype=bool)
    for (i, j), (difference, _), p in zip(pairs, tests, holm([p for _, p in tests]), strict=True):
        if p < ALPHA and difference:
            winner, loser = (i, j) if direction * difference > 0 else (j, i)
            better[winner, loser] = True
    return competition_ranks(better)


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
