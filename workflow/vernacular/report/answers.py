"""What one model did with each item of an evaluation: right or wrong, by how much, and how bad that is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# How an item came out. The last two are no judgement: which sort of sentence it is, where sentences are only scored.
WRONG, RIGHT, TIE, UNJUDGED, ACCEPTABLE, UNACCEPTABLE = range(6)

MARGIN = "margin"  # best right option's score minus best wrong one's


@dataclass(frozen=True)
class Answers:
    """One model's items of one evaluation, all lists n items long, in the order of its rows."""

    item_ids: list[str]
    outcomes: list[int]
    measure: str | None  # the per-item value that items are sorted by and whose distribution is drawn
    higher_is_better: bool
    measured: list[float | None]  # that value
    badness: list[float | None]  # higher = worse; what "worst first" sorts by
    flagged: list[bool]


def judged(rows: list[dict]) -> Answers:
    """Read the rows of a task-results file (maps as dicts)."""
    outcomes = [_outcome(row) for row in rows]
    measure, higher, measured = _measure(rows)
    return Answers(
        [row["item_id"] for row in rows],
        outcomes,
        measure,
        higher,
        measured,
        _badness(outcomes, measured, higher),
        [row["flag"] is not None for row in rows],
    )


def margin(row: dict) -> float | None:
    """Best right option's score minus best wrong option's; None where either is missing.

    >>> margin({"option_scores": [-3.0, -1.0, None], "gold": [0]})
    -2.0
    """
    scores, gold = row["option_scores"] or [], set(row["gold"])
    right = [score for i, score in enumerate(scores) if i in gold and _finite(score)]
    wrong = [score for i, score in enumerate(scores) if i not in gold and _finite(score)]
    return max(right) - max(wrong) if right and wrong else None


def _outcome(row: dict) -> int:
    if row["correct"] is not None:
        return RIGHT if row["correct"] else TIE if row["tie"] else WRONG
    label = row["values"].get("label")
    if label is not None:
        return ACCEPTABLE if label else UNACCEPTABLE
    return UNJUDGED


def _measure(rows: list[dict]) -> tuple[str | None, bool, list[float | None]]:
    margins = [margin(row) for row in rows]
    if any(value is not None for value in margins):
        return MARGIN, True, margins
    # sentences differ in length: per token where that is known
    for name, higher in (("chrf", True), ("surprisal_token", False), ("surprisal", False)):
        values = [row["values"].get(name) for row in rows]
        if any(map(_finite, values)):
            return name, higher, [value if _finite(value) else None for value in values]
    return None, True, [None] * len(rows)


def _badness(outcomes: list[int], measured: Iterable, higher: bool) -> list[float | None]:
    """An unacceptable sentence is the worse the less it surprises; all else the worse the worse its value is."""
    values = np.array([np.nan if value is None else value for value in measured], dtype=float)
    middle = np.nanmedian(values) if np.isfinite(values).any() else 0.0
    bad = middle - values if higher else values - middle
    bad = np.where(np.array(outcomes) == UNACCEPTABLE, -bad, bad)
    # whatever is wrong stands before whatever is right, by margins also between them
    return [float(value) if np.isfinite(value) else None for value in bad]


def _finite(value) -> bool:
    return value is not None and math.isfinite(value)
