"""Alignment of several models' results of one evaluation: arrays per value, items in the same order.

The `metrics` maps of a model's TASK_RESULTS become one float array per name, NaN for items without the value.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table, value_arrays

_TEXTS = ("prompt", "choices", "gold")


@dataclass(frozen=True)
class Side:
    """One model's rows of the evaluation, aligned to all N items that any side has."""

    present: np.ndarray  # (N,) bool: the side has a row
    text_id: np.ndarray  # (N,) int: number of the item's (prompt, options, gold); -1 without a row
    values: dict[str, np.ndarray]  # name of a metric, or of an array it needs -> (N,) float

    def value(self, name: str) -> np.ndarray:
        array = self.values.get(name)
        return np.full(len(self.present), np.nan) if array is None else array

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
        indices, text_id = np.empty(table.num_rows, dtype=int), np.empty(table.num_rows, dtype=int)
        for row, (item_id, cluster, category, prompt, options, gold) in enumerate(zip(*columns, strict=True)):
            number = indices[row] = numbers.setdefault(item_id, len(numbers))
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
        values = value_arrays(table)
        read[model] = indices, text_id, {name: values[name] for name in values if names is None or name in names}
    ids = sorted(numbers)
    order = np.array([numbers[item_id] for item_id in ids], dtype=int)
    positions = np.empty(len(ids), dtype=int)
    positions[order] = np.arange(len(ids))
    items = Items(
        ids,
        np.array([*clusters, None], dtype=object)[:-1][order],
        np.array([*categories, None], dtype=object)[:-1][order],
        np.array(chances, dtype=float)[order],
    )
    sides = {}
    for model in list(read):
        indices, text_id, values = read.pop(model)
        indices = positions[indices]
        sides[model] = Side(
            scatter(len(ids), indices, np.ones(len(indices), dtype=bool), False),
            scatter(len(ids), indices, text_id, -1),
            {name: scatter(len(ids), indices, array, np.nan) for name, array in values.items()},
        )
    return items, sides


def scatter(n: int, indices: np.ndarray, values: np.ndarray, missing) -> np.ndarray:
    """Return an (n,) array with `values` at `indices`, and `missing` elsewhere."""
    array = np.full(n, missing)
    array[indices] = values
    return array
