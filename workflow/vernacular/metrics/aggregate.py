"""Aggregation of per-item results to values with intervals, over all items and per category.

Intervals are Wilson intervals for proportions, and cluster bootstrap intervals for means and corpus statistics; a
cluster is a passage, sentence or pair that items share.
"""

import numpy as np
import pyarrow as pa

from vernacular.core.tables import finite_or_none
from vernacular.metrics.metric import Metric, chance_level, chance_shares
from vernacular.metrics.schema import as_table, value_arrays
from vernacular.statistics.intervals import cluster_bootstrap, clustered_wilson
from vernacular.types import Result

MEAN_RESAMPLES = 10_000
CORPUS_RESAMPLES = 2_000  # the corpus statistic is computed for each
FEWEST_RESAMPLES = 1_000
DRAWS = 50_000_000  # items drawn in total; above 5,000 items, intervals are stable with fewer resamples


def aggregate(rows: list[Result] | pa.Table, metrics: list[Metric], *, seed: int, categories: bool) -> list[dict]:
    """Return partial rows of METRICS for one evaluation; `category` is "" for all items.

    A metric without values is omitted, unless all metrics are: then the headline metrics have empty values, so that a
    failed evaluation is visible. `chance_level` is the mean share of correct options among those offered, for
    accuracies. `n_ties` counts the ties of the metric's own choice.
    """
    columns = _Columns(as_table(rows))
    present = [metric for metric in metrics if len(columns.scored(metric, columns.all))]
    displayed = present or [metric for metric in metrics if metric.headline]
    groups = {"": columns.all} | (columns.by_category() if categories else {})
    return [
        _value(metric, columns, group, seed=seed) | {"category": category}
        for category, group in groups.items()
        for metric in displayed
        if not (category and metric.of_dataset)
    ]


class _Columns:
    """The rows of TASK_RESULTS as arrays (n,), and selections of them as ascending indices."""

    def __init__(self, table: pa.Table):
        self.values = value_arrays(table)
        self.all = np.arange(table.num_rows)
        self.clusters, self.categories = (
            np.array([*table[name].to_pylist(), None], dtype=object)[:-1] for name in ("cluster_id", "category")
        )
        self.flagged = table["flags"].is_valid().to_numpy()
        self.tied = table["tie"].fill_null(False).to_numpy()
        self.chances = chance_shares(table)
        self.has_tie_keys = any(name.startswith("tie:") for name in self.values)
        self._missing = np.full(table.num_rows, np.nan)
        self.samples = np.nan_to_num(self.value("samples"), nan=1.0).astype(int)  # per item

    def value(self, name: str) -> np.ndarray:
        return self.values.get(name, self._missing)

    def scored(self, metric: Metric, group: np.ndarray) -> np.ndarray:
        """Return the rows of a group that have all values that the metric needs."""
        has_values = [~np.isnan(self.value(name)[group]) for name in metric.inputs]
        return group[np.logical_and.reduce(has_values)]

    def by_category(self) -> dict[str, np.ndarray]:
        rows: dict[str, list[int]] = {}
        for index, category in enumerate(self.categories):
            if category:
                rows.setdefault(category, []).append(index)
        return {category: np.array(rows[category]) for category in sorted(rows)}


def _value(metric: Metric, columns: _Columns, group: np.ndarray, *, seed: int) -> dict:
    scored = columns.scored(metric, group)
    arrays = [columns.value(name)[scored] for name in metric.inputs]
    with np.errstate(invalid="ignore"):  # the mean of infinite surprisals is not finite; the cell is left empty
        value = metric.value(arrays) if len(scored) else None
        low, high = _interval(metric, arrays, columns.clusters[scored].tolist(), columns.samples[scored], seed)
    return {
        "metric": metric.name,
        "value": finite_or_none(value),
        "ci_low": finite_or_none(low),
        "ci_high": finite_or_none(high),
        "n": len(scored),
        "n_flagged": int(columns.flagged[group].sum()),
        "n_ties": _ties(metric, columns, scored),
        "chance_level": chance_level(metric.name, columns.chances[scored]),
        "unit": metric.unit,
        "metric_group": metric.metric_group,
        "higher_is_better": metric.higher_is_better,
        "headline": metric.headline,
    }


def _interval(
    metric: Metric, arrays: list[np.ndarray], clusters: list, samples: np.ndarray, seed: int
) -> tuple[float, float]:
    if metric.of_dataset or not len(arrays[0]):
        return float("nan"), float("nan")
    if metric.proportion and (samples > 1).any():
        # an item's samples are a cluster, of which the mean is all that the interval needs
        own = [f"\0{index}" if cluster is None else cluster for index, cluster in enumerate(clusters)]
        return clustered_wilson(np.repeat(arrays[0], samples), np.repeat(np.array(own, dtype=object), samples).tolist())
    if metric.proportion:
        return clustered_wilson(arrays[0], clusters)
    max_resamples = CORPUS_RESAMPLES if metric.corpus else MEAN_RESAMPLES
    return cluster_bootstrap(
        metric.corpus,
        arrays,
        clusters,
        resamples=max(FEWEST_RESAMPLES, min(max_resamples, DRAWS // len(arrays[0]))),
        seed=seed,
    )


def _ties(metric: Metric, columns: _Columns, scored: np.ndarray) -> int | None:
    """Count the ties of the metric's own choice if rows record it ("tie:" + metric), else of the row's choice."""
    if not metric.proportion:
        return None
    if columns.has_tie_keys:
        return int((~np.isnan(columns.value(f"tie:{metric.name}")[scored])).sum())
    return int(columns.tied[scored].sum())
