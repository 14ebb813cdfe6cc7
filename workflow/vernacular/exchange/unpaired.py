"""Values from outside without items, beside those of this run: unpaired, and never ranked.

A name identifies no items. Values are of the same items only if dataset, configuration, split, revision, shots, metric
and number of items are stated, and equal those of this run; then they are compared as two independent values, which
is conservative: on the same items, they usually correlate. Others are listed as of other items, beside none.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.exchange.aggregates import Z_95, Aggregate
from vernacular.metrics.schema import float_columns, text_columns

SAME, OTHER = "same items", "other items"
_NAMES = ("dataset", "configuration", "split", "metric", "shots", "dataset revision", "number of items")
_SHARES = ("accuracy", "exact_match")  # in percent, as they are beside values of this run
_OUTSIDE = {"model": "outside_model", "task": "outside_task", "value": "outside_value", "se": "outside_se"}
_OUTSIDE |= {"ci_low": "outside_low", "ci_high": "outside_high", "n": "outside_n", "revision": "dataset_revision"}

# results/compared/unpaired.parquet, copied to results/summary/: a row per value from outside and model of this run on
# the same items; without any, a row
UNPAIRED = Kind(
    "unpaired",
    [
        *text_columns("origin", "file", "tool", "version", "outside_model", "outside_task"),
        ("metric", pa.string()),
        ("unit", pa.string()),
        ("higher_is_better", pa.bool_()),
        *float_columns("outside_value", "outside_se", "outside_low", "outside_high"),
        ("uncertainty", pa.string()),  # kind of the standard error or interval, as stated or converted
        ("outside_n", pa.int64()),
        ("shots", pa.int64()),
        *text_columns("dataset", "configuration", "split", "dataset_revision"),
        *text_columns("items", "note"),  # "same items", or "other items" and why
        *text_columns("model", "evaluation"),  # of this run
        *float_columns("value", "ci_low", "ci_high"),
        ("n", pa.int64()),
        *float_columns("difference", "difference_low", "difference_high"),  # value - outside_value
        *float_columns("z", "p_value"),  # two-sided, of two independent values; uncorrected
    ],
    key=(),
    required=("outside_value",),
    is_public=True,
)


def independent(first: float, first_se: float, second: float, second_se: float) -> dict[str, float]:
    """Return `difference` (second - first), its 95 % interval, z, and the two-sided p, of two independent values.

    >>> found = independent(0.60, 0.02, 0.64, 0.02)
    >>> [round(found[name], 3) for name in ("z", "p_value", "difference_low", "difference_high")]
    [1.414, 0.157, -0.015, 0.095]
    """
    difference, se = second - first, math.hypot(first_se, second_se)
    found = {"difference": difference, "difference_low": difference - Z_95 * se}
    found["difference_high"] = difference + Z_95 * se
    if se == 0:
        return found
    z = difference / se
    return found | {"z": z, "p_value": 2 * NormalDist().cdf(-abs(z))}


def unpaired_rows(origin: str, aggregates: Iterable[Aggregate], values: Iterable[dict]) -> list[dict]:
    """Return rows per UNPAIRED of one entry of `external_results:`.

    `values`: METRICS rows over all items of the models it is compared with, with dataset, configuration, split, shots
    and revision, which identify the items.
    """
    index: dict[tuple, dict] = {(): {}}  # what identifies items, in order -> values of this run by what is next
    for own in values:
        identity = _identity(own)
        for depth, part in enumerate(identity):
            index.setdefault(identity[:depth], {}).setdefault(part, []).append(own)
    rows = []
    for outside in aggregates:
        row = dict.fromkeys(UNPAIRED.schema.names) | {"origin": origin}
        row |= {"unit": "share" if outside.metric in _SHARES else None}
        row |= {_OUTSIDE.get(name, name): value for name, value in vars(outside).items() if name != "other_items"}
        same, note = ([], outside.other_items) if outside.other_items else _same(_identity(vars(outside)), index)
        rows += [row | {"items": SAME} | _compared(outside, own) for own in same]
        rows += [] if same else [row | {"items": OTHER, "note": note}]
    return rows


def _identity(of: dict) -> tuple:
    names = ("dataset", "configuration", "split", "metric", "shots", "revision", "n")
    return tuple((of[name] or "default") if name == "configuration" else of[name] for name in names)


def _same(identity: tuple, index: Mapping[tuple, dict]) -> tuple[list[dict], str]:
    """Return the values of this run with the same identity; if there are none, what is not known to be equal."""
    if not index[()]:
        return [], "no value to compare"
    for depth, (name, stated) in enumerate(zip(_NAMES, identity, strict=True)):
        known = index[identity[:depth]]
        if stated is None:
            return [], f"{name} not stated"
        if stated not in known:
            here = next((each for each in known if each is not None), None)
            return [], f"{name} of this run not known" if here is None else f"{name}: {stated}, here {here}"
    return known[stated], ""


def _compared(outside: Aggregate, own: dict) -> dict:
    names = ("model", "evaluation", "unit", "higher_is_better", "value", "ci_low", "ci_high", "n")
    row = {name: own[name] for name in names} | {"difference": own["value"] - outside.value}
    if None in (outside.se, own["ci_low"], own["ci_high"]):
        return row | {"note": "no standard error: not compared"}
    return row | independent(outside.value, outside.se, own["value"], (own["ci_high"] - own["ci_low"]) / (2 * Z_95))
