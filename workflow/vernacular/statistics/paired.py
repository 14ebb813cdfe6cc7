"""Paired comparison on the same items: differences, intervals and tests for many columns at once.

Items that share a cluster are resampled together: the bootstrap draws clusters, a permutation exchanges the two sides
of a cluster. Both are one matrix product, draws (resamples, clusters) times cluster sums (clusters, columns), so all
pairs of models and all metrics of an evaluation use the same draws.

Both tests assume that the sides are exchangeable within a cluster; if only the means are equal, they are valid
asymptotically in the number of clusters:

* binary metrics: the exact distribution of the net gain when each cluster's gain keeps its size and has a random sign,
  as mid-p. If no items share a cluster, this *is* the exact McNemar mid-p test (Fagerland, Lydersen & Laake 2013, doi
  10.1186/1471-2288-13-91); otherwise, McNemar's test would count k copies of one output as k outputs.
* other means: the same with sampled signs (sign-flip permutation), p = (1 + as extreme) / (1 + permutations) (Phipson &
  Smyth 2010, doi 10.2202/1544-6115.1585). No p is below 1 / (1 + permutations).

Corpus statistics (`metrics.metric.Metric.corpus`) are not means over items, and exchanging items between models whose
values have different scales would change what they measure. Their test is the difference over its bootstrap standard
error, Student's t with clusters - 1 degrees of freedom.

Multiple tests are corrected by Holm's method; models share a rank if no test separates them.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.special import stdtr, stdtrit

from vernacular.statistics.intervals import chunks, expanded_tail, redrawn
from vernacular.statistics.significance import ALPHA

_CELLS = 4_000_000  # maximum size of one float array (32 MB)
_COLUMNS = 256  # maximum number of columns processed together
_RESOLUTION = 1e-6  # relative
POWER = 0.8


@dataclass(frozen=True)
class Differences:
    """Results per column, all (c,); NaN if undefined."""

    value: np.ndarray  # mean difference
    low: np.ndarray  # 95 % interval
    high: np.ndarray
    p: np.ndarray  # two-sided
    se: np.ndarray  # standard error of the difference
    n_clusters: np.ndarray  # number of clusters with a value


def item_differences(candidate: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """Return candidate - baseline of arrays of one shape; 0 if float32 does not resolve it (1e-6 of the larger value).

    The same response has a cosine that differs by 1e-8 if it was embedded beside other texts. Tests use ranks and
    signs, so that items that differ by rounding only would be an observation like any other.

    >>> candidate, baseline = np.array([0.9 + 2e-8, 0.9, np.nan, np.inf]), np.array([0.9, 0.8, 0.1, np.inf])
    >>> item_differences(candidate, baseline).round(3).tolist()
    [0.0, 0.1, nan, nan]
    """
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = candidate - baseline
        is_rounding = np.abs(difference) <= _RESOLUTION * np.maximum(np.abs(candidate), np.abs(baseline))
    return np.where(is_rounding & np.isfinite(difference), 0.0, difference)


def is_binary(*sides: np.ndarray) -> bool:
    """Return whether all known values are 0 or 1; means of several samples of an item are not."""
    return all(np.isin(side[~np.isnan(side)], (0, 1)).all() for side in sides)


def mean_differences(
    differences: np.ndarray, codes: np.ndarray, binary: np.ndarray, *, resamples: int, seed: int
) -> Differences:
    """Compute mean, interval and test of each column of `differences` (n, c); NaN marks an item without a value.

    `codes` (n,) holds the cluster of each item, 0..k-1. `binary` (c,) selects the exact test, for columns with
    differences of -1, 0 and 1.
    """
    known = ~np.isnan(differences)
    sums = cluster_sums(np.where(known, differences, 0.0), codes)
    sizes = cluster_sums(known.astype(float), codes)
    total, n = sums.sum(0), sizes.sum(0)
    n_clusters = (sizes > 0).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = total / n
        squares = value * sizes  # in place: each array has 64 MB for many items, pairs and metrics
        np.square(np.subtract(sums, squares, out=squares), out=squares)
        se = np.sqrt(n_clusters / (n_clusters - 1) * squares.sum(0)) / n
    del squares, known
    se[n_clusters < 2] = np.nan
    low, high = _intervals(sums, sizes, n_clusters, resamples, seed)
    p = np.full(len(value), np.nan)
    testable = n_clusters >= 2
    for column in np.flatnonzero(testable & binary):
        p[column] = exact_sign_flip(sums[:, column])
    if (non_binary := np.flatnonzero(testable & ~binary)).size:
        p[non_binary] = random_sign_flip(sums[:, non_binary], permutations=resamples, seed=seed)
    return Differences(value, low, high, p, se, n_clusters)


def corpus_difference(value: float, draws: np.ndarray, n_clusters: int) -> tuple[float, float, float, float]:
    """Return (low, high, p, standard error) of a difference of corpus statistics from its paired `draws` (resamples,).

    The interval is the difference ± t standard errors, so it includes 0 exactly if p is above 0.05. All NaN with fewer
    than two clusters, or if a side is undefined in more than a fifth of the resamples (`intervals.redrawn`). Constant
    draws have no spread: no interval, and p is 1 if the difference is 0.
    """
    draws = redrawn(draws)
    if n_clusters < 2 or not np.isfinite(value) or not np.isfinite(draws).all():
        return (float("nan"),) * 4
    if np.ptp(draws) == 0:
        return float("nan"), float("nan"), t_test(value, 0.0, n_clusters - 1), 0.0
    se = float(draws.std(ddof=1) * np.sqrt(n_clusters / (n_clusters - 1)))
    half_width = se * t_quantile(1 - ALPHA / 2, n_clusters - 1)
    return value - half_width, value + half_width, t_test(value, se, n_clusters - 1), se


def t_test(value: float, se: float, df: float) -> float:
    """Return the two-sided p of the value 0 by Student's t; without spread, 1 if the value is 0, and NaN otherwise."""
    if not np.isfinite(se) or not np.isfinite(value):
        return float("nan")
    if se == 0:
        return 1.0 if value == 0 else float("nan")
    return float(2 * stdtr(df, -abs(value) / se))


def minimum_detectable_difference(se: float, df: float) -> float:
    """Return the minimum detectable difference at a power of 0.8, at 0.05 without Holm; NaN if unknown.

    (t(0.975) + t(0.8)) standard errors (Miller 2024, arXiv 2411.00640, with Student's t for few clusters), assuming the
    observed spread of the differences. If no item differs, the spread is unknown.

    >>> round(minimum_detectable_difference(0.02, 10_000), 4)
    0.056
    """
    if not df > 0 or not se > 0:
        return float("nan")
    return float((t_quantile(1 - ALPHA / 2, df) + t_quantile(POWER, df)) * se)


@lru_cache
def t_quantile(share: float, df: float) -> float:
    """Return a quantile of Student's t."""
    return float(stdtrit(df, share))


def exact_sign_flip(gains: np.ndarray) -> float:
    """Return the two-sided mid-p of the sum of integer `gains` (one per cluster) under random signs.

    The null distribution is computed exactly. With gains of -1 and 1 only, this is McNemar's test.

    >>> round(exact_sign_flip([1, 1, 1, 1, 1, -1]), 4)  # 1 of 6 coins: 2 P(X <= 1) - P(X = 1) = 14/64 - 6/64
    0.125
    >>> exact_sign_flip([5, 0, 0]), exact_sign_flip([1, -1]), exact_sign_flip([0, 0])
    (0.5, 1.0, 1.0)
    """
    gains = np.rint(np.asarray(gains)).astype(int)
    observed = abs(int(gains.sum()))
    if observed == 0:
        return 1.0
    steps, counts = np.unique(np.abs(gains[gains != 0]), return_counts=True)
    null = np.ones(1)  # null[i] = P(sum = i - center), center = (len - 1) / 2
    for step, count in zip(steps, counts, strict=True):
        step_null = np.zeros(2 * step * count + 1)
        step_null[:: 2 * step] = _fair_binomial(int(count))
        null = np.convolve(null, step_null)
    center = len(null) // 2
    more_extreme, as_extreme = null[center + observed + 1 :].sum(), null[center + observed]
    return float(2 * more_extreme + as_extreme)


def _fair_binomial(n: int) -> np.ndarray:
    """Return (n + 1,) probabilities of each number of heads of n coins, by their ratios from the middle outward.

    >>> _fair_binomial(3).tolist(), _fair_binomial(4).tolist()
    ([0.125, 0.375, 0.375, 0.125], [0.0625, 0.25, 0.375, 0.25, 0.0625])
    """
    more = np.arange((n + 1) // 2, n)
    upper = np.cumprod(np.append(1.0, (n - more) / (more + 1)))
    ratios = np.append(upper[::-1], upper[1 - n % 2 :])
    return ratios / ratios.sum()


def random_sign_flip(sums: np.ndarray, *, permutations: int, seed: int) -> np.ndarray:
    """Return (c,) two-sided p of the sum of each column of `sums` (k, c) under random signs of the k clusters."""
    k = len(sums)
    observed = np.abs(sums.sum(0))
    slack = 1e-9 * np.abs(sums).sum(0)  # equal up to rounding counts as equally extreme
    rng = np.random.default_rng([seed, 1])  # independent of the bootstrap's draws
    n_extreme = np.zeros(sums.shape[1])
    for rows in chunks(permutations, k, _CELLS):
        signs = 2.0 * rng.integers(2, size=(rows.stop - rows.start, k), dtype=np.int8) - 1.0
        for columns in chunks(sums.shape[1], 1, _COLUMNS):
            flipped = np.abs(signs @ sums[:, columns])
            n_extreme[columns] += (flipped >= observed[columns] - slack[columns]).sum(0)
    return (1 + n_extreme) / (1 + permutations)


def cluster_sums(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Sum the rows of each cluster: (n, c) -> (k, c).

    >>> cluster_sums(np.array([[1.0], [2.0], [4.0]]), np.array([0, 1, 0])).tolist()
    [[5.0], [2.0]]
    """
    n, k = len(codes), int(codes.max(initial=-1)) + 1
    if k == n:  # each item is its own cluster
        return values[np.argsort(codes)]
    return sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(k, n)) @ values


@lru_cache(maxsize=2)  # the evaluations of a run have few distinct sizes; 50 to 70 MB each
def cluster_counts(k: int, resamples: int, seed: int) -> np.ndarray:
    """Return (resamples, k) counts of each of k clusters in draws of k with replacement; read-only.

    The draws are those of `intervals.resample_statistic` for a generator with the same seed.
    """
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, k), dtype=np.uint8)  # a count above 255 has a probability of 1e-500
    for rows in chunks(resamples, k, _CELLS):
        n_rows = rows.stop - rows.start
        draws = rng.integers(k, size=(n_rows, k)) + k * np.arange(n_rows)[:, None]
        counts[rows] = np.bincount(draws.ravel(), minlength=n_rows * k).reshape(n_rows, k)
    counts.setflags(write=False)
    return counts


def resample_means(sums: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return (resamples, c) ratio means of drawn clusters; NaN if none of a column's items were drawn.

    sums, sizes (k, c): each cluster's sum of values, and number of items with a value; counts (resamples, k).
    """
    positions: dict[bytes, int] = {}  # most columns share their items
    inverse = [positions.setdefault(column.tobytes(), len(positions)) for column in sizes.T]
    unique_sizes = np.stack([np.frombuffer(column, sizes.dtype) for column in positions], axis=1)
    means = np.empty((len(counts), sums.shape[1]))
    for rows in chunks(len(counts), len(sums), _CELLS):
        weights = counts[rows].astype(float)
        with np.errstate(invalid="ignore"):
            means[rows] = (weights @ sums) / (weights @ unique_sizes)[:, inverse]
    return means


def _intervals(sums, sizes, n_clusters, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return percentile intervals at expanded levels; NaN for columns without spread or with fewer than two clusters.

    If a resample contains none of a column's items, only the clusters with a value in that column are drawn.
    """
    n_columns = sums.shape[1]
    low, high = np.full(n_columns, np.nan), np.full(n_columns, np.nan)
    counts = cluster_counts(len(sums), resamples, seed) if len(sums) >= 2 else None
    for columns in chunks(n_columns, 1, _COLUMNS):
        testable = np.arange(columns.start, columns.stop)[n_clusters[columns] >= 2]
        if not testable.size:
            continue
        own_sizes = sizes if testable.size == n_columns else sizes[:, testable]
        draws = resample_means(sums[:, testable], own_sizes, counts)
        for column, column_draws in zip(testable, draws.T, strict=True):
            if np.isnan(column_draws).any():
                mask = sizes[:, column] > 0
                own_counts = cluster_counts(int(mask.sum()), resamples, seed)
                column_draws = resample_means(sums[mask, column, None], sizes[mask, column, None], own_counts)[:, 0]
            if np.ptp(column_draws) > 1e-12 * np.abs(column_draws).max():
                tail = expanded_tail(int(n_clusters[column]))
                low[column], high[column] = np.quantile(column_draws, [tail, 1 - tail])
    return low, high
