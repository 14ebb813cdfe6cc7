"""Many tests at once: Holm's correction, and places in a column that are shared where nothing tells models apart."""

import numpy as np
from statsmodels.stats.multitest import multipletests


def holm(p_values) -> np.ndarray:
    """(m,) adjusted p-values of one family (Holm 1979); NaN is no test: it stays NaN and does not count.

    >>> holm([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    p_values = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p_values), np.nan)
    if (known := ~np.isnan(p_values)).any():
        adjusted[known] = multipletests(p_values[known], method="holm")[1]
    return adjusted


def places(better: np.ndarray) -> np.ndarray:
    """(m,) 1 + how many models are significantly better; better[i, j]: i is better than j.

    >>> places(np.array([[False, False, True], [False, False, False], [False, False, False]])).tolist()
    [1, 1, 2]
    """
    return 1 + np.asarray(better, dtype=bool).sum(axis=0)
