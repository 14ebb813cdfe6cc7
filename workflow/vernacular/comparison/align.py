"""Alignment of several models' results of one evaluation: arrays per value, items in the same order.

The `metrics` maps of a model's TASK_RESULTS become one float array per name, NaN for items without the value.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table, value_arrays
from vernacular.metrics.spans import correct_options, margin

_TEXTS = ("prompt", "choices", "gold")


@dataclass(frozen=True)
class Side:
    """One model's rows of the evaluation, aligned to all N items that any side has."""

    rows: np.ndarray  # (N,) int: row in the side's table; -1 without one
    text_id: np.ndarray  # (N,) int: number of the item's (prompt, options, gold); -1 without a row
    values: dict[str, np.ndarray]  # name of a metric, or of an array it needs -> (N,) float

    @property
    def present(self) -> np.ndarray:
        """(N,) bool: the side has a row."""
        return self.rows >= 0

    def value(self, name: str) -> np.ndarray:
        array = self.values.get(name)
        return np.full(len(self.rows), np.nan) if array is None else array

    def of_items(self, values: np.ndarray) -> np.ndarray:
        """Return an (N,) array of values per row of the side's table; NaN for items without a row."""
        return np.append(values, np.nan)[self.rows]

    def inputs(self, metric: Metric) -> list[np.ndarray]:
        """Return the (N,) arrays that the metric is computed from."""
        return [self.value(name) for name in metric.inputs]

    def value_mask(self, metric: Metric) -> np.ndarray:
        """Return an (N,) mask of the items that enter the metric."""
        return ~np.isnan(self.inputs(metric)).any(axis=0)


@dataclass(frozen=True)
class Items:
    """Properties of the items that do not depend on the side, sorted by item ID."""

    ids: list[str]  # (N,)
    clusters: np.ndarray  # (N,) labels; None: the item is its own cluster
    categories: np.ndarray  # (N,) labels or None
    chance: np.ndarray  # (N,) share of correct options among those offered; NaN without options or gold


def align(
    tables: Mapping[str, pa.Table] | Iterable[tuple[str, pa.Table]], names: Collection[str] | None = None
) -> tuple[Items, dict[str, Side]]:
    """Align all sides of one evaluation over the union of their items.

    Cluster and category of an item come from the first side that has them.

    Args:
        tables: TASK_RESULTS by model; of pairs, one table is in memory at a time.
        names: The values that are returned; None for all.
    """
    numbers: dict[str, int] = {}  # of items, by appearance
    clusters, categories, chances = [], [], []  # by number
    text_ids: dict[tuple, int] = {}
    read = {}
    for model, rows in tables.items() if isinstance(tables, Mapping) else tables:
        table = as_table(rows)
        columns = (table.column(name).to_pylist() for name in ("item_id", "cluster_id", "category", *_TEXTS))
        items, text_id = np.empty(table.num_rows, dtype=int), np.empty(table.num_rows, dtype=int)
        for row, (item_id, cluster, category, prompt, options, gold) in enumerate(zip(*columns, strict=True)):
            number = items[row] = numbers.setdefault(item_id, len(numbers))
            if number == len(clusters):
                clusters.append(cluster)
                categories.append(category)
                chances.append(np.nan)
            if clusters[number] is None:
                clusters[number] = cluster
            if categories[number] is None:
                categories[number] = category
            if options and gold:
                chances[number] = len(gold) / len(options)
            text_id[row] = text_ids.setdefault((prompt, tuple(options), tuple(gold)), len(text_ids))
        values = {} if names is not None and not names else value_arrays(table)
        read[model] = items, text_id, {name: values[name] for name in values if names is None or name in names}
    ids = sorted(numbers)
    order = np.array([numbers[item_id] for item_id in ids], dtype=int)
    sides = {}
    for model in list(read):
        items, text_id, values = read.pop(model)
        rows = np.full(len(ids), -1)
        rows[items] = np.arange(len(items))
        rows = rows[order]
        aligned = {name: np.append(array, np.nan)[rows] for name, array in values.items()}
        sides[model] = Side(rows, np.append(text_id, -1)[rows], aligned)
    labels = (np.array([*column, None], dtype=object)[:-1][order] for column in (clusters, categories))
    return Items(ids, *labels, np.array(chances, dtype=float)[order]), sides


def margins(table: pa.Table) -> np.ndarray:
    """Return (n,) the best correct score minus the best incorrect one per TASK_RESULTS row; NaN if a score is missing.

    Correct options are the gold options and any others with the same text.
    """
    columns = (table[name].to_pylist() for name in ("option_scores", "choices", "gold"))
    found = [
        None if not scores or None in scores else margin(scores, correct_options(options, gold))
        for scores, options, gold in zip(*columns, strict=True)
    ]
    return np.array(found, dtype=float)
