"""Consistency of a model between two languages, on items with the same IDs: orders of the options, and choices.

Accuracy alone raises each measure, so that three stand beside each other, with the value of unrelated answers: RankC of
the orders (Qi, Fernández & Bisazza 2023, arXiv 2310.10378), agreement of the choices where both are incorrect, and the
share of items correct there that are correct here. Each is a mean over some of the items; clusters of items are drawn
once for all columns, so that two models are compared on the same draws.
"""

from dataclasses import dataclass

import numpy as np

from vernacular.statistics import paired
from vernacular.statistics.curves import percentile_interval
from vernacular.statistics.intervals import expanded_tail, redrawn

RESAMPLES = 2_000


def rank_c(scores: np.ndarray, other: np.ndarray, *, tie: float = 0.0) -> np.ndarray:
    """Return the overlap of two orders of N options by their scores: (n, N), (n, N) -> (n,).

    Sum over j of w_j |first j here and there| / j with w_j = e^(N-j) / sum over k of e^(N-k). Options within `tie` of
    each other share their places in both orders, so that equal scores have 1.

    >>> a, b, c = 3.0, 2.0, 1.0
    >>> rank_c(np.array([[a, b, c], [a, b, c]]), np.array([[a, c, b], [b, a, c]])).round(4).tolist()
    [0.8776, 0.3348]
    """
    n_options = scores.shape[1]
    overlaps = np.minimum(_memberships(scores, tie), _memberships(other, tie)).sum(1)
    return overlaps / np.arange(1, n_options + 1) @ _weights(n_options)


def unrelated_rank_c(n_options: int) -> float:
    """Return the mean of `rank_c` of unrelated orders: of the first j of N options, j^2 / N are common.

    >>> round(unrelated_rank_c(4), 4)
    0.3768
    """
    return float(_weights(n_options) @ np.arange(1, n_options + 1) / n_options)


def _weights(n_options: int) -> np.ndarray:
    weights = np.exp(-np.arange(n_options, dtype=float))
    return weights / weights.sum()


def _memberships(scores: np.ndarray, tie: float) -> np.ndarray:
    """Return how much of an option is among the first j: (n, N) -> (n, N options, N numbers j)."""
    left, right = scores[:, :, None], scores[:, None, :]
    with np.errstate(invalid="ignore"):  # -inf - -inf
        equal = (left == right) | (np.abs(left - right) <= tie)
    n_before, n_equal = ((right > left) & ~equal).sum(2), equal.sum(2)
    places = np.arange(1, scores.shape[1] + 1)
    return np.clip((places - n_before[..., None]) / n_equal[..., None], 0, 1)


@dataclass(frozen=True)
class Means:
    """Means of columns of values with joint resamples of the clusters of items, all (c,) but `draws`."""

    value: np.ndarray  # NaN without values
    n: np.ndarray  # items with a value
    n_clusters: np.ndarray
    draws: np.ndarray  # (R, c)

    def interval(self, column: int) -> tuple[float, float]:
        """Return the 95 % interval of a mean; NaN without spread, or if it is undefined too often."""
        draws = redrawn(self.draws[:, column]) if self.n_clusters[column] > 1 else np.zeros(0)
        if not len(draws) or not np.ptp(draws) > 0:
            return float("nan"), float("nan")
        return percentile_interval(draws, expanded_tail(int(self.n_clusters[column])))

    def difference(self, baseline: int, candidate: int) -> tuple[float, float, float, float]:
        """Return a difference of two columns, its interval and the p of 0, from the draws that both share."""
        value = float(self.value[candidate] - self.value[baseline])
        n_clusters = int(min(self.n_clusters[baseline], self.n_clusters[candidate]))
        draws = self.draws[:, candidate] - self.draws[:, baseline]
        return value, *paired.corpus_difference(value, draws, n_clusters)[:3]


def means(values: np.ndarray, codes: np.ndarray) -> Means:
    """Return the means of `values` (n, c), NaN where an item does not enter; `codes` (n,): clusters 0..k-1."""
    known = ~np.isnan(values)
    sums, sizes = (paired.cluster_sums(each, codes) for each in (np.where(known, values, 0.0), known.astype(float)))
    n, n_clusters = sizes.sum(0), (sizes > 0).sum(0)
    draws = paired.resample_means(sums, sizes, paired.cluster_counts(len(sums), RESAMPLES, 0))
    with np.errstate(invalid="ignore"):
        return Means(sums.sum(0) / n, n.astype(int), n_clusters, draws)
