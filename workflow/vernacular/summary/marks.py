"""Marks of the best values of a column, and of values near chance.

Values are marked by one of two rules. Where paired rankings compare the models of a column on the same items, the tests
decide. Elsewhere no test is needed: the best is the highest value (the lowest if lower is better), and a value whose
own 95 % interval includes the best value counts as not significantly different. By this rule, fewer values share the
best than with overlapping intervals.
"""

from collections import Counter

import numpy as np

NONE, SHARED, BEST = 0, 1, 2

Key = tuple[str, str, str]  # model, evaluation, metric


def mark_by_interval(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """Return (R,) marks NONE, SHARED or BEST for the values of one column; all arrays (R,), NaN if missing.

    No value is marked if neither direction is better, if fewer than two models have a value, or if all values are
    equal. Equal best values are all BEST. A value without an interval is BEST or NONE.

    >>> mark_by_interval([0.70, 0.66, 0.50, float("nan")], [0.65, 0.61, 0.45, 0], [0.75, 0.71, 0.55, 1], True).tolist()
    [2, 1, 0, 0]
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    marks = np.full(len(values), NONE)
    finite = np.isfinite(values)
    if higher_is_better is None or len(np.unique(values[finite])) < 2:
        return marks
    best = values[finite].max() if higher_is_better else values[finite].min()
    marks[finite & (low <= best) & (best <= high)] = SHARED
    marks[values == best] = BEST
    return marks


def index_rankings(rankings: list[dict] | None) -> dict[Key, dict]:
    """Index RANKINGS rows by model, evaluation and metric."""
    return {(row["model"], row["evaluation"], row["metric"]): row for row in rankings or []}


def mark_by_test(
    keys: list[Key | None], values, marks: np.ndarray, rankings: dict[Key, dict]
) -> tuple[np.ndarray, np.ndarray]:
    """Replace the `marks` (R,) of `mark_by_interval` where a paired test is available; return (marks, paired).

    `keys` identifies each value (None: no value); `paired` (R,) is True where the mark comes from `rankings`. A
    test applies only against the best of the entire column: rankings with another best refer to other values.

    >>> rankings = index_rankings([
    ...     {"model": "a", "evaluation": "e", "metric": "m", "best": "a", "in_best_group": True},
    ...     {"model": "b", "evaluation": "e", "metric": "m", "best": "a", "in_best_group": False},
    ... ])
    >>> keys = [("a", "e", "m"), ("b", "e", "m")]
    >>> marks, paired = mark_by_test(keys, [0.7, 0.69], np.array([BEST, SHARED]), rankings)
    >>> marks.tolist(), paired.tolist()
    ([2, 0], [True, True])
    """
    marks, paired = marks.copy(), np.zeros(len(marks), dtype=bool)
    best = {keys[row] for row in np.flatnonzero(marks == BEST)}
    finite = np.isfinite(np.asarray(values, dtype=float))
    key_counts = Counter(keys)
    for row in np.flatnonzero(finite):
        ranking = rankings.get(keys[row])
        if ranking is None or key_counts[keys[row]] > 1 or (ranking["best"], *keys[row][1:]) not in best:
            continue
        paired[row] = True
        if marks[row] != BEST:
            marks[row] = SHARED if ranking["in_best_group"] else NONE
    return marks, paired


def near_chance(low, high, chance) -> np.ndarray:
    """Return (R,) True if the interval includes the chance level: not distinguishable from chance with these items."""
    low, high, chance = (np.asarray(array, dtype=float) for array in (low, high, chance))
    return (low <= chance) & (chance <= high)
