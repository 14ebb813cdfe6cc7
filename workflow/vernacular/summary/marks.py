"""Which values of a column stand out: the best, those not told apart from it, those not told apart from chance.

The rule is simple and needs no paired test: the best is the highest value (the lowest where lower is better), and a
value whose own 95 % interval holds the best value is not told apart from it. It errs on the side of sharing the place
less often than overlapping intervals would; a paired comparison on the same items decides better.
"""

import numpy as np

NONE, SHARED, BEST = 0, 1, 2


def standing(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """(R,) of NONE, SHARED or BEST for the values of one column, all arrays (R,), NaN where missing.

    Nothing stands out where neither direction is better, or where fewer than two runs have a value. Equal bests are all
    BEST. A value without an interval is BEST or NONE.

    >>> standing([0.70, 0.66, 0.50, float("nan")], [0.65, 0.61, 0.45, 0], [0.75, 0.71, 0.55, 1], True).tolist()
    [2, 1, 0, 0]
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    marks = np.full(len(values), NONE)
    known = np.isfinite(values)
    if higher_is_better is None or known.sum() < 2:
        return marks
    best = values[known].max() if higher_is_better else values[known].min()
    marks[known & (low <= best) & (best <= high)] = SHARED
    marks[values == best] = BEST
    return marks


def near_chance(low, high, chance) -> np.ndarray:
    """(R,) True where the interval holds the chance level: so few items do not show that the model knows anything."""
    low, high, chance = (np.asarray(array, dtype=float) for array in (low, high, chance))
    return (low <= chance) & (chance <= high)
