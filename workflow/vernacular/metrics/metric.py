"""The vocabulary of the metrics stage: what a metric is, whatever computes it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Metric:
    """One number per evaluation, made of per-item values.

    Without `corpus` it is the mean of the items' `values[name]` over the items that have it. With `corpus` it is
    `corpus(*arrays)`, one float array (n items) per name in `needs`, items lacking any of them left out; arrays of
    shape (resamples, n) give (resamples,) where `vectorised`, so that a bootstrap costs one call.
    """

    name: str
    unit: str  # "share", "nats", "bits", "percent", "cosine", "score"
    higher_is_better: bool | None  # None: neither direction is better
    family: str  # "similarity" or "surprisal": the spreadsheet it stands in
    proportion: bool = False  # per-item values are 0 or 1: Wilson interval
    headline: bool = False  # stands in the leaderboard
    corpus: Callable[..., np.ndarray] | None = None
    needs: tuple[str, ...] = ()
    vectorised: bool = False
    about: str = ""  # one line for the reader, with the paper or tool the formula comes from
