"""Which values of a column stand out: the best, those not told apart from it, those not told apart from chance.

Two rules. Where paired standings compare the runs of a column on the same items, those decide. Elsewhere the rule needs
no test: the best is the highest value (the lowest where lower is better), and a value whose own 95 % interval holds the
best value is not told apart from it. That one errs on the side of sharing the place less often than overlapping
intervals would; a paired comparison decides better.
"""

from collections import Counter

import numpy as np

NONE, SHARED, BEST = 0, 1, 2

Key = tuple[str, str, str]  # model, evaluation, metric


def standing(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """(R,) of NONE, SHARED or BEST for the values of one column, all arrays (R,), NaN where missing.

    Nothing stands out where neither direction is better, where fewer than two runs have a value, or where all values
    are the same. Equal bests are all BEST. A value without an interval is BEST or NONE.

    >>> standing([0.70, 0.66, 0.50, float("nan")], [0.65, 0.61, 0.45, 0], [0.75, 0.71, 0.55, 1], True).tolist()
    [2, 1, 0, 0]
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    marks = np.full(len(values), NONE)
    known = np.isfinite(values)
    if higher_is_better is None or len(np.unique(values[known])) < 2:
        return marks
    best = values[known].max() if higher_is_better else values[known].min()
    marks[known & (low <= best) & (best <= high)] = SHARED
    marks[values == best] = BEST
    return marks


def by_key(standings: list[dict] | None) -> dict[Key, dict]:
    """Rows of the standings by model, evaluation and metric."""
    return {(row["model"], row["evaluation"], row["metric"]): row for row in standings or []}


def judge(keys: list[Key | None], values, marks: np.ndarray, places: dict[Key, dict]) -> tuple[np.ndarray, np.ndarray]:
    """`marks` of one column (R,) as `standing` gave them, mended where a paired test knows better: (marks, paired).

    `keys` says whose value each is (None: no value), `paired` (R,) is True where the mark rests on `places`. A test
    decides only against the best of the whole column: runs asked otherwise than that one (other shots, seed, style)
    were not compared with it, and where the standings name another best they speak of other values.

    >>> places = by_key([
    ...     {"model": "a", "evaluation": "e", "metric": "m", "best": "a", "shares_best": True},
    ...     {"model": "b", "evaluation": "e", "metric": "m", "best": "a", "shares_best": False},
    ... ])
    >>> marks, paired = judge([("a", "e", "m"), ("b", "e", "m")], [0.7, 0.69], np.array([BEST, SHARED]), places)
    >>> marks.tolist(), paired.tolist()
    ([2, 0], [True, True])
    """
    marks, paired = marks.copy(), np.zeros(len(marks), dtype=bool)
    best = {keys[run] for run in np.flatnonzero(marks == BEST)}
    known = np.isfinite(np.asarray(values, dtype=float))
    times = Counter(keys)
    for run in np.flatnonzero(known):
        place = places.get(keys[run])
        if place is None or times[keys[run]] > 1 or (place["best"], *keys[run][1:]) not in best:
            continue
        paired[run] = True
        if marks[run] != BEST:
            marks[run] = SHARED if place["shares_best"] else NONE
    return marks, paired


def near_chance(low, high, chance) -> np.ndarray:
    """(R,) True where the interval holds the chance level: so few items do not show that the model knows anything."""
    low, high, chance = (np.asarray(array, dtype=float) for array in (low, high, chance))
    return (low <= chance) & (chance <= high)
