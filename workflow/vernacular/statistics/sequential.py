"""A paired comparison that may be looked at after every cluster of items, and ended as soon as it is
decided. A bet λ on the differences d₁, d₂, … in [-1, 1], fixed beforehand, has the wealth W_t = Π (1 + λ d_s). If the
mean is 0, its expectation is at most 1, and so is that of the average over several bets. By Ville's inequality, it
reaches 1/α at any time with a probability of at most α (Waudby-Smith & Ramdas 2024, Estimating means of bounded random
variables by betting). A test that is repeated after every cluster has no such bound: it finds 40 of 100 equal models
different.

The clusters must come in an order that is independent of the differences. `hash_order` is that of `limit`, so that a
run with a larger limit continues the sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vernacular.core.fingerprint import fingerprint

ALPHA = 0.05
BETS = np.array([-0.8, -0.4, -0.2, -0.1, -0.05, 0.05, 0.1, 0.2, 0.4, 0.8])
_GRID = np.linspace(-1, 1, 2001)  # of possible means, for the confidence sequence


@dataclass(frozen=True)
class Sequential:
    """A sequential comparison of T clusters.

    Attributes:
        differences: (T,) mean difference of each cluster, in [-1, 1]
        evidence: (T,) average wealth of the bets against equality; 20 or more at any time is significant
        n_items: (T,) number of items up to each cluster
        decided: position of the first cluster at which the evidence is 1/α; None if it is nowhere
        low, high: (T,) confidence sequence: it contains the true mean at all times with a probability of 1 - α
    """

    differences: np.ndarray
    evidence: np.ndarray
    n_items: np.ndarray
    decided: int | None
    low: np.ndarray
    high: np.ndarray


def hash_order(clusters: Sequence[str], seed: int = 0) -> list[int]:
    """Return the positions of the clusters in the order in which `limit` takes them: by a hash of seed and label."""
    return sorted(range(len(clusters)), key=lambda position: fingerprint([seed, clusters[position]]))


def sequential(values: Sequence[np.ndarray], clusters: Sequence[str], *, seed: int = 0) -> Sequential:
    """Return the evidence after each cluster.

    Args:
        values: Differences of the items of each cluster, in [-1, 1].
        clusters: Their labels, in hash order.

    Raises:
        ValueError: The clusters are in another order, in which rows may be sorted by difficulty or topic; or a value is
            not in [-1, 1].
    """
    if hash_order(clusters, seed) != list(range(len(clusters))):
        raise ValueError("the clusters are not in hash order, so the evidence would depend on how the rows are sorted.")
    differences = np.array([np.mean(cluster) for cluster in values], dtype=float)
    if not (np.abs(differences) <= 1).all():
        raise ValueError("differences must be numbers from -1 to 1.")
    evidence = wealth(differences)
    reached = np.flatnonzero(evidence >= 1 / ALPHA)
    low, high = _confidence_sequence(differences)
    counts = np.cumsum([len(cluster) for cluster in values]).astype(int)
    return Sequential(differences, evidence, counts, int(reached[0]) if len(reached) else None, low, high)


def wealth(differences: np.ndarray) -> np.ndarray:
    """Return the average wealth of BETS after each difference; (..., T) of (..., T).

    >>> wealth(np.array([1.0, -1.0])).round(4).tolist()
    [1.0, 0.8295]
    """
    products = [np.cumprod(1 + bet * differences, axis=-1) for bet in BETS]
    return np.mean(products, axis=0)


def _confidence_sequence(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (T,) ends of the means that no bet has refuted so far; bets on d - m are divided by 1 + |m|."""
    low, high = np.empty(len(differences)), np.empty(len(differences))
    logs = np.zeros((len(BETS), len(_GRID)))
    scaled = BETS[:, None] / (1 + np.abs(_GRID))
    remaining = np.ones(len(_GRID), dtype=bool)
    for time, difference in enumerate(differences):
        logs += np.log1p(scaled * (difference - _GRID))
        remaining &= np.exp(logs).mean(axis=0) < 1 / ALPHA
        kept = _GRID[remaining]
        low[time], high[time] = (kept[0], kept[-1]) if len(kept) else (np.nan, np.nan)
    return low, high
