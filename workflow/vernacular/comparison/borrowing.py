"""A second interval for a model on some items: predictions of its values from what other models answered to all items.

Differences are not borrowed: they gain nothing from models that have the same items only.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from vernacular.comparison.align import Side, align, margins
from vernacular.comparison.labels import MISSING_SHARE, Estimated, numbers
from vernacular.comparison.schema import BORROWED, ESTIMATES
from vernacular.comparison.sheets import TEXTS
from vernacular.core.errors import first_of, format_count
from vernacular.data.load import draw_key, sample
from vernacular.metrics.metric import Metric
from vernacular.statistics.intervals import cluster_codes
from vernacular.statistics.labels import borrowed, labels_alone

MIN_BORROWED = 50  # own items


def borrow(
    evaluation: str, model: str, own: pa.Table, lenders: Mapping[str, pa.Table], metrics: Sequence[Metric], limit: int
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
    clusters = cluster_codes([keys[item] for item in order], n_all)
    items, sides = align(enumerate([own, *answered.values()]))
    mine, *others = zip(sides.values(), [own, *answered.values()], strict=True)
    positions = {item: position for position, item in enumerate(items.ids)}
    indices = np.array([positions[item] for item in order])
    rows, names = [], ", ".join(answered)
    for metric in metrics:
        values = mine[0].value(metric.name)[indices]
        if not metric.headline or metric.corpus or metric.of_dataset or np.isnan(values).all():
            continue
        features = [each for side, table in others for each in _features(side, table, metric.name, indices)]
        if not features:
            continue
        alone = labels_alone(values, clusters)
        estimate = borrowed(values, np.stack(features, axis=1), clusters)
        n_own = int((~np.isnan(values)).sum())
        rows.append(
            dict.fromkeys(ESTIMATES.schema.names)
            | numbers(estimate, alone, metric.proportion, paired=False)
            | {
                "model": model,
                "evaluation": evaluation,
                "metric": f"{metric.name}_{BORROWED}",
                "score": names,
                "unit": metric.unit,
                "headline": False,  # never in rankings beside full runs
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


def _features(side: Side, table: pa.Table, name: str, order: np.ndarray) -> list[np.ndarray]:
    """Return a model's value of a metric and its scaled margin, as far as it has them, without gaps."""
    found, own_margins = [side.value(name)[order]], margins(table)
    if not np.isnan(own_margins).all() and (unit := float(np.nanmedian(np.abs(own_margins)))) > 0:
        found.append(np.tanh(np.clip(side.of_items(own_margins)[order] / unit, -4, 4)))
    return [np.where(np.isnan(each), np.nanmean(each), each) for each in found if not np.isnan(each).all()]
