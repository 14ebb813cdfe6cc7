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
    present = [metric for metric in metrics if any(_has_values(row, metric) for row in rows)]
    displayed = present or [metric for metric in metrics if metric.headline]
    groups = {"": rows}
    if categories:
        for category in sorted({row["category"] for row in rows if row["category"]}):
            groups[category] = [row for row in rows if row["category"] == category]
    has_tie_keys = any(name.startswith("tie:") for row in rows for name in row["metrics"])
    return [
        _value(metric, group, seed=seed, has_tie_keys=has_tie_keys) | {"category": category}
        for category, group in groups.items()
        for metric in displayed
        if not (category and metric.of_dataset)
    ]


def _value(metric: Metric, rows: list[dict], *, seed: int, has_tie_keys: bool) -> dict:
    scored_rows = [row for row in rows if _has_values(row, metric)]
    arrays = [np.array([row["metrics"][name] for row in scored_rows]) for name in _required_values(metric)]
    value = float("nan")
    with np.errstate(invalid="ignore"):  # the mean of infinite surprisals is not finite; the cell is left empty
        if scored_rows:
            value = float(metric.corpus(*arrays)) if metric.corpus else float(arrays[0].mean())
        low, high = _interval(metric, arrays, [row["cluster_id"] for row in scored_rows], seed)
    return {
        "metric": metric.name,
        "value": _finite(value),
        "ci_low": _finite(low),
        "ci_high": _finite(high),
        "n": len(scored_rows),
        "n_flagged": sum(row["flags"] is not None for row in rows),
        "n_ties": _ties(metric, scored_rows, has_tie_keys),
        "chance_level": chance_level(metric.name, chance_shares(scored_rows)),
        "unit": metric.unit,
        "metric_group": metric.metric_group,
        "higher_is_better": metric.higher_is_better,
        "headline": metric.headline,
    }


def _interval(metric: Metric, arrays: list[np.ndarray], clusters: list, seed: int) -> tuple[float, float]:
    if metric.of_dataset or not len(arrays[0]):
        return float("nan"), float("nan")
    if metric.proportion:
        return clustered_wilson(arrays[0], clusters)
    max_resamples = CORPUS_RESAMPLES if metric.corpus else MEAN_RESAMPLES
    return cluster_bootstrap(
        metric.corpus,
        arrays,
        clusters,
        resamples=max(FEWEST_RESAMPLES, min(max_resamples, DRAWS // len(arrays[0]))),
        seed=seed,
        vectorized=metric.vectorized,
    )


def _required_values(metric: Metric) -> tuple[str, ...]:
    return metric.needs if metric.corpus else (metric.name,)


def _has_values(row: dict, metric: Metric) -> bool:
    return all(not math.isnan(row["metrics"].get(name, math.nan)) for name in _required_values(metric))


def _ties(metric: Metric, rows: list[dict], has_tie_keys: bool) -> int | None:
    """Count the ties of the metric's own choice if rows record it ("tie:" + metric), else of the row's choice."""
    if not metric.proportion:
        return None
    if has_tie_keys:
        return sum(f"tie:{metric.name}" in row["metrics"] for row in rows)
    return sum(bool(row["tie"]) for row in rows)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
