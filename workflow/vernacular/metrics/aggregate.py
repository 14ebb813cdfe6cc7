"""Aggregation of per-item results to values with intervals, over all items and per category.

Intervals are Wilson intervals for proportions, and cluster bootstrap intervals for means and corpus statistics; a
cluster is a passage, sentence or pair that items share.
"""

import math

import numpy as np

from vernacular.metrics.metric import Metric, chance_level, chance_shares
from vernacular.statistics.intervals import cluster_bootstrap, clustered_wilson
from vernacular.types import Result

MEAN_RESAMPLES = 10_000
CORPUS_RESAMPLES = 2_000  # the corpus statistic is computed for each
FEWEST_RESAMPLES = 1_000
DRAWS = 50_000_000  # items drawn in total; above 5,000 items, intervals are stable with fewer resamples


def aggregate(rows: list[Result], metrics: list[Metric], *, seed: int, categories: bool) -> list[dict]:
    """Return partial rows of METRICS for one evaluation; `category` is "" for all items.

    A metric without values is omitted, unless all metrics are: then the headline metrics have empty values, so that a
    failed evaluation is visible. `chance_level` is the mean share of correct options among those offered, for
    accuracies. `n_ties` counts the ties of the metric's own choice.
    """
    rows = [{**row, "metrics": dict(row["metrics"])} for row in rows]
    present = [metric for metric in metrics if any(_has(row, metric) for row in rows)]
    shown = present or [metric for metric in metrics if metric.headline]
    groups = {"": rows}
    if categories:
        for name in sorted({row["category"] for row in rows if row["category"]}):
            groups[name] = [row for row in rows if row["category"] == name]
    keyed = any(name.startswith("tie:") for row in rows for name in row["metrics"])
    return [
        _value(metric, group, seed=seed, keyed=keyed) | {"category": category}
        for category, group in groups.items()
        for metric in shown
    ]


def _value(metric: Metric, rows: list[dict], *, seed: int, keyed: bool) -> dict:
    used = [row for row in rows if _has(row, metric)]
    arrays = [np.array([row["metrics"][name] for row in used]) for name in _needs(metric)]
    value = float("nan")
    with np.errstate(invalid="ignore"):  # the mean of infinite surprisals is not finite; the cell is left empty
        if used:
            value = float(metric.corpus(*arrays)) if metric.corpus else float(arrays[0].mean())
        low, high = _interval(metric, arrays, [row["cluster_id"] for row in used], seed)
    return {
        "metric": metric.name,
        "value": _finite(value),
        "ci_low": _finite(low),
        "ci_high": _finite(high),
        "n": len(used),
        "n_flagged": sum(row["flags"] is not None for row in rows),
        "n_ties": _ties(metric, used, keyed),
        "chance_level": chance_level(metric.name, chance_shares(used)),
        "unit": metric.unit,
        "metric_group": metric.family,
        "higher_is_better": metric.higher_is_better,
        "headline": metric.headline,
    }


def _interval(metric: Metric, arrays: list[np.ndarray], clusters: list, seed: int) -> tuple[float, float]:
    if not len(arrays[0]):
        return float("nan"), float("nan")
    if metric.proportion:
        return clustered_wilson(arrays[0], clusters)
    most = CORPUS_RESAMPLES if metric.corpus else MEAN_RESAMPLES
    return cluster_bootstrap(
        metric.corpus,
        arrays,
        clusters,
        resamples=max(FEWEST_RESAMPLES, min(most, DRAWS // len(arrays[0]))),
        seed=seed,
        vectorised=metric.vectorised,
    )


def _needs(metric: Metric) -> tuple[str, ...]:
    return metric.needs if metric.corpus else (metric.name,)


def _has(row: dict, metric: Metric) -> bool:
    return all(not math.isnan(row["metrics"].get(name, math.nan)) for name in _needs(metric))


def _ties(metric: Metric, rows: list[dict], keyed: bool) -> int | None:
    """Count the ties of the metric's own choice if rows record it ("tie:" + metric), else of the row's choice."""
    if not metric.proportion:
        return None
    if keyed:
        return sum(f"tie:{metric.name}" in row["metrics"] for row in rows)
    return sum(bool(row["tie"]) for row in rows)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
