"""Confidence intervals: Wilson for proportions, also of clustered items, and a cluster bootstrap for other statistics.

Items that share a passage, a sentence or a minimal pair are not independent; resampling *clusters* with all their items
accounts for that (Miller 2024, arXiv 2411.00640). Datasets of low-resource languages have a few hundred items or fewer,
for which the plain percentile interval is too narrow; its levels are therefore expanded as in Hesterberg 2015 (arXiv
1411.5279, "expanded percentile"), which matters below about 50 clusters and vanishes above.

A statistic may be undefined in some resamples: the area under the ROC curve, if all drawn sentences are acceptable.
These are drawn again (`redrawn`), as in a bootstrap under the condition that it is defined.
"""

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit  # importing scipy.stats takes more than a second

_CELLS = 2_000_000  # maximum size of one array (16 MB as float64)
_MAX_DISTINCT = 24  # up to this many distinct clusters, counting them is faster than drawing clusters
_BITS = 20  # sums of clusters that are equal to so many binary digits (1e-6 of the sum) are counted as equal
_UNDEFINED_SHARE = 0.2  # share of resamples; see `redrawn`
_UNDEFINED = (float("nan"), float("nan"))


def wilson(successes: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion (Wilson 1927).

    `successes` may be fractional (partial credit for ties). For independent items; see `clustered_wilson` for items
    that share clusters. Returns (nan, nan) if n is 0. Raises ValueError if `successes` is not within 0..n.

    >>> low, high = wilson(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"expected successes within 0..{n}, got {successes}.")
    if n == 0:
        return _UNDEFINED
    if float(successes).is_integer():
        return _wilson_newcombe(int(successes), n, level)
    return _wilson_formula(successes, n, level)


def _wilson_newcombe(successes: int, n: int, level: float) -> tuple[float, float]:
    """Evaluate formula (3) of Newcombe 1998, bit-identical to scipy's `binomtest`."""
    z = ndtri(0.5 + 0.5 * level)
    share = successes / n
    denominator = 2 * (n + z**2)
    center = (2 * n * share + z**2) / denominator
    half_width = z / denominator * math.sqrt(4 * n * share * (1 - share) + z**2)
    low = 0.0 if successes == 0 else center - half_width
    high = 1.0 if successes == n else center + half_width
    return float(low), float(high)


def _wilson_formula(successes: float, n: float, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = successes / n
    center = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half_width = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return float(max(0.0, center - half_width)), float(min(1.0, center + half_width))


def clustered_wilson(values: np.ndarray, clusters: np.ndarray | None, *, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of the mean of binary `values` (n,), at the effective number of items.

    The effective number is p(1-p) over the between-cluster variance of p, reduced because that variance is estimated
    from few clusters (Korn & Graubard 1998), and at most n. Unlike a bootstrap interval, it has a width if all items
    are correct or all incorrect: each cluster then counts as one item. Equal to `wilson` if no items share a cluster.
    Returns (nan, nan) if there are no items, or one cluster of several.
    """
    values = np.asarray(values, dtype=float)
    n = len(values)
    codes = cluster_codes(clusters, n)
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters == n:
        return wilson(float(values.sum()), n, level)
    if n_clusters < 2:
        return _UNDEFINED
    share = float(values.mean())
    deviations = np.bincount(codes, weights=values - share, minlength=n_clusters)
    variance = n_clusters / (n_clusters - 1) * float(deviations @ deviations) / n**2
    if variance <= 1e-12 / n:  # no variation: all correct, all incorrect, or the same share in each cluster
        effective = float(n_clusters)
    else:
        tail = 0.5 + level / 2
        correction = (stdtrit(n - 1, tail) / stdtrit(n_clusters - 1, tail)) ** 2
        effective = min(n, share * (1 - share) / variance * correction)
    return _wilson_formula(share * effective, effective, level)


def wilson_at(share: float, variance: float, df: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson interval of an estimated share, at the number of items that gives its estimated variance.

    The number is reduced because the variance has `df` degrees of freedom only, and is that of the clusters (df + 1) if
    there is no variation.

    >>> low, high = wilson_at(0.6, 0.0016, 99)
    >>> round(low, 4), round(high, 4)
    (0.5191, 0.6758)
    """
    share = min(max(share, 0.0), 1.0)
    effective = float(df + 1)
    if share * (1 - share) >= 1e-9 and variance >= 1e-9:
        tail = 0.5 + level / 2
        effective = share * (1 - share) / variance * (ndtri(tail) / stdtrit(df, tail)) ** 2
    return _wilson_formula(share * effective, effective, level)


def cluster_bootstrap(
    statistic: Callable[..., np.ndarray] | None,
    arrays: list[np.ndarray],
    clusters: np.ndarray | None,
    *,
    resamples: int = 10_000,
    seed: int,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the bootstrap interval of `statistic(*arrays)`: clusters are drawn with replacement, with all their items.

    Args:
        statistic: None for the mean of the one array. Otherwise returns (k,) for arrays of shape (k, m). With clusters
            of unequal size, m differs between resamples: resamples of one m are passed together, without padding or
            weights.
        arrays: float arrays of shape (n,), one element per item; items without a value are excluded by the caller.
        clusters: n labels; None, or a missing label, makes an item its own cluster.

    Returns:
        (low, high), or (nan, nan) with fewer than two clusters, if the statistic is infinite in a resample, or if it
            is undefined in more than a fifth of them (see `redrawn`).

    Raises:
        ValueError: there is no array, or lengths differ.
    """
    arrays = [np.asarray(array, dtype=float) for array in arrays]
    if not arrays or any(array.shape != (len(arrays[0]),) for array in arrays):
        raise ValueError(f"expected one-dimensional arrays of one length, got {[a.shape for a in arrays]}.")
    if statistic is None and len(arrays) != 1:
        raise ValueError(f"expected one array for the mean, got {len(arrays)}.")
    codes = cluster_codes(clusters, len(arrays[0]))
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters < 2:
        return _UNDEFINED
    if statistic is None:
        draws = _means(arrays[0], codes, n_clusters, resamples, seed)
    else:
        rng = np.random.default_rng(seed)
        draws = redrawn(resample_statistic(statistic, arrays, codes, n_clusters, resamples, rng))
    if not np.isfinite(draws).all():
        return _UNDEFINED
    tail = expanded_tail(n_clusters, level)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


@lru_cache
def expanded_tail(n_clusters: int, level: float = 0.95) -> float:
    """Return the tail share of the expanded percentile interval: Phi(-t * sqrt(n/(n-1))), t on n-1 degrees of freedom.

    The bootstrap's spread is too small by sqrt((n-1)/n), and it uses a normal quantile where the variance is estimated.

    >>> round(expanded_tail(10), 4), round(expanded_tail(1000), 4)
    (0.0086, 0.0248)
    """
    t = stdtrit(n_clusters - 1, 0.5 + level / 2)
    return float(ndtr(-t * np.sqrt(n_clusters / (n_clusters - 1))))


def cluster_codes(clusters, n: int) -> np.ndarray:
    """Return (n,) integers 0..k-1: labels numbered in order of appearance, then one cluster per item without a label.

    >>> cluster_codes(["a", None, "a", None], 4).tolist()
    [0, 1, 0, 2]
    """
    if clusters is None:
        return np.arange(n)
    if len(clusters) != n:
        raise ValueError(f"expected {n} cluster labels, one per item, got {len(clusters)}.")
    labels = dict.fromkeys(label for label in clusters if not _missing(label))
    code_of = {label: code for code, label in enumerate(labels)}
    next_code = itertools.count(len(code_of))
    return np.array([next(next_code) if _missing(label) else code_of[label] for label in clusters], dtype=int)


def _missing(label) -> bool:
    return label is None or label != label  # NaN


def _means(values: np.ndarray, codes: np.ndarray, n_clusters: int, resamples: int, seed: int) -> np.ndarray:
    """Return (resamples,) ratio means: sums of the drawn clusters over their sizes.

    Clusters of equal sum and size are interchangeable. With few distinct ones (binary values), it suffices to draw
    how often each occurs, a multinomial. Sums that differ by rounding only (a cosine of 1 and of 1 + 1e-7) are counted
    as equal: with the counts, all draws would change.
    """
    sums = np.bincount(codes, weights=values, minlength=n_clusters)
    sizes = np.bincount(codes, minlength=n_clusters).astype(float)
    mantissas, exponents = np.frexp(sums)
    rounded = np.ldexp(np.round(mantissas * 2**_BITS), exponents) + 0.0  # + 0.0: -0.0 is 0
    kinds = np.stack([rounded, sizes])
    _, first, counts = np.unique(kinds, axis=1, return_index=True, return_counts=True)
    if len(counts) <= _MAX_DISTINCT:
        weights = _multinomial(tuple(counts.tolist()), resamples, seed)
        return weights @ sums[first] / (weights @ sizes[first])
    is_equal_size = bool((sizes == sizes[0]).all())
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    for rows in chunks(resamples, n_clusters):
        draws = rng.integers(n_clusters, size=(rows.stop - rows.start, n_clusters), dtype=np.int32)
        n_items = n_clusters * sizes[0] if is_equal_size else sizes[draws].sum(axis=1)
        means[rows] = sums[draws].sum(axis=1) / n_items
    return means


@lru_cache(maxsize=8)  # metrics of one evaluation, and evaluations of one size, have the same counts
def _multinomial(counts: tuple[int, ...], resamples: int, seed: int) -> np.ndarray:
    """Return (resamples, k) floats: how often a draw of sum(counts) clusters has each of k kinds; read-only."""
    n_clusters = sum(counts)
    shares = np.array(counts) / n_clusters
    drawn = np.random.default_rng(seed).multinomial(n_clusters, shares, size=resamples).astype(float)
    drawn.setflags(write=False)
    return drawn


def resample_statistic(statistic, arrays, codes, n_clusters: int, resamples: int, rng) -> np.ndarray:
    """Return (resamples,) values of a statistic, computed on the items of the drawn clusters.

    The same generator state and number of clusters give the same draws, also those of `paired.cluster_counts`:
    statistics of two sides, or of two evaluations of the same items, can be paired resample by resample. A number in
    0..n_clusters-1 that no item has is a cluster without items; a resample of such clusters only is NaN.
    """
    order = np.argsort(codes, kind="stable")  # the items of cluster c are order[starts[c] : starts[c] + sizes[c]]
    sizes = np.bincount(codes, minlength=n_clusters)
    starts = np.cumsum(sizes) - sizes
    unclustered = n_clusters == len(codes) and bool((sizes == 1).all())
    values = np.full(resamples, np.nan)
    for rows in chunks(resamples, len(codes)):
        draws = rng.integers(n_clusters, size=(rows.stop - rows.start, n_clusters))
        lengths = np.full(len(draws), n_clusters) if unclustered else sizes[draws].sum(axis=1)
        for length in np.unique(lengths[lengths > 0]):
            indices = np.flatnonzero(lengths == length)
            if unclustered:
                items = order[draws]
            else:
                ranges = (array[draws[indices]].ravel() for array in (starts, sizes))
                items = order[_concat_ranges(*ranges)].reshape(-1, length)
            values[rows.start + indices] = statistic(*(array[items] for array in arrays))
    return values


def redrawn(draws: np.ndarray) -> np.ndarray:
    """Return resamples (B, ...) in which undefined ones, those with a NaN in any column, are replaced by defined ones.

    The i-th undefined resample becomes the i-th defined one, in all columns, so that paired statistics stay paired.
    `draws` are returned as they are if more than a fifth is undefined. If one of the classes that a statistic needs has
    a single cluster, at least a quarter is, and no resample has the variation within that class: an interval would be
    too narrow. With two clusters, at most 14 % is.

    >>> redrawn(np.array([0.1, np.nan, 0.2, 0.3, 0.4, 0.5])).tolist()
    [0.1, 0.1, 0.2, 0.3, 0.4, 0.5]
    """
    is_undefined = np.isnan(draws).reshape(len(draws), -1).any(axis=1)
    undefined, defined = np.flatnonzero(is_undefined), np.flatnonzero(~is_undefined)
    if not len(undefined) or len(undefined) > _UNDEFINED_SHARE * len(draws):
        return draws
    draws = draws.copy()
    draws[undefined] = draws[defined[: len(undefined)]]
    return draws


def _concat_ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenate the ranges starts[i] .. starts[i]+sizes[i]-1: ([5, 0], [2, 1]) gives [5, 6, 0]."""
    offsets = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - offsets, sizes)


def chunks(rows: int, width: int, cells: int | None = None):
    """Yield slices of 0..rows, each with about `cells` numbers (by default `_CELLS`) in rows of `width`."""
    step = max(1, (cells or _CELLS) // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1 along the last axis, (…, n); equal values have their mean rank (`scipy.stats.rankdata`).

    >>> mean_ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, -1)
    differs = ordered[..., 1:] != ordered[..., :-1]
    positions = np.arange(values.shape[-1])
    edge = np.ones_like(ordered[..., :1], dtype=bool)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs], -1), positions, 0), -1)
    last = np.where(np.concatenate([differs, edge], -1), positions, positions[-1:])
    last = np.minimum.accumulate(last[..., ::-1], -1)[..., ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, -1)
    return ranks
