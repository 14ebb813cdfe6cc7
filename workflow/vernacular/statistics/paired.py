"""Is one side better than the other on the same items? Differences, their intervals and tests, many columns at once.

Items that share a cluster go together: a resample draws clusters, a permutation exchanges the two sides of a whole
cluster. Both are then one matrix product, draws (resamples, clusters) times cluster sums (clusters, columns), so that
all pairs of models and all metrics of an evaluation are done on the same draws at once.

Two tests, both of "the sides could be exchanged within a cluster" and valid as the number of clusters grows where only
the means are equal:

* right/wrong: the exact distribution of the net gain when each cluster's gain keeps its size and takes its sign by a
  coin, as mid-p. Where no items share a cluster this *is* the exact McNemar mid-p test (Fagerland, Lydersen & Laake
  2013, doi 10.1186/1471-2288-13-91); where they do, McNemar would take k copies of one answer for k answers.
* any other mean: the same by random signs (sign-flip permutation), p = (1 + as far out) / (1 + permutations)
  (Phipson & Smyth 2010, doi 10.2202/1544-6115.1585). No p is below 1 / (1 + permutations).

Corpus statistics (`metrics.types.Metric.corpus`) are no means of items, and exchanging items between models whose
values have different scales would change what they measure: their test is the difference over its bootstrap standard
error, Student's t on clusters - 1 degrees of freedom.

Many tests at once get Holm's correction, and ranks are shared where no test tells models apart.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.special import stdtr, stdtrit

from vernacular.statistics.intervals import chunks, expanded_tail


def holm(p_values) -> np.ndarray:
    """(m,) adjusted p-values of one family (Holm 1979); NaN is no test: it stays NaN and does not count.

    The i-th smallest p times m - i + 1, never below the one before it, never above 1. As statsmodels' `multipletests`
    has it, which collects garbage at every call: a second for the hundreds of families of a few models.

    >>> holm([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    p_values = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p_values), np.nan)
    order = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN sorts last
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps * p_values[order]), 1)
    return adjusted


def places(better: np.ndarray) -> np.ndarray:
    """(m,) 1 + how many models are significantly better; better[i, j]: i is better than j.

    >>> places(np.array([[False, False, True], [False, False, False], [False, False, False]])).tolist()
    [1, 1, 2]
    """
    return 1 + np.asarray(better, dtype=bool).sum(axis=0)


_CELLS = 4_000_000  # numbers of one float array held at a time (32 MB)
_COLUMNS = 256  # columns whose draws are held at a time
ALPHA = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Differences:
    """One entry per column (c,); NaN where it could not be computed."""

    value: np.ndarray  # mean difference
    low: np.ndarray  # 95 % interval
    high: np.ndarray
    p: np.ndarray  # two-sided
    se: np.ndarray  # standard error of the difference
    n_clusters: np.ndarray  # with a value


def mean_differences(
    differences: np.ndarray, codes: np.ndarray, right_wrong: np.ndarray, *, resamples: int, seed: int
) -> Differences:
    """Mean of each column of `differences` (n, c), with interval and test; NaN marks an item without a value.

    codes        (n,) cluster of each item, 0..k-1
    right_wrong  (c,) True where the differences are whole numbers -1, 0, 1: exact test
    """
    known = ~np.isnan(differences)
    sums, sizes = (cluster_sums(part, codes) for part in (np.where(known, differences, 0.0), known.astype(float)))
    total, n = sums.sum(0), sizes.sum(0)
    n_clusters = (sizes > 0).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = total / n
        off = sums - value * sizes
        se = np.sqrt(n_clusters / (n_clusters - 1) * (off**2).sum(0)) / n
    se[n_clusters < 2] = np.nan
    low, high = _intervals(sums, sizes, n_clusters, resamples, seed)
    p = np.full(len(value), np.nan)
    enough = n_clusters >= 2
    for column in np.flatnonzero(enough & right_wrong):
        p[column] = exact_sign_flip(sums[:, column])
    if (rest := np.flatnonzero(enough & ~right_wrong)).size:
        p[rest] = random_sign_flip(sums[:, rest], permutations=resamples, seed=seed)
    return Differences(value, low, high, p, se, n_clusters)


def corpus_difference(value: float, draws: np.ndarray, n_clusters: int) -> tuple[float, float, float, float]:
    """(low, high, p, standard error) of a difference of corpus statistics from its paired `draws` (resamples,).

    The interval is the difference -/+ t standard errors, so that it holds 0 just where p is above 0.05. All NaN with
    fewer than two clusters, or where a side is undefined in some resample. Draws that are all the same tell no spread:
    no interval, and p is 1 if the difference is 0.
    """
    if n_clusters < 2 or not np.isfinite(value) or not np.isfinite(draws).all():
        return (float("nan"),) * 4
    if np.ptp(draws) == 0:
        return float("nan"), float("nan"), 1.0 if value == 0 else float("nan"), 0.0
    se = float(draws.std(ddof=1) * np.sqrt(n_clusters / (n_clusters - 1)))
    reach = se * t_quantile(1 - ALPHA / 2, n_clusters)
    return value - reach, value + reach, float(2 * stdtr(n_clusters - 1, -abs(value) / se)), se


def smallest_difference(se: float, n_clusters: int) -> float:
    """The true difference that would be found in 8 of 10 such data sets, at 0.05 and without Holm; NaN if unknown.

    (t(0.975) + t(0.8)) standard errors (Miller 2024, arXiv 2411.00640, with Student's t for few clusters), the spread
    of the differences taken to be what it is here. Where no item differs there is no spread to go by.

    >>> round(float(smallest_difference(0.02, 10_000)), 4)
    0.056
    """
    if n_clusters < 2 or not se > 0:
        return float("nan")
    return float((t_quantile(1 - ALPHA / 2, n_clusters) + t_quantile(POWER, n_clusters)) * se)


@lru_cache
def t_quantile(share: float, n_clusters: int) -> float:
    """Quantile of Student's t on n_clusters - 1 degrees of freedom."""
    return float(stdtrit(n_clusters - 1, share))


def exact_sign_flip(gains: np.ndarray) -> float:
    """Two-sided mid-p of the sum of whole-number `gains` (one per cluster), if each could as well have been negative.

    The null distribution is computed, not drawn. With gains of -1 and 1 alone it is McNemar's.

    >>> round(exact_sign_flip([1, 1, 1, 1, 1, -1]), 4)  # 1 of 6 coins: 2 P(X <= 1) - P(X = 1) = 14/64 - 6/64
    0.125
    >>> exact_sign_flip([5, 0, 0]), exact_sign_flip([1, -1]), exact_sign_flip([0, 0])
    (0.5, 1.0, 1.0)
    """
    from scipy import stats  # a second to import, which is spent only where items differ

    gains = np.rint(np.asarray(gains)).astype(int)
    observed = abs(int(gains.sum()))
    if observed == 0:
        return 1.0
    steps, counts = np.unique(np.abs(gains[gains != 0]), return_counts=True)
    null = np.ones(1)  # null[i] = P(sum = i - reach), reach = (len - 1) / 2
    for step, count in zip(steps, counts, strict=True):
        one = np.zeros(2 * step * count + 1)
        one[:: 2 * step] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        null = np.convolve(null, one)
    reach = len(null) // 2
    beyond, exactly = null[reach + observed + 1 :].sum(), null[reach + observed]
    return float(2 * beyond + exactly)


def random_sign_flip(sums: np.ndarray, *, permutations: int, seed: int) -> np.ndarray:
    """(c,) two-sided p of the sum of each column of `sums` (k, c) against random signs for the k clusters."""
    k = len(sums)
    observed = np.abs(sums.sum(0))
    slack = 1e-9 * np.abs(sums).sum(0)  # equal but for rounding is as far out
    rng = np.random.default_rng([seed, 1])  # not the bootstrap's draws
    beyond = np.zeros(sums.shape[1])
    for rows in chunks(permutations, k, _CELLS):
        signs = 2.0 * rng.integers(2, size=(rows.stop - rows.start, k), dtype=np.int8) - 1.0
        for columns in _chunks_of(sums.shape[1]):
            flipped = np.abs(signs @ sums[:, columns])
            beyond[columns] += (flipped >= observed[columns] - slack[columns]).sum(0)
    return (1 + beyond) / (1 + permutations)


def cluster_sums(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(n, c) -> (k, c): the sum of each cluster's rows.

    >>> cluster_sums(np.array([[1.0], [2.0], [4.0]]), np.array([0, 1, 0])).tolist()
    [[5.0], [2.0]]
    """
    n, k = len(codes), int(codes.max(initial=-1)) + 1
    if k == n:  # each item is its own cluster, numbered as it comes
        return values[np.argsort(codes)]
    return sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(k, n)) @ values


@lru_cache(maxsize=4)  # the evaluations of a run have few different sizes
def cluster_counts(k: int, resamples: int, seed: int) -> np.ndarray:
    """(resamples, k) how often each of k clusters comes in a draw of k with replacement; read-only.

    The draws are those of `intervals.resampled` for a generator of the same seed.
    """
    rng = np.random.default_rng(seed)
    counts = np.empty((resamples, k), dtype=np.uint8 if k < 256 else np.uint16)
    for rows in chunks(resamples, k, _CELLS):
        m = rows.stop - rows.start
        drawn = rng.integers(k, size=(m, k)) + k * np.arange(m)[:, None]
        counts[rows] = np.bincount(drawn.ravel(), minlength=m * k).reshape(m, k)
    counts.setflags(write=False)
    return counts


def resampled_means(sums: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(resamples, c) ratio means of drawn clusters; NaN where none of a column's items was drawn.

    sums, sizes (k, c): each cluster's sum of values, and number of items with a value; counts (resamples, k).
    """
    different, which = np.unique(sizes, axis=1, return_inverse=True)  # columns mostly share their items
    means = np.empty((len(counts), sums.shape[1]))
    for rows in chunks(len(counts), len(sums), _CELLS):
        weights = counts[rows].astype(float)
        with np.errstate(invalid="ignore"):
            means[rows] = (weights @ sums) / (weights @ different)[:, which.ravel()]
    return means


def _intervals(sums, sizes, n_clusters, resamples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Percentile intervals at expanded levels; columns without spread, or with under two clusters, get NaN.

    Where a column lacks so many clusters that a resample has none of its items, its own clusters are drawn instead.
    """
    c = sums.shape[1]
    low, high = np.full(c, np.nan), np.full(c, np.nan)
    counts = cluster_counts(len(sums), resamples, seed) if len(sums) >= 2 else None
    for columns in _chunks_of(c):
        use = np.arange(columns.start, columns.stop)[n_clusters[columns] >= 2]
        if not use.size:
            continue
        draws = resampled_means(sums[:, use], sizes[:, use], counts)
        for column, drawn in zip(use, draws.T, strict=True):
            if np.isnan(drawn).any():
                own = sizes[:, column] > 0
                again = cluster_counts(int(own.sum()), resamples, seed)
                drawn = resampled_means(sums[own, column, None], sizes[own, column, None], again)[:, 0]
            if np.ptp(drawn) > 1e-12 * np.abs(drawn).max():
                tail = expanded_tail(int(n_clusters[column]))
                low[column], high[column] = np.quantile(drawn, [tail, 1 - tail])
    return low, high


def _chunks_of(columns: int):
    for start in range(0, columns, _COLUMNS):
        yield slice(start, min(start + _COLUMNS, columns))
