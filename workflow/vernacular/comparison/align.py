"""Alignment of several models' results of one evaluation: arrays per value, items in the same order.

The `metrics` maps of a model's TASK_RESULTS become one float array per name, NaN for items without the value.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table


@dataclass(frozen=True)
class Side:
    """One model's rows of the evaluation, aligned to all N items that any side has."""

    has: np.ndarray  # (N,) bool: the side has a row
    text: np.ndarray  # (N,) int: number of the item's (prompt, options, gold); -1 without a row
    values: dict[str, np.ndarray]  # name of a metric, or of an array it needs -> (N,) float

    def value(self, name: str) -> np.ndarray:
        found = self.values.get(name)
        return np.full(len(self.has), np.nan) if found is None else found

    def needed(self, metric: Metric) -> list[np.ndarray]:
        """Return the (N,) arrays that the metric is computed from."""
        return [self.value(name) for name in (metric.needs if metric.corpus else (metric.name,))]

    def known(self, metric: Metric) -> np.ndarray:
        """Return an (N,) mask of the items that enter the metric."""
        return ~np.isnan(self.needed(metric)).any(axis=0)


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
    columns = {model: as_table(table) for model, table in tables.items()}
    own_ids = {model: table.column("item_id").to_pylist() for model, table in columns.items()}
    ids = sorted(set().union(*own_ids.values()))
    place = {item_id: i for i, item_id in enumerate(ids)}
    clusters, categories = np.full(len(ids), None, dtype=object), np.full(len(ids), None, dtype=object)
    chance = np.full(len(ids), np.nan)
    numbers: dict[tuple, int] = {}
    sides = {}
    for model, table in columns.items():
        at = np.array([place[item_id] for item_id in own_ids[model]], dtype=int)
        for labels, name in ((clusters, "cluster_id"), (categories, "category")):
            own = np.array(table.column(name).to_pylist(), dtype=object)
            missing = np.array([labels[i] is None for i in at], dtype=bool)
            labels[at[missing]] = own[missing]
        asked = [table.column(name).to_pylist() for name in ("prompt", "choices", "gold")]
        text = np.full(len(ids), -1)
        for i, (prompt, options, gold) in zip(at, zip(*asked, strict=True), strict=True):
            text[i] = numbers.setdefault((prompt, tuple(options), tuple(gold)), len(numbers))
            if options and gold:
                chance[i] = len(gold) / len(options)
        has = np.zeros(len(ids), dtype=bool)
        has[at] = True
        sides[model] = Side(has, text, _values(table, at, len(ids)))
    return Items(ids, clusters, categories, chance), sides


def _values(table: pa.Table, at: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Convert the column of maps to one (n,) array per key, without a Python object per number."""
    maps = table.column("metrics").combine_chunks()
    if not len(maps):
        return {}
    offsets = np.asarray(maps.offsets)
    first, last = offsets[0], offsets[-1]
    row = np.repeat(at, np.diff(offsets))
    keys = maps.keys[first:last].dictionary_encode()
    numbers = maps.items[first:last].to_numpy(zero_copy_only=False).astype(float)
    which = keys.indices.to_numpy(zero_copy_only=False)
    found = {}
    for code, name in enumerate(keys.dictionary.to_pylist()):
        mine = which == code
        found[name] = np.full(n, np.nan)
        found[name][row[mine]] = numbers[mine]
    return found
