"""An aggregate, and what all readers share: conversion of units and intervals, checks of what strangers wrote."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from vernacular.core.names import displayable, quoted
from vernacular.metrics.metric import value_problem

Z_95 = NormalDist().inv_cdf(0.975)
_NAMES = {"acc": "accuracy", "em": "exact_match", "matthews_correlation": "mcc"}  # of the same metric here
STANDARD_ERROR = "_stderr"  # end of the name of a metric's standard error in lm-eval and lighteval
PROPORTIONS = ("accuracy", "exact_match", "macro_f1", "micro_f1", "f1", "token_f1", "mcc")  # at most 1


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """A value over all items of a dataset, as a file states it, in the unit of this workflow; None: not stated."""

    file: str
    tool: str
    version: str | None = None
    model: str | None = None
    task: str  # as the tool names it
    metric: str
    value: float
    higher_is_better: bool | None = None
    n: int | None = None  # items
    se: float | None = None  # standard error
    ci_low: float | None = None
    ci_high: float | None = None
    uncertainty: str | None = None  # kind of standard error or interval, as stated or converted
    shots: int | None = None
    dataset: str | None = None  # repository on the Hub, or another name of the source
    configuration: str | None = None
    split: str | None = None
    revision: str | None = None  # commit or hash
    other_items: str | None = None  # why the items are not those of the dataset


def aggregate(file: str, *, metric, value, scale: float = 1.0, **stated) -> Aggregate | str:
    """Return an aggregate; if its value is not a number, or is impossible, which value this is, for a message.

    What is stated may have any types; `scale` converts the value, its standard error and its interval.
    """
    name = own_name(text(metric) or "not stated")
    message = f"{text(stated.get('task'))}, {text(metric)}: {quoted(value)}"
    if (value := number(value, scale)) is None or value_problem(name, value, None):
        return message
    if name in PROPORTIONS and not -1 - 1e-6 <= value <= 1 + 1e-6:
        return message
    se, low, high = (number(stated.pop(key, None), scale) for key in ("se", "ci_low", "ci_high"))
    n, shots, better = (
        count(stated.pop("n", None)),
        count(stated.pop("shots", None)),
        stated.pop("higher_is_better", None),
    )
    found = {"se": None if se is None or se < 0 else se, "ci_low": None, "ci_high": None, "n": n or None}
    if None not in (low, high) and low <= value <= high:
        found |= {"ci_low": low, "ci_high": high}
    found |= {"shots": shots, "higher_is_better": better if isinstance(better, bool) else None}
    texts = {key: text(each) for key, each in stated.items()}
    texts |= {key: texts.get(key) or "not stated" for key in ("task", "tool")}
    texts |= {"version": None} if texts.get("version") in ("?", "unknown") else {}
    texts |= {"uncertainty": None} if found["se"] is None and found["ci_low"] is None else {}
    return Aggregate(file=file, metric=name, value=value, **found, **texts)


def own_name(metric: str) -> str:
    """Return the name of a metric here, by that of other tools."""
    return _NAMES.get(metric, metric)


def number(value, scale: float = 1.0) -> float | None:
    """Return a finite number; None for other types, also for numbers as text, and for integers without a float.

    >>> number(50, 0.01), number("0.5"), number(True), number(10**400), number(float("nan"))
    (0.5, None, None, None, None)
    """
    try:
        found = float(value) * scale if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count(value) -> int | None:
    """Return a count, which some formats write as text.

    >>> count(5), count("5"), count(5.0), count(True), count(-1), count("five")
    (5, 5, 5, None, None, None)
    """
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def text(value) -> str | None:
    """Return a text, or a number as text, that can be in a table; None if there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return displayable(str(value)) or None if str(value).strip() else None


def part(value, *keys: str) -> dict:
    """Return the object below keys of an object; an empty one if there is none, or it is of another type."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def parts(value) -> Iterator[tuple[str, dict]]:
    """Yield the objects in an object, by key."""
    for key, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            yield key, each


def objects(value) -> list[dict]:
    """Return the objects in a list; none if it is of another type."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
