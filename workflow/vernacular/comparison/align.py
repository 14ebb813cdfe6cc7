"""Alignment of several models' results of one evaluation: arrays per value, items in the same order.

The `metrics` maps of a model's TASK_RESULTS become one float array per name, NaN for items without the value.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table, value_arrays


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
        return [self.value(name) for name in (metric.needs if metric.corpus else (metric.name,))]

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


def align(tables: dict[str, pa.Table]) -> tuple[Items, dict[str, Side]]:
    """Align all sides of one evaluation over the union of their items.

    Cluster and category of an item come from the first side that has them.
    """
    tables = {model: as_table(table) for model, table in tables.items()}
    item_ids = {model: table.column("item_id").to_pylist() for model, table in tables.items()}
    ids = sorted(set().union(*item_ids.values()))
    positions = {item_id: i for i, item_id in enumerate(ids)}
    clusters, categories = np.full(len(ids), None, dtype=object), np.full(len(ids), None, dtype=object)
    chance = np.full(len(ids), np.nan)
    text_ids: dict[tuple, int] = {}
    sides = {}
    for model, table in tables.items():
        indices = np.array([positions[item_id] for item_id in item_ids[model]], dtype=int)
        for labels, name in ((clusters, "cluster_id"), (categories, "category")):
            values = np.array(table.column(name).to_pylist(), dtype=object)
            missing = np.array([labels[i] is None for i in indices], dtype=bool)
            labels[indices[missing]] = values[missing]
        texts = [table.column(name).to_pylist() for name in ("prompt", "choices", "gold")]
        text_id = np.full(len(ids), -1)
        for i, (prompt, options, gold) in zip(indices, zip(*texts, strict=True), strict=True):
            text_id[i] = text_ids.setdefault((prompt, tuple(options), tuple(gold)), len(text_ids))
            if options and gold:
                chance[i] = len(gold) / len(options)
        present = np.zeros(len(ids), dtype=bool)
        present[indices] = True
        values = {}
        for name, array in value_arrays(table).items():
            values[name] = np.full(len(ids), np.nan)
            values[name][indices] = array
        sides[model] = Side(present, text_id, values)
    return Items(ids, clusters, categories, chance), sides
