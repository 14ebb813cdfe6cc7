import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from vernacular.metrics.corpus import auc
from vernacular.statistics.intervals import (
    cluster_bootstrap,
    cluster_codes,
    clustered_wilson,
    expanded_tail,
    redrawn,
    resample_statistic,
    wilson,
)


def mean(values):
    return values.mean(axis=-1)


def test_wilson_formula_agrees_with_scipy():
    for successes, n in [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (250, 1000)]:
        expected = stats.binomtest(successes, n).proportion_ci(0.9, method="wilson")
        assert wilson(successes, n, 0.9) == (expected.low, expected.high)
        fractional = min(successes + 1e-10, n - 1e-10)  # not computed by SciPy
        assert wilson(fractional, n, 0.9) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_wilson_interval_contains_the_proportion_within_0_and_1(n, share):
    low, high = wilson(share * n, n)
    assert 0 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1


def test_wilson_interval_with_fractional_successes():
    lower, middle, upper = wilson(3, 10), wilson(3.5, 10), wilson(4, 10)
    assert lower[0] < middle[0] < upper[0]
    assert lower[1] < middle[1] < upper[1]


def test_intervals_without_items_are_nan():
    assert all(map(math.isnan, wilson(0, 0)))
    assert all(map(math.isnan, clustered_wilson([], None)))
    assert all(map(math.isnan, cluster_bootstrap(None, [np.array([])], None, seed=0)))


def test_more_successes_than_items_raise_value_error():
    with pytest.raises(ValueError, match=r"within 0\.\.2"):
        wilson(3, 2)


def test_clustered_wilson_equals_wilson_without_shared_clusters():
    values = np.array([1.0, 0, 1, 1, 0])
    assert clustered_wilson(values, None) == clustered_wilson(values, list("abcde")) == wilson(3, 5)


def test_clustered_wilson_of_repeated_items_is_not_narrower():
    values = np.array([1.0] * 30 + [0.0] * 20)
    low, high = clustered_wilson(np.repeat(values, 4), np.repeat(np.arange(50), 4))
    assert low < wilson(30, 50)[0] + 1e-3
    assert high > wilson(30, 50)[1] - 1e-3


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_clustered_wilson_of_constant_values_has_width(value):
    assert clustered_wilson(np.full(100, value), np.arange(100) // 5) == pytest.approx(wilson(20 * value, 20))


def test_effective_number_of_items_is_at_most_n():
    values = np.tile([1.0, 0.0], 50)
    low, high = clustered_wilson(np.append(values, 1.0), np.append(np.arange(100) // 2, 50))
    assert (low, high) == pytest.approx(wilson(51, 101))


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_clustered_wilson_by_hand(level):
    """Clusters of 2, 2 and 1 items with 2, 1 and 0 correct: mean 3/5; squared deviations of the sums add up to 26/25."""
    interval = clustered_wilson(np.array([1.0, 1, 1, 0, 0]), ["a", "a", "b", "b", "c"], level=level)
    variance = 3 / 2 * (26 / 25) / 5**2
    tail = 0.5 + level / 2
    correction = (stats.t.ppf(tail, 4) / stats.t.ppf(tail, 2)) ** 2
    effective = 0.6 * 0.4 / variance * correction
    assert effective < 5
    z = stats.norm.ppf(tail)
    center, half_width = (0.6 + z**2 / 2 / effective), z * math.sqrt(0.24 / effective + z**2 / 4 / effective**2)
    assert interval == pytest.approx(
        ((center - half_width) / (1 + z**2 / effective), (center + half_width) / (1 + z**2 / effective))
    )


def test_clustered_wilson_level_without_clusters():
    assert clustered_wilson(np.array([1.0, 0, 1, 1, 0]), None, level=0.8) == wilson(3, 5, 0.8)


def test_bounds_stay_within_0_and_1_despite_rounding():
    pairs = np.arange(18) // 2
    assert clustered_wilson(np.ones(18), pairs)[1] == 1.0  # 1 + 2e-16 by the formula
    assert clustered_wilson(np.zeros(4), np.arange(4) // 2)[0] == 0.0


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 5)), min_size=1, max_size=30))
def test_clustered_wilson_interval_contains_the_mean_within_0_and_1(items):
    values, clusters = np.array([v for v, _ in items]), [c for _, c in items]
    low, high = clustered_wilson(values, clusters)
    if not math.isnan(low):
        assert -1e-12 <= low <= values.mean() + 1e-9
        assert values.mean() - 1e-9 <= high <= 1 + 1e-12


def test_one_cluster_gives_no_interval():
    assert all(map(math.isnan, clustered_wilson([1.0, 0.0], ["a", "a"])))
    assert all(map(math.isnan, cluster_bootstrap(None, [np.array([1.0, 2.0])], ["a", "a"], seed=0)))


def test_two_clusters_give_an_interval():
    assert cluster_bootstrap(None, [np.array([0.0, 1.0])], None, seed=0) == (0.0, 1.0)
    assert cluster_bootstrap(mean, [np.array([0.0, 1.0])], ["a", "b"], seed=0, resamples=500) == (0.0, 1.0)
    low, high = clustered_wilson(np.array([1.0, 1.0, 0.0]), ["a", "a", "b"])
    assert 0.0 <= low < 2 / 3 < high <= 1.0


def test_expanded_tail_by_hand():
    """At level 1/2: t = 1 on one degree of freedom, and sqrt(2/3) on two, where t sqrt(3/2) = 1."""
    assert expanded_tail(2, 0.5) == pytest.approx(stats.norm.cdf(-math.sqrt(2)))
    assert expanded_tail(3, 0.5) == pytest.approx(stats.norm.cdf(-1))


def test_bootstrap_defaults_and_level():
    values = np.random.default_rng(12).normal(size=30)
    assert cluster_bootstrap(None, [values], None, seed=3) == cluster_bootstrap(
        None, [values], None, seed=3, resamples=10_000
    )
    draws = resample_statistic(mean, [values], np.arange(30), 30, 200, np.random.default_rng(3))
    tail = expanded_tail(30, 0.5)
    assert cluster_bootstrap(mean, [values], None, seed=3, resamples=200, level=0.5) == pytest.approx(
        tuple(np.quantile(draws, [tail, 1 - tail]))
    )


def test_cluster_labels_of_different_types_differ():
    assert cluster_codes([1, "1", 1], 3).tolist() == [0, 1, 0]


def test_resample_without_items_is_nan():
    """Codes 0, 0, 1 of three clusters: as many clusters as items, although two items share one and one is empty."""
    weights = np.array([1.0, 10.0, 100.0])
    args = (np.array([0, 0, 1]), 3, 100)
    values = resample_statistic(lambda x: x.sum(-1), [weights], *args, np.random.default_rng(0))
    draws = np.random.default_rng(0).integers(3, size=(100, 3))
    expected = 11.0 * (draws == 0).sum(1) + 100.0 * (draws == 1).sum(1)
    assert (expected == 0).any()
    assert values == pytest.approx(np.where(expected == 0, np.nan, expected), nan_ok=True)


def test_items_without_label_are_separate_clusters():
    assert cluster_codes(np.array(["b", None, "b", float("nan"), ""], dtype=object), 5).tolist() == [0, 2, 0, 3, 1]
    assert cluster_codes(None, 3).tolist() == [0, 1, 2]


def test_bootstrap_mean_agrees_with_scipy():
    values = np.random.default_rng(1).exponential(size=80)
    interval = cluster_bootstrap(None, [values], None, resamples=20_000, seed=2)
    level = 1 - 2 * expanded_tail(80)  # same quantiles of the same distribution
    reference = stats.bootstrap(
        [values], np.mean, n_resamples=20_000, method="percentile", confidence_level=level, rng=3
    )
    width = reference.confidence_interval.high - reference.confidence_interval.low
    assert interval == pytest.approx(tuple(reference.confidence_interval), abs=0.03 * width)


def test_bootstrap_ratio_agrees_with_scipy():
    rng = np.random.default_rng(4)
    numerator, denominator = rng.normal(5, 1, 60), rng.normal(9, 2, 60)

    def ratio(x, y, axis=-1):
        return x.mean(axis=axis) / y.mean(axis=axis)

    interval = cluster_bootstrap(ratio, [numerator, denominator], None, resamples=20_000, seed=5)
    level = 1 - 2 * expanded_tail(60)
    reference = stats.bootstrap(
        [numerator, denominator],
        ratio,
        paired=True,
        n_resamples=20_000,
        method="percentile",
        confidence_level=level,
        rng=6,
    )
    width = reference.confidence_interval.high - reference.confidence_interval.low
    assert interval == pytest.approx(tuple(reference.confidence_interval), abs=0.03 * width)


def test_multinomial_and_direct_draws_agree(low_limits):
    values = (np.arange(200) % 3 == 0).astype(float)
    clusters = np.arange(200) // 4
    multinomial = cluster_bootstrap(None, [values], clusters, seed=7, resamples=20_000)
    low_limits("statistics.intervals", MAX_DISTINCT=0)
    direct = cluster_bootstrap(None, [values], clusters, seed=7, resamples=20_000)
    assert multinomial == pytest.approx(direct, abs=0.003)


def test_draws_are_the_same_if_values_differ_by_rounding():
    values = np.array([1.0] * 9 + [0.25, 0.5, 0.75, 0.0, 0.125, 0.375, 0.625])
    rounded = values + np.random.default_rng(2).uniform(-2e-7, 2e-7, len(values)).astype(np.float32)
    assert len(set(rounded)) > len(set(values))
    low, high = cluster_bootstrap(None, [values], None, seed=7, resamples=10_000)
    assert cluster_bootstrap(None, [rounded], None, seed=7, resamples=10_000) == pytest.approx((low, high), abs=3e-7)
    assert cluster_bootstrap(None, [-0.0 * values], None, seed=7) == (0, 0)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_intervals_of_small_and_large_values_have_their_scale(scale):
    values = np.random.default_rng(3).gamma(2, 1, 20)
    low, high = cluster_bootstrap(None, [values], None, seed=7)
    assert low < values.mean() < high
    assert cluster_bootstrap(None, [values * scale], None, seed=7) == (low * scale, high * scale)


@pytest.mark.parametrize(
    "clusters", [None, np.arange(50) // 5, np.repeat(["a", "b", "c", "d", "e"], [1, 2, 7, 15, 25])]
)
def test_means_of_clusters_are_those_of_their_items(low_limits, clusters):
    low_limits("statistics.intervals", MAX_DISTINCT=0)  # otherwise, means of few clusters have other draws
    values = np.random.default_rng(8).normal(size=50)
    fast = cluster_bootstrap(None, [values], clusters, seed=9, resamples=500)
    by_items = cluster_bootstrap(mean, [values], clusters, seed=9, resamples=500)
    assert fast == pytest.approx(by_items)


def test_chunks_do_not_change_the_resamples(low_limits):
    values = np.random.default_rng(10).normal(size=40)

    def median(x):
        return np.median(x, axis=-1)

    def compute_intervals():
        unclustered = cluster_bootstrap(median, [values], None, seed=11, resamples=300)
        clustered = cluster_bootstrap(median, [values], np.arange(40) // 2, seed=11, resamples=300)
        return unclustered, clustered, cluster_bootstrap(None, [values], None, seed=11, resamples=300)

    expected = compute_intervals()
    low_limits("statistics.intervals", CELLS=400)
    assert compute_intervals() == expected
    low_limits("statistics.intervals", CELLS=1)  # less than one resample: one resample per chunk
    assert compute_intervals() == expected


def test_items_of_a_cluster_are_resampled_together():
    rows = np.arange(12.0)
    clusters = np.array(["x", "y", "z"] * 4)
    samples = []

    def record(x):
        samples.extend(sorted(row % 3) for row in x)
        return np.zeros(len(x))

    cluster_bootstrap(record, [rows], clusters, seed=0, resamples=20)
    assert all(sample.count(cluster) % 4 == 0 for sample in samples for cluster in (0.0, 1.0, 2.0))


def test_interval_is_determined_by_the_seed():
    values = np.random.default_rng(0).normal(size=100)
    first, repeated, different = (
        cluster_bootstrap(None, [values], None, seed=seed, resamples=200) for seed in (1, 1, 2)
    )
    assert first == repeated != different


def test_statistic_undefined_in_a_resample_gives_no_interval():
    values = np.array([0.0] * 9 + [1.0])

    def ones_ratio(x):
        ones = x.sum(axis=-1)
        return np.divide(ones, ones, out=np.full_like(ones, np.nan), where=ones > 0)

    interval = cluster_bootstrap(ones_ratio, [values], None, seed=0, resamples=100)
    assert all(map(math.isnan, interval))


def test_resamples_without_a_label_are_drawn_again():
    label = np.array([1.0] * 14 + [0.0] * 2)  # 12 % of the resamples have one label only
    surprisal = np.random.default_rng(0).normal(size=16) - label
    low, high = cluster_bootstrap(auc, [surprisal, label], None, seed=1, resamples=2000)
    assert 0 <= low < auc(surprisal, label) < high <= 1


@pytest.mark.parametrize(("n_acceptable", "has_interval"), [(1, False), (2, True), (14, True), (15, False)])
def test_one_sentence_of_a_label_gives_no_interval(n_acceptable, has_interval):
    label = np.arange(16) < n_acceptable
    surprisal = np.random.default_rng(0).normal(size=16)
    interval = cluster_bootstrap(auc, [surprisal, label], None, seed=1, resamples=2000)
    assert np.isfinite(interval).tolist() == [has_interval, has_interval]


def test_redrawn_resamples_stay_paired_and_defined_ones_unchanged():
    draws = np.random.default_rng(0).normal(size=(20, 2))
    draws[:, 1] = 2 * draws[:, 0]
    expected = draws[[0, 1, 2, 0, 4, 5, 6, 1, *range(8, 20)]]
    draws[3, 0] = draws[7, 1] = np.nan
    assert redrawn(draws).tolist() == expected.tolist()
    draws[8:12] = np.nan  # 6 of 20
    assert redrawn(draws) is draws


@pytest.mark.parametrize(
    ("arrays", "clusters", "message"),
    [
        ([], None, r"got \[\]"),
        ([np.ones(3), np.ones(2)], None, r"of one length, got \[\(3,\), \(2,\)\]"),
        ([np.ones(3)], ["a"], "expected 3 cluster labels, one per item, got 1"),
        ([np.ones((2, 2))], None, r"got \[\(2, 2\)\]"),
    ],
)
def test_mismatched_arrays_raise_value_error(arrays, clusters, message):
    with pytest.raises(ValueError, match=message):
        cluster_bootstrap(mean, arrays, clusters, seed=0)


def test_mean_of_two_arrays_raises_value_error():
    with pytest.raises(ValueError, match="got 2"):
        cluster_bootstrap(None, [np.ones(3), np.ones(3)], None, seed=0)


def _coverage(draw, truth, clusters, *, n_simulations=500, resamples=800) -> float:
    rng = np.random.default_rng(20)
    hits = 0
    for simulation in range(n_simulations):
        low, high = cluster_bootstrap(None, [draw(rng)], clusters, seed=simulation, resamples=resamples)
        hits += low <= truth <= high
    return hits / n_simulations


@pytest.mark.parametrize("n", [100, 500])
def test_bootstrap_coverage_of_independent_items(n):
    assert 0.90 <= _coverage(lambda rng: rng.exponential(size=n), 1.0, None, n_simulations=300) <= 0.97


@pytest.mark.parametrize("n", [100, 500])
def test_bootstrap_coverage_of_clustered_binary_items(n):
    clusters = np.arange(n) // 5

    def draw(rng):  # accuracy per passage, 0.6 on average; correlation 1/3
        return (rng.random(n) < np.repeat(rng.beta(1.2, 0.8, n // 5), 5)).astype(float)

    assert 0.90 <= _coverage(draw, 0.6, clusters) <= 0.97
    assert _coverage(draw, 0.6, None) < 0.90  # without clusters, the interval is too narrow


@pytest.mark.parametrize("n", [100, 500])
def test_wilson_coverage(n):
    rng = np.random.default_rng(21)
    covered = [low <= 0.3 <= high for low, high in (wilson(k, n) for k in rng.binomial(n, 0.3, 2000))]
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize("n", [100, 500])
@pytest.mark.parametrize(("share", "beta_params"), [(0.6, (1.2, 0.8)), (0.9, (1.8, 0.2))])
def test_clustered_wilson_coverage(n, share, beta_params):
    rng = np.random.default_rng(22)
    clusters = np.arange(n) // 5
    hits = []
    for _ in range(500):
        values = (rng.random(n) < np.repeat(rng.beta(*beta_params, n // 5), 5)).astype(float)
        low, high = clustered_wilson(values, clusters)
        hits.append(low <= share <= high)
    assert 0.90 <= np.mean(hits) <= 0.98
