"""The sides of a comparison as columns: one evaluation of several models, items in the same order.

A model's rows are its TASK_RESULTS; the map of values becomes one float array per name, NaN where an item lacks it.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table


@dataclass(frozen=True)
class Side:
    """One model's rows of the evaluation, laid out over all N items that any side has."""

    has: np.ndarray  # (N,) bool: there is a row
    text: np.ndarray  # (N,) int: number of the item's prompt, options and right answers; -1 without a row
    values: dict[str, np.ndarray]  # metric's or ingredient's name -> (N,) float

    def value(self, name: str) -> np.ndarray:
        found = self.values.get(name)
        return np.full(len(self.has), np.nan) if found is None else found

    def needed(self, metric: Metric) -> list[np.ndarray]:
        """The arrays (N,) that the metric is made of."""
        return [self.value(name) for name in (metric.needs if metric.corpus else (metric.name,))]

    def known(self, metric: Metric) -> np.ndarray:
        """(N,) items that enter the metric."""
        return ~np.isnan(self.needed(metric)).any(axis=0)


@dataclass(frozen=True)
class Items:
    """What all sides share: the items by id, in an order that depends on nothing but the ids."""

    ids: list[str]  # (N,)
    clusters: np.ndarray  # (N,) labels, None where an item stands alone
    categories: np.ndarray  # (N,) labels or None
    chance: np.ndarray  # (N,) share of right options among those offered; NaN where there are none


def align(tables: dict[str, pa.Table]) -> tuple[Items, dict[str, Side]]:
    """All sides of one evaluation over the union of their items. Cluster and category are the first side's that has."""
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
        asked = [table.column(name).to_pylist() for name in ("prompt", "options", "gold")]
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
    """The column of maps as one array (n,) per key, without making a Python object per number."""
    maps = table.column("values").combine_chunks()
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
