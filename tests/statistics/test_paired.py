import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from vernacular.metrics.corpus import auc, difsur_of_labels
from vernacular.statistics import paired
from vernacular.statistics.intervals import expanded_tail, resampled
from vernacular.statistics.paired import (
    cluster_counts,
    cluster_sums,
    corpus_difference,
    exact_sign_flip,
    mean_differences,
    minimum_detectable_difference,
    random_sign_flip,
    resampled_means,
)


def one_column(values, codes=None, *, right_wrong=False, resamples=1000):
    values = np.asarray(values, dtype=float)[:, None]
    codes = np.arange(len(values)) if codes is None else codes
    return mean_differences(values, codes, np.array([right_wrong]), resamples=resamples, seed=0)


@pytest.mark.parametrize(("won", "lost"), [(15, 7), (3, 0), (1, 9), (40, 25), (200, 150)])
def test_mid_p_without_clusters_is_mcnemars(won, lost):
    exact = mcnemar([[11, lost], [won, 13]], exact=True).pvalue
    mid_p = exact - stats.binom.pmf(min(won, lost), won + lost, 0.5)
    assert exact_sign_flip([1] * won + [-1] * lost + [0] * 24) == pytest.approx(mid_p, rel=1e-9)


def test_equally_many_won_and_lost_is_no_difference():
    assert exact_sign_flip([1, 1, -1, -1]) == 1.0
    assert exact_sign_flip([]) == 1.0


@settings(deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=10))
def test_exact_sign_flip_is_what_all_signs_give(gains):
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(gains))).reshape(len(gains), -1)
    sums, observed = np.abs(np.array(gains) @ signs), abs(sum(gains))
    known = 1.0 if observed == 0 else np.mean(sums > observed) + np.mean(sums == observed) / 2
    assert exact_sign_flip(gains) == pytest.approx(known, abs=1e-12)


def test_random_signs_come_near_all_signs():
    values = np.random.default_rng(0).normal(0.5, 1, 12)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 12)).reshape(12, -1)
    known = np.mean(np.abs(values @ signs) >= abs(values.sum()) - 1e-9)
    assert random_sign_flip(values[:, None], permutations=20_000, seed=0)[0] == pytest.approx(known, abs=0.01)


def test_a_permutation_p_is_never_zero():
    assert random_sign_flip(np.ones((60, 1)), permutations=99, seed=0)[0] == 0.01


def test_interval_agrees_with_scipy_on_unclustered_pairs():
    rng = np.random.default_rng(1)
    was = rng.exponential(size=70)
    now = was + rng.normal(0.2, 0.5, 70)
    ours = one_column(now - was, resamples=20_000)
    known = stats.bootstrap(
        [now, was],
        lambda x, y, axis=-1: x.mean(axis=axis) - y.mean(axis=axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        confidence_level=1 - 2 * expanded_tail(70),  # the same cut of the same distribution
        rng=2,
    )
    width = known.confidence_interval.high - known.confidence_interval.low
    assert (ours.low[0], ours.high[0]) == pytest.approx(tuple(known.confidence_interval), abs=0.03 * width)
    assert ours.se[0] == pytest.approx(known.standard_error, rel=0.03)


def test_standard_error_without_clusters_is_that_of_the_mean():
    values = np.random.default_rng(3).normal(size=50)
    assert one_column(values).se[0] == pytest.approx(stats.sem(values))


def test_columns_are_what_each_alone_would_be():
    rng = np.random.default_rng(4)
    table = rng.normal(size=(60, 5))
    table[rng.random(table.shape) < 0.2] = np.nan
    codes = np.arange(60) // 3
    together = mean_differences(table, codes, np.zeros(5, dtype=bool), resamples=300, seed=0)
    for column in range(5):
        alone = mean_differences(table[:, [column]], codes, np.array([False]), resamples=300, seed=0)
        for name in ("value", "low", "high", "p", "se", "n_clusters"):
            assert getattr(together, name)[column] == pytest.approx(getattr(alone, name)[0])


def test_blocks_of_columns_and_rows_change_nothing(monkeypatch):
    table = np.random.default_rng(5).normal(size=(40, 7))
    given = (table, np.arange(40), np.zeros(7, dtype=bool))
    whole = mean_differences(*given, resamples=200, seed=0)
    monkeypatch.setattr(paired, "_CELLS", 300)
    monkeypatch.setattr(paired, "_COLUMNS", 3)
    cluster_counts.cache_clear()
    parts = mean_differences(*given, resamples=200, seed=0)
    assert parts.low == pytest.approx(whole.low)
    assert parts.p == pytest.approx(whole.p)


def test_a_column_that_a_resample_may_miss_draws_its_own_clusters():
    values = np.full(100, np.nan)
    values[[3, 20, 50, 77, 90]] = own = [1.0, 2.0, 4.0, 8.0, 16.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, alone = one_column(values), one_column(own)
    assert (found.low[0], found.high[0]) == (alone.low[0], alone.high[0])
    assert found.n_clusters[0] == 5


def test_no_spread_has_no_interval():
    for values, p in (([0.0] * 20, 1.0), ([1.0] * 20, 2 * 0.5**20 / 2)):
        found = one_column(values, right_wrong=True)
        assert np.isnan(found.low[0])
        assert found.p[0] == pytest.approx(p)


def test_one_cluster_is_no_evidence():
    found = one_column([1.0, 1.0, 0.0], np.zeros(3, dtype=int), right_wrong=True)
    assert found.value[0] == pytest.approx(2 / 3)
    assert np.isnan([found.low[0], found.p[0], found.se[0]]).all()


def test_copies_of_an_answer_are_one_answer_to_the_clustered_test():
    once = np.array([1.0] * 9 + [-1.0] * 2 + [0.0] * 10)
    copied = one_column(np.repeat(once, 6), np.repeat(np.arange(21), 6), right_wrong=True)
    alone = one_column(once, right_wrong=True)
    assert copied.p[0] == pytest.approx(alone.p[0])
    assert copied.se[0] == pytest.approx(alone.se[0])


def test_draws_are_those_of_corpus_statistics():
    values, codes = np.arange(12.0), np.arange(12) // 3
    sums = np.bincount(codes, weights=values)[:, None]
    means = resampled_means(sums, np.full((4, 1), 3.0), cluster_counts(4, 50, 8))
    same = resampled(lambda x: x.mean(-1), [values], codes, 4, 50, np.random.default_rng(8), True)
    assert means[:, 0] == pytest.approx(same)


def test_clusters_in_any_order_have_their_sums():
    values = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    assert cluster_sums(values, np.array([1, 0, 1])).tolist() == [[2.0, 20.0], [5.0, 50.0]]
    assert cluster_sums(values, np.zeros(3, dtype=int)).tolist() == [[7.0, 70.0]]
    assert cluster_sums(values, np.array([2, 0, 1])).tolist() == [[2.0, 20.0], [4.0, 40.0], [1.0, 10.0]]


def test_smallest_difference_is_found_in_four_of_five_data_sets():
    rng = np.random.default_rng(6)
    n, worlds = 100, 600
    true = minimum_detectable_difference(1 / np.sqrt(n), n)
    found = mean_differences(
        rng.normal(true, 1, (n, worlds)), np.arange(n), np.zeros(worlds, dtype=bool), resamples=400, seed=0
    )
    assert np.mean(found.p < 0.05) == pytest.approx(0.8, abs=0.05)
    assert np.isnan(minimum_detectable_difference(0.0, n))


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


def test_corpus_difference_of_two_clusters_goes_by_one_degree_of_freedom():
    low, high, p, se = corpus_difference(1.0, np.array([0.0, 2.0]), 2)
    assert se == pytest.approx(2.0)  # the draws' sqrt(2), times sqrt(2/1)
    assert (low, high) == pytest.approx((1 - 2 * math.tan(0.475 * math.pi), 1 + 2 * math.tan(0.475 * math.pi)))
    assert p == pytest.approx(1 - 2 / math.pi * math.atan(0.5))


@pytest.mark.parametrize(
    ("value", "draws", "n_clusters", "expected"),
    [
        (0.0, [0.5, 0.5], 30, (math.nan, math.nan, 1.0, 0.0)),
        (0.2, [0.2, 0.2], 30, (math.nan, math.nan, math.nan, 0.0)),  # a difference, and nothing to judge it by
        (math.nan, [0.1, 0.2], 30, (math.nan,) * 4),
        (0.1, [0.1, math.inf], 30, (math.nan,) * 4),
        (0.1, [0.1, 0.2], 1, (math.nan,) * 4),
    ],
)
def test_corpus_difference_without_spread_or_undefined_says_so(value, draws, n_clusters, expected):
    assert corpus_difference(value, np.array(draws), n_clusters) == pytest.approx(expected, nan_ok=True)


def test_smallest_difference_by_hand():
    """Student's t of one degree of freedom has the quantile tan(pi (share - 1/2))."""
    known = 0.5 * (math.tan(0.475 * math.pi) + math.tan(0.3 * math.pi))
    assert minimum_detectable_difference(0.5, 2) == pytest.approx(known)
    assert np.isnan([minimum_detectable_difference(se, n) for se, n in [(0.5, 1), (0.0, 2), (math.nan, 2)]]).all()


def test_two_clusters_by_hand():
    found = one_column([1.0, 3.0], resamples=4000)
    assert (found.value[0], found.se[0], found.n_clusters[0]) == (2.0, 1.0, 2)
    assert (found.low[0], found.high[0]) == (1.0, 3.0)
    assert found.p[0] == pytest.approx(0.5, abs=0.03)  # two of the four ways to sign them are as far out
    assert one_column([1.0, 1.0], right_wrong=True).p[0] == 0.25


def test_columns_without_values_or_without_partners_are_unknown_and_do_not_stop_the_next(monkeypatch):
    monkeypatch.setattr(paired, "_COLUMNS", 1)
    table = np.array([[np.nan, 5.0, 1.0], [np.nan, np.nan, 3.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mean_differences(table, np.arange(2), np.zeros(3, dtype=bool), resamples=500, seed=0)
    assert found.value == pytest.approx([np.nan, 5.0, 2.0], nan_ok=True)
    assert found.n_clusters.tolist() == [0, 1, 2]
    for numbers in (found.low, found.high, found.p, found.se):
        assert np.isnan(numbers).tolist() == [True, True, False]


def test_no_items_at_all_are_no_evidence():
    found = mean_differences(np.empty((0, 2)), np.empty(0, int), np.array([True, False]), resamples=10, seed=0)
    assert found.n_clusters.tolist() == [0, 0]
    assert np.isnan([found.value, found.low, found.high, found.p, found.se]).all()


def test_sums_as_far_out_as_the_observed_count():
    columns = np.array([[1.0, 0.0, 0.1], [1.0, 0.0, 0.2], [1.0, 0.0, 0.3], [1.0, 0.0, 0.4]])
    found = random_sign_flip(columns, permutations=20_000, seed=0)
    assert found == pytest.approx([2 / 16, 1.0, 2 / 16], abs=0.01)


def test_the_unit_of_a_column_does_not_change_its_test():
    """Sums that are equal but for rounding, at scales where rounding is far above and far below 1e-9."""
    values = np.random.default_rng(7).integers(-6, 9, (16, 1)) / 10
    scales = np.array([1e-9, 1.0, 1e9, 1e12])
    found = random_sign_flip(values * scales, permutations=2000, seed=0)
    whole = random_sign_flip(np.rint(values * 10), permutations=2000, seed=0)
    assert 0.02 < whole[0] < 0.98
    assert found.tolist() == whole.tolist() * 4


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12 / 3])
def test_equal_differences_have_no_spread_at_any_scale(scale):
    found = one_column(np.full(60, 0.1 * scale), np.repeat(np.arange(11), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 5]))
    assert np.isnan([found.low[0], found.high[0]]).all()


def test_counts_that_others_share_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        cluster_counts(3, 5, 0)[0, 0] = 9


# --- honest under the null, and covering: nominal 5 % and 95 %, by simulation ---------------------------------------

_WORLDS = 600


def _binary(rng, codes):
    """Two models equally good; the items of a cluster are easy or hard together, for each model its own way."""
    k = codes.max() + 1
    easy = rng.normal(size=k)
    sides = [(easy + rng.normal(size=k))[codes] + rng.normal(size=len(codes)) > -0.5 for _ in range(2)]
    return sides[1].astype(float) - sides[0]


def _normal(rng, codes):
    return rng.normal(size=codes.max() + 1)[codes] + rng.normal(size=len(codes))


def _simulated(draw, drawn_by, tested_by, right_wrong):
    rng = np.random.default_rng(30)
    table = np.column_stack([draw(rng, drawn_by) for _ in range(_WORLDS)])
    found = mean_differences(table, tested_by, np.full(_WORLDS, right_wrong), resamples=500, seed=1)
    return np.mean(found.p < 0.05), np.mean((found.low <= 0) & (found.high >= 0))


@pytest.mark.parametrize("n", [100, 500])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize(("draw", "right_wrong"), [(_binary, True), (_normal, False)])
def test_two_equal_models_differ_in_five_of_a_hundred_worlds(n, size, draw, right_wrong):
    codes = np.arange(n) // size
    false, covered = _simulated(draw, codes, codes, right_wrong)
    assert 0.025 <= false <= 0.07
    assert 0.90 <= covered <= 0.97


@pytest.mark.parametrize(("draw", "right_wrong"), [(_binary, True), (_normal, False)])
def test_ignoring_clusters_would_find_what_is_not_there(draw, right_wrong):
    false, covered = _simulated(draw, np.arange(100) // 5, np.arange(100), right_wrong)
    assert false > 0.12
    assert covered < 0.88


def test_clusters_of_unequal_size_are_honest_too():
    codes = np.repeat(np.arange(200), np.random.default_rng(31).integers(1, 12, 200))[:500]
    false, covered = _simulated(_binary, codes, codes, True)
    assert 0.025 <= false <= 0.07
    assert 0.90 <= covered <= 0.97


@pytest.mark.parametrize("statistic", [auc, difsur_of_labels])
@pytest.mark.parametrize("size", [1, 5])
def test_corpus_statistics_of_two_equal_models(statistic, size):
    """Both models tell the labels apart equally well; their values differ in spread within clusters."""
    rng = np.random.default_rng(32)
    codes, label = np.arange(100) // size, (np.arange(100) % 2).astype(float)
    k, worlds = codes.max() + 1, 200
    false = []
    for _ in range(worlds):
        easy = rng.normal(size=k)[codes]
        was = 10 + easy + rng.normal(size=100) + 0.8 * (label == 0)
        now = 10 + 0.5 * easy + np.sqrt(1.75) * rng.normal(size=100) + 0.8 * (label == 0)
        draws = [resampled(statistic, [x, label], codes, k, 100, np.random.default_rng(0), True) for x in (was, now)]
        difference = float(statistic(now, label) - statistic(was, label))
        low, high, p, _ = corpus_difference(difference, draws[1] - draws[0], k)
        assert (p < 0.05) == (not low <= 0 <= high)
        false.append(p < 0.05)
    assert 0.015 <= np.mean(false) <= 0.09
