"""A second interval for a model on some items: predictions of its values from what other models answered to all items.

Differences are not borrowed: they gain nothing from models that have the same items only.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from vernacular.comparison.label_sheets import TEXTS
from vernacular.comparison.labels import BORROWED, ESTIMATES, MISSING_SHARE, Estimated, numbers
from vernacular.core.errors import first_of, format_count
from vernacular.core.tables import finite_or_none
from vernacular.data.load import draw_key, sample
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import value_arrays
from vernacular.metrics.spans import correct_options, margin
from vernacular.statistics.labels import borrowed, labels_alone

MIN_BORROWED = 50  # own items


def borrow(
    evaluation: str,
    model: str,
    own: pa.Table,
    lenders: Mapping[str, pa.Table],
    metrics: Sequence[Metric],
    limit: int,
) -> Estimated:
    """Return a second estimate of each headline mean of a model that answered some items, from others' answers to all.

    Args:
        own: TASK_RESULTS of the model, on the items that `limit` draws.
        lenders: TASK_RESULTS of other models, on all items.
    """
    answered = {name: table for name, table in lenders.items() if table.num_rows}
    if not own.num_rows or not answered:
        return Estimated([], [f"{model}: nothing to borrow: no results of other models."])
    first = next(iter(answered.values()))
    everything = {row["item_id"]: row for row in first.select(TEXTS[:5]).to_pylist()}
    stubs = [{**row, "few_shot": False} for row in everything.values()]
    drawn = {item["item_id"] for item in sample(stubs, limit, 0)}
    texts = {row["item_id"]: row for row in own.select(TEXTS[:5]).to_pylist()}
    n, n_all = len(texts), len(everything)
    if problem := _differs(texts, everything, drawn, limit):
        return Estimated([], [f"{model}: nothing borrowed: {problem}."])
    if n >= n_all or n < MIN_BORROWED:
        few = "" if n >= n_all else f", expected {MIN_BORROWED} or more"
        return Estimated([], [f"{model}: nothing borrowed: it has {n:,} of {n_all:,} items{few}."])
    keys = {item: draw_key(item, row["cluster_id"]) for item, row in everything.items()}
    order = sorted(everything, key=lambda item: (item not in drawn, keys[item], item))
    codes = {key: code for code, key in enumerate(dict.fromkeys(keys[item] for item in order))}
    clusters = np.array([codes[keys[item]] for item in order], dtype=int)
    aligned = {name: _Aligned(table, order) for name, table in answered.items()}
    rows, names = [], ", ".join(answered)
    mine = _Aligned(own, order)
    for metric in metrics:
        values = mine.value(metric.name)
        if not metric.headline or metric.corpus or metric.of_dataset or np.isnan(values).all():
            continue
        features = [each for lender in aligned.values() for each in lender.features(metric.name)]
        if not features:
            continue
        alone = labels_alone(values, clusters)
        estimate = borrowed(values, np.stack(features, axis=1), clusters)
        is_share = metric.proportion
        low, high = alone.interval(proportion=is_share)
        n_own = int((~np.isnan(values)).sum())
        rows.append(
            dict.fromkeys(ESTIMATES.schema.names)
            | numbers(estimate, alone, is_share, paired=False)
            | {
                "model": model,
                "evaluation": evaluation,
                "metric": f"{metric.name}_{BORROWED}",
                "score": names,
                "unit": metric.unit,
                "headline": False,  # never in rankings beside full runs
                "labels_only": alone.value,
                "labels_only_low": finite_or_none(low),
                "labels_only_high": finite_or_none(high),
                "n_labels": n_own,
                "n": n_all,
                "n_missing": 0,
                "n_scored": n_all,
                "sentence": f"Estimated from {n_own:,} of {n_all:,} items and the answers of {names} to the others; "
                "run all items for a published value.",
            }
        )
    return Estimated(rows, [f"{model}: {row['metric']}: {row['sentence']}" for row in rows])


def _differs(own: Mapping[str, dict], everything: Mapping[str, dict], drawn: set[str], limit: int) -> str | None:
    """Return why a model's items are not those that a limit draws from all, or None."""
    if unknown := sorted(set(own) - set(everything)):
        return f"{format_count(len(unknown), 'item')} ({first_of(unknown)}) not among those of the other models"
    changed = sorted(
        item for item, row in own.items() if any(row[k] != everything[item][k] for k in ("choices", "gold"))
    )
    if changed:
        return f"{format_count(len(changed), 'item')} ({first_of(changed)}) with other options or another gold there"
    if other := sorted(set(own) - drawn):
        return f"the items are not those that limit: {limit} draws from all ({first_of(other)})"
    if len(drawn) - len(own) > MISSING_SHARE * len(drawn):
        return f"{len(drawn) - len(own)} of the {len(drawn)} items of the limit have no result"
    return None


class _Aligned:
    """Values of one model's items in a given order."""

    def __init__(self, table: pa.Table, order: list[str]):
        positions = {item: i for i, item in enumerate(table["item_id"].to_pylist())}
        self.rows = np.array([positions.get(item, -1) for item in order], dtype=int)
        self.values, self.table = value_arrays(table), table

    def value(self, name: str) -> np.ndarray:
        array = self.values.get(name)
        return np.full(len(self.rows), np.nan) if array is None else np.append(array, np.nan)[self.rows]

    def features(self, name: str) -> list[np.ndarray]:
        """Return the model's value of the metric and its scaled margin, as far as it has them, without gaps."""
        columns = (self.table[each].to_pylist() for each in ("option_scores", "choices", "gold"))
        margins = np.array(
            [
                np.nan
                if not scores or None in scores or (gap := margin(scores, correct_options(options, gold))) is None
                else gap
                for scores, options, gold in zip(*columns, strict=True)
            ],
            dtype=float,
        )
        found = [self.value(name)]
        if not np.isnan(margins).all() and (unit := float(np.nanmedian(np.abs(margins)))) > 0:
            found.append(np.tanh(np.clip(np.append(margins, np.nan)[self.rows] / unit, -4, 4)))
        return [np.where(np.isnan(each), np.nanmean(each), each) for each in found if not np.isnan(each).all()]
