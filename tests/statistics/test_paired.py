import math
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from vernacular.metrics.corpus import auc, difsur_of_labels
from vernacular.statistics.intervals import expanded_tail, resample_statistic
from vernacular.statistics.paired import (
    cluster_counts,
    cluster_sums,
    corpus_difference,
    exact_sign_flip,
    mean_differences,
    minimum_detectable_difference,
    random_sign_flip,
    resample_means,
)


def one_column(values, codes=None, *, binary=False, resamples=1000):
    values = np.asarray(values, dtype=float)[:, None]
    codes = np.arange(len(values)) if codes is None else codes
    return mean_differences(values, codes, np.array([binary]), resamples=resamples, seed=0)


@pytest.mark.parametrize(("improved", "regressed"), [(15, 7), (3, 0), (1, 9), (40, 25), (200, 150)])
def test_mid_p_without_clusters_equals_mcnemar(improved, regressed):
    exact = mcnemar([[11, regressed], [improved, 13]], exact=True).pvalue
    mid_p = exact - stats.binom.pmf(min(improved, regressed), improved + regressed, 0.5)
    assert exact_sign_flip([1] * improved + [-1] * regressed + [0] * 24) == pytest.approx(mid_p, rel=1e-9)


def test_equal_gains_and_losses_give_p_of_1():
    assert exact_sign_flip([1, 1, -1, -1]) == 1.0
    assert exact_sign_flip([]) == 1.0


@settings(deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=10))
def test_exact_sign_flip_equals_enumeration_of_signs(gains):
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(gains))).reshape(len(gains), -1)
    sums, observed = np.abs(np.array(gains) @ signs), abs(sum(gains))
    expected = 1.0 if observed == 0 else np.mean(sums > observed) + np.mean(sums == observed) / 2
    assert exact_sign_flip(gains) == pytest.approx(expected, abs=1e-12)


def test_random_sign_flip_approximates_enumeration():
    values = np.random.default_rng(0).normal(0.5, 1, 12)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 12)).reshape(12, -1)
    expected = np.mean(np.abs(values @ signs) >= abs(values.sum()) - 1e-9)
    assert random_sign_flip(values[:, None], permutations=20_000, seed=0)[0] == pytest.approx(expected, abs=0.01)


def test_permutation_p_is_positive():
    assert random_sign_flip(np.ones((60, 1)), permutations=99, seed=0)[0] == 0.01


def test_interval_agrees_with_scipy():
    rng = np.random.default_rng(1)
    baseline = rng.exponential(size=70)
    candidate = baseline + rng.normal(0.2, 0.5, 70)
    result = one_column(candidate - baseline, resamples=20_000)
    reference = stats.bootstrap(
        [candidate, baseline],
        lambda x, y, axis=-1: x.mean(axis=axis) - y.mean(axis=axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        confidence_level=1 - 2 * expanded_tail(70),  # same quantiles of the same distribution
        rng=2,
    )
    width = reference.confidence_interval.high - reference.confidence_interval.low
    assert (result.low[0], result.high[0]) == pytest.approx(tuple(reference.confidence_interval), abs=0.03 * width)
    assert result.se[0] == pytest.approx(reference.standard_error, rel=0.03)


def test_standard_error_without_clusters_equals_sem():
    values = np.random.default_rng(3).normal(size=50)
    assert one_column(values).se[0] == pytest.approx(stats.sem(values))


def test_columns_are_independent():
    rng = np.random.default_rng(4)
    table = rng.normal(size=(60, 5))
    table[rng.random(table.shape) < 0.2] = np.nan
    codes = np.arange(60) // 3
    joint = mean_differences(table, codes, np.zeros(5, dtype=bool), resamples=300, seed=0)
    for column in range(5):
        single = mean_differences(table[:, [column]], codes, np.array([False]), resamples=300, seed=0)
        for name in ("value", "low", "high", "p", "se", "n_clusters"):
            assert getattr(joint, name)[column] == pytest.approx(getattr(single, name)[0])


def test_chunk_sizes_do_not_change_results(low_limits):
    table = np.random.default_rng(5).normal(size=(40, 7))
    args = (table, np.arange(40), np.zeros(7, dtype=bool))
    expected = mean_differences(*args, resamples=200, seed=0)
    low_limits("statistics.paired", CELLS=300, COLUMNS=3)
    cluster_counts.cache_clear()
    chunked = mean_differences(*args, resamples=200, seed=0)
    assert chunked.low == pytest.approx(expected.low)
    assert chunked.p == pytest.approx(expected.p)


def test_sparse_column_is_resampled_over_its_own_clusters():
    values = np.full(100, np.nan)
    values[[3, 20, 50, 77, 90]] = observed = [1.0, 2.0, 4.0, 8.0, 16.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse, dense = one_column(values), one_column(observed)
    assert (sparse.low[0], sparse.high[0]) == (dense.low[0], dense.high[0])
    assert sparse.n_clusters[0] == 5


def test_constant_differences_give_no_interval():
    for values, p in (([0.0] * 20, 1.0), ([1.0] * 20, 2 * 0.5**20 / 2)):
        result = one_column(values, binary=True)
        assert np.isnan(result.low[0])
        assert result.p[0] == pytest.approx(p)


def test_one_cluster_gives_no_interval_and_no_test():
    result = one_column([1.0, 1.0, 0.0], np.zeros(3, dtype=int), binary=True)
    assert result.value[0] == pytest.approx(2 / 3)
    assert np.isnan([result.low[0], result.p[0], result.se[0]]).all()


def test_repeated_items_of_a_cluster_count_once():
    values = np.array([1.0] * 9 + [-1.0] * 2 + [0.0] * 10)
    repeated = one_column(np.repeat(values, 6), np.repeat(np.arange(21), 6), binary=True)
    single = one_column(values, binary=True)
    assert repeated.p[0] == pytest.approx(single.p[0])
    assert repeated.se[0] == pytest.approx(single.se[0])


def test_means_and_corpus_statistics_use_the_same_draws():
    values, codes = np.arange(12.0), np.arange(12) // 3
    sums = np.bincount(codes, weights=values)[:, None]
    means = resample_means(sums, np.full((4, 1), 3.0), cluster_counts(4, 50, 8))
    expected = resample_statistic(lambda x: x.mean(-1), [values], codes, 4, 50, np.random.default_rng(8))
    assert means[:, 0] == pytest.approx(expected)


def test_cluster_sums_for_any_order_of_codes():
    values = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    assert cluster_sums(values, np.array([1, 0, 1])).tolist() == [[2.0, 20.0], [5.0, 50.0]]
    assert cluster_sums(values, np.zeros(3, dtype=int)).tolist() == [[7.0, 70.0]]
    assert cluster_sums(values, np.array([2, 0, 1])).tolist() == [[2.0, 20.0], [4.0, 40.0], [1.0, 10.0]]


def test_minimum_detectable_difference_has_power_of_80_percent():
    rng = np.random.default_rng(6)
    n, n_simulations = 100, 600
    effect = minimum_detectable_difference(1 / np.sqrt(n), n - 1)
    result = mean_differences(
        rng.normal(effect, 1, (n, n_simulations)),
        np.arange(n),
        np.zeros(n_simulations, dtype=bool),
        resamples=400,
        seed=0,
    )
    assert np.mean(result.p < 0.05) == pytest.approx(0.8, abs=0.05)
    assert np.isnan(minimum_detectable_difference(0.0, n - 1))


def test_corpus_difference_of_equal_draws():
    assert corpus_difference(0.0, np.zeros(50), 30)[2] == 1.0
    assert np.isnan(corpus_difference(0.0, np.array([0.0, np.nan]), 30)).all()
    assert np.isnan(corpus_difference(0.1, np.arange(10.0), 1)).all()


def test_corpus_difference_by_hand():
    """Draws 1..5 of 5 clusters: variance 2.5, se = sqrt(2.5 * 5/4); Student's t of 4 degrees has a closed form."""
    low, high, p, se = corpus_difference(3.0, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 5)
    assert se == pytest.approx(math.sqrt(3.125))
    assert (low, high) == pytest.approx((3 - 2.776445 * se, 3 + 2.776445 * se), abs=1e-5)
    t = 3 / math.sqrt(3.125)
    sine, cosine = t / math.sqrt(4 + t**2), 2 / math.sqrt(4 + t**2)
    assert p == pytest.approx(1 - sine * (1 + cosine**2 / 2))
    mirrored = corpus_difference(-3.0, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 5)
    assert mirrored == pytest.approx((-high, -low, p, se))


def test_corpus_difference_of_two_clusters_has_one_degree_of_freedom():
    low, high, p, se = corpus_difference(1.0, np.array([0.0, 2.0]), 2)
    assert se == pytest.approx(2.0)  # the draws' sqrt(2), times sqrt(2/1)
    assert (low, high) == pytest.approx((1 - 2 * math.tan(0.475 * math.pi), 1 + 2 * math.tan(0.475 * math.pi)))
    assert p == pytest.approx(1 - 2 / math.pi * math.atan(0.5))


@pytest.mark.parametrize(
    ("value", "draws", "n_clusters", "expected"),
    [
        (0.0, [0.5, 0.5], 30, (math.nan, math.nan, 1.0, 0.0)),
        (0.2, [0.2, 0.2], 30, (math.nan, math.nan, math.nan, 0.0)),  # a difference without spread
        (math.nan, [0.1, 0.2], 30, (math.nan,) * 4),
        (0.1, [0.1, math.inf], 30, (math.nan,) * 4),
        (0.1, [0.1, 0.2], 1, (math.nan,) * 4),
    ],
)
def test_corpus_difference_without_spread_or_undefined(value, draws, n_clusters, expected):
    assert corpus_difference(value, np.array(draws), n_clusters) == pytest.approx(expected, nan_ok=True)


def test_minimum_detectable_difference_by_hand():
    """Student's t of one degree of freedom has the quantile tan(pi (share - 1/2))."""
    expected = 0.5 * (math.tan(0.475 * math.pi) + math.tan(0.3 * math.pi))
    assert minimum_detectable_difference(0.5, 1) == pytest.approx(expected)
    assert np.isnan([minimum_detectable_difference(se, df) for se, df in [(0.5, 0), (0.0, 1), (math.nan, 1)]]).all()


def test_two_clusters_by_hand():
    result = one_column([1.0, 3.0], resamples=4000)
    assert (result.value[0], result.se[0], result.n_clusters[0]) == (2.0, 1.0, 2)
    assert (result.low[0], result.high[0]) == (1.0, 3.0)
    assert result.p[0] == pytest.approx(0.5, abs=0.03)  # two of the four sign patterns are as extreme
    assert one_column([1.0, 1.0], binary=True).p[0] == 0.25


def test_columns_with_fewer_than_two_clusters_are_nan(low_limits):
    low_limits("statistics.paired", COLUMNS=1)
    table = np.array([[np.nan, 5.0, 1.0], [np.nan, np.nan, 3.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mean_differences(table, np.arange(2), np.zeros(3, dtype=bool), resamples=500, seed=0)
    assert result.value == pytest.approx([np.nan, 5.0, 2.0], nan_ok=True)
    assert result.n_clusters.tolist() == [0, 1, 2]
    for values in (result.low, result.high, result.p, result.se):
        assert np.isnan(values).tolist() == [True, True, False]


def test_mean_differences_without_items_are_nan():
    result = mean_differences(np.empty((0, 2)), np.empty(0, int), np.array([True, False]), resamples=10, seed=0)
    assert result.n_clusters.tolist() == [0, 0]
    assert np.isnan([result.value, result.low, result.high, result.p, result.se]).all()


def test_sums_equal_to_the_observed_count_as_extreme():
    columns = np.array([[1.0, 0.0, 0.1], [1.0, 0.0, 0.2], [1.0, 0.0, 0.3], [1.0, 0.0, 0.4]])
    result = random_sign_flip(columns, permutations=20_000, seed=0)
    assert result == pytest.approx([2 / 16, 1.0, 2 / 16], abs=0.01)


def test_random_sign_flip_is_scale_invariant():
    """Sums that are equal up to rounding, at scales where rounding errors are far above and far below 1e-9."""
    values = np.random.default_rng(7).integers(-6, 9, (16, 1)) / 10
    scales = np.array([1e-9, 1.0, 1e9, 1e12])
    result = random_sign_flip(values * scales, permutations=2000, seed=0)
    expected = random_sign_flip(np.rint(values * 10), permutations=2000, seed=0)
    assert 0.02 < expected[0] < 0.98
    assert result.tolist() == expected.tolist() * 4


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12 / 3])
def test_equal_differences_give_no_interval_at_any_scale(scale):
    result = one_column(np.full(60, 0.1 * scale), np.repeat(np.arange(11), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 5]))
    assert np.isnan([result.low[0], result.high[0]]).all()


def test_cached_cluster_counts_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        cluster_counts(3, 5, 0)[0, 0] = 9


# --- false positive rate and coverage: nominal 5 % and 95 %, by simulation ------------------------------------------

_SIMULATIONS = 600


def _binary(rng, codes):
    """Draw differences of two equally good models; items of a cluster are correlated, per model and across models."""
    k = codes.max() + 1
    easiness = rng.normal(size=k)
    correct = [(easiness + rng.normal(size=k))[codes] + rng.normal(size=len(codes)) > -0.5 for _ in range(2)]
    return correct[1].astype(float) - correct[0]


def _normal(rng, codes):
    return rng.normal(size=codes.max() + 1)[codes] + rng.normal(size=len(codes))


def _simulate(draw, draw_codes, test_codes, binary):
    rng = np.random.default_rng(30)
    table = np.column_stack([draw(rng, draw_codes) for _ in range(_SIMULATIONS)])
    result = mean_differences(table, test_codes, np.full(_SIMULATIONS, binary), resamples=500, seed=1)
    return np.mean(result.p < 0.05), np.mean((result.low <= 0) & (result.high >= 0))


@pytest.mark.parametrize("n", [100, 500])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize(("draw", "binary"), [(_binary, True), (_normal, False)])
def test_false_positive_rate_and_coverage_of_equal_models(n, size, draw, binary):
    codes = np.arange(n) // size
    rejection_rate, coverage = _simulate(draw, codes, codes, binary)
    assert 0.025 <= rejection_rate <= 0.07
    assert 0.90 <= coverage <= 0.97


@pytest.mark.parametrize(("draw", "binary"), [(_binary, True), (_normal, False)])
def test_ignoring_clusters_inflates_false_positives(draw, binary):
    rejection_rate, coverage = _simulate(draw, np.arange(100) // 5, np.arange(100), binary)
    assert rejection_rate > 0.12
    assert coverage < 0.88


def test_false_positive_rate_with_clusters_of_unequal_size():
    codes = np.repeat(np.arange(200), np.random.default_rng(31).integers(1, 12, 200))[:500]
    rejection_rate, coverage = _simulate(_binary, codes, codes, True)
    assert 0.025 <= rejection_rate <= 0.07
    assert 0.90 <= coverage <= 0.97


@pytest.mark.parametrize("statistic", [auc, difsur_of_labels])
@pytest.mark.parametrize("size", [1, 5])
def test_false_positive_rate_of_corpus_statistics(statistic, size):
    """Both models separate the labels equally well; their values differ in spread within clusters."""
    rng = np.random.default_rng(32)
    codes, label = np.arange(100) // size, (np.arange(100) % 2).astype(float)
    k, n_simulations = codes.max() + 1, 200
    rejected = []
    for _ in range(n_simulations):
        easiness = rng.normal(size=k)[codes]
        baseline = 10 + easiness + rng.normal(size=100) + 0.8 * (label == 0)
        candidate = 10 + 0.5 * easiness + np.sqrt(1.75) * rng.normal(size=100) + 0.8 * (label == 0)
        draws = [
            resample_statistic(statistic, [x, label], codes, k, 100, np.random.default_rng(0))
            for x in (baseline, candidate)
        ]
        difference = float(statistic(candidate, label) - statistic(baseline, label))
        low, high, p, _ = corpus_difference(difference, draws[1] - draws[0], k)
        assert (p < 0.05) == (not low <= 0 <= high)
        rejected.append(p < 0.05)
    assert 0.015 <= np.mean(rejected) <= 0.09


def test_memory_of_many_columns_is_a_few_times_that_of_the_differences(low_limits):
    differences = np.random.default_rng(0).normal(size=(5_000, 100))
    low_limits("statistics.paired", CELLS=50_000)
    tracemalloc.start()
    mean_differences(differences, np.arange(5_000), np.zeros(100, bool), resamples=20, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * differences.nbytes
