import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from vernacular.statistics import intervals
from vernacular.statistics.intervals import (
    cluster_bootstrap,
    cluster_codes,
    clustered_wilson,
    expanded_tail,
    resampled,
    wilson,
)


def test_wilson_formula_agrees_with_scipy():
    for successes, n in [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (250, 1000)]:
        known = stats.binomtest(successes, n).proportion_ci(0.9, method="wilson")
        assert wilson(successes, n, 0.9) == (known.low, known.high)
        assert intervals._wilson_formula(successes, n, 0.9) == pytest.approx((known.low, known.high), abs=1e-12)


@given(st.integers(1, 5000), st.floats(0, 1))
def test_wilson_holds_the_share_and_stays_within_0_and_1(n, share):
    low, high = wilson(share * n, n)
    assert 0 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1


def test_wilson_takes_partial_credit():
    below, between, above = wilson(3, 10), wilson(3.5, 10), wilson(4, 10)
    assert below[0] < between[0] < above[0]
    assert below[1] < between[1] < above[1]


def test_no_items_give_no_interval():
    assert all(map(math.isnan, wilson(0, 0)))
    assert all(map(math.isnan, clustered_wilson([], None)))
    assert all(map(math.isnan, cluster_bootstrap(None, [np.array([])], None, seed=0)))


def test_more_successes_than_items_is_an_error():
    with pytest.raises(ValueError, match=r"within 0\.\.2"):
        wilson(3, 2)


def test_clustered_wilson_is_wilson_where_no_items_share_a_cluster():
    values = np.array([1.0, 0, 1, 1, 0])
    assert clustered_wilson(values, None) == clustered_wilson(values, list("abcde")) == wilson(3, 5)


def test_clustered_wilson_of_items_that_repeat_counts_each_once_or_less():
    once = np.array([1.0] * 30 + [0.0] * 20)
    low, high = clustered_wilson(np.repeat(once, 4), np.repeat(np.arange(50), 4))
    assert low < wilson(30, 50)[0] + 1e-3
    assert high > wilson(30, 50)[1] - 1e-3


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_all_right_or_all_wrong_still_has_a_width(value):
    assert clustered_wilson(np.full(100, value), np.arange(100) // 5) == pytest.approx(wilson(20 * value, 20))


def test_clusters_that_vary_less_than_chance_never_give_more_items_than_there_are():
    values = np.tile([1.0, 0.0], 50)
    low, high = clustered_wilson(np.append(values, 1.0), np.append(np.arange(100) // 2, 50))
    assert (low, high) == pytest.approx(wilson(51, 101))


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_clustered_wilson_by_hand(level):
    """Clusters of 2, 2 and 1 with 2, 1 and 0 right: share 3/5, off it by 4/5, -1/5 and -3/5, whose squares are 26/25."""
    found = clustered_wilson(np.array([1.0, 1, 1, 0, 0]), ["a", "a", "b", "b", "c"], level=level)
    between = 3 / 2 * (26 / 25) / 5**2
    tail = 0.5 + level / 2
    few = (stats.t.ppf(tail, 4) / stats.t.ppf(tail, 2)) ** 2
    effective = 0.6 * 0.4 / between * few
    assert effective < 5
    z = stats.norm.ppf(tail)
    centre, spread = (0.6 + z**2 / 2 / effective), z * math.sqrt(0.24 / effective + z**2 / 4 / effective**2)
    assert found == pytest.approx(
        ((centre - spread) / (1 + z**2 / effective), (centre + spread) / (1 + z**2 / effective))
    )


def test_level_of_unclustered_items_is_the_one_asked_for():
    assert clustered_wilson(np.array([1.0, 0, 1, 1, 0]), None, level=0.8) == wilson(3, 5, 0.8)


def test_bounds_never_leave_0_and_1_by_rounding():
    pairs = np.arange(18) // 2
    assert clustered_wilson(np.ones(18), pairs)[1] == 1.0  # 1 + 2e-16 by the formula
    assert clustered_wilson(np.zeros(4), np.arange(4) // 2)[0] == 0.0


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 5)), min_size=1, max_size=30))
def test_clustered_wilson_holds_the_share_and_stays_within_0_and_1(items):
    values, clusters = np.array([v for v, _ in items]), [c for _, c in items]
    low, high = clustered_wilson(values, clusters)
    if not math.isnan(low):
        assert -1e-12 <= low <= values.mean() + 1e-9
        assert values.mean() - 1e-9 <= high <= 1 + 1e-12


def test_one_cluster_gives_no_interval():
    assert all(map(math.isnan, clustered_wilson([1.0, 0.0], ["a", "a"])))
    assert all(map(math.isnan, cluster_bootstrap(None, [np.array([1.0, 2.0])], ["a", "a"], seed=0)))


def test_two_clusters_are_enough_for_an_interval():
    assert cluster_bootstrap(None, [np.array([0.0, 1.0])], None, seed=0) == (0.0, 1.0)
    assert cluster_bootstrap(np.mean, [np.array([0.0, 1.0])], ["a", "b"], seed=0, resamples=500) == (0.0, 1.0)
    low, high = clustered_wilson(np.array([1.0, 1.0, 0.0]), ["a", "a", "b"])
    assert 0.0 <= low < 2 / 3 < high <= 1.0


def test_expanded_tail_by_hand():
    """At level 1/2: t = 1 on one degree of freedom, and sqrt(2/3) on two, where t sqrt(3/2) = 1."""
    assert expanded_tail(2, 0.5) == pytest.approx(stats.norm.cdf(-math.sqrt(2)))
    assert expanded_tail(3, 0.5) == pytest.approx(stats.norm.cdf(-1))


def test_interval_is_of_ten_thousand_resamples_at_the_level_asked_for():
    values = np.random.default_rng(12).normal(size=30)
    assert cluster_bootstrap(None, [values], None, seed=3) == cluster_bootstrap(
        None, [values], None, seed=3, resamples=10_000
    )
    draws = resampled(np.mean, [values], np.arange(30), 30, 200, np.random.default_rng(3), False)
    tail = expanded_tail(30, 0.5)
    assert cluster_bootstrap(np.mean, [values], None, seed=3, resamples=200, level=0.5) == pytest.approx(
        tuple(np.quantile(draws, [tail, 1 - tail]))
    )


def test_labels_of_different_kinds_are_different_labels():
    assert cluster_codes([1, "1", 1], 3).tolist() == [0, 1, 0]


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_cluster_without_items_may_be_drawn_and_a_resample_of_nothing_else_is_undefined(vectorised):
    """Codes 0, 0, 1 of three clusters: as many clusters as items, and yet two items share one."""
    weights = np.array([1.0, 10.0, 100.0])
    given = (np.array([0, 0, 1]), 3, 100)
    found = resampled(lambda x: x.sum(-1), [weights], *given, np.random.default_rng(0), vectorised)
    drawn = np.random.default_rng(0).integers(3, size=(100, 3))
    known = 11.0 * (drawn == 0).sum(1) + 100.0 * (drawn == 1).sum(1)
    assert (known == 0).any()
    assert found == pytest.approx(np.where(known == 0, np.nan, known), nan_ok=True)


def test_items_without_a_label_are_clusters_of_their_own():
    assert cluster_codes(np.array(["b", None, "b", float("nan"), ""], dtype=object), 5).tolist() == [0, 2, 0, 3, 1]
    assert cluster_codes(None, 3).tolist() == [0, 1, 2]


def test_spans_gather_every_item_of_every_drawn_cluster():
    assert intervals._spans(np.array([5, 0, 5]), np.array([2, 1, 2])).tolist() == [5, 6, 0, 5, 6]


def test_agrees_with_scipy_on_unclustered_means():
    values = np.random.default_rng(1).exponential(size=80)
    ours = cluster_bootstrap(None, [values], None, resamples=20_000, seed=2)
    level = 1 - 2 * expanded_tail(80)  # the same cut of the same distribution
    known = stats.bootstrap([values], np.mean, n_resamples=20_000, method="percentile", confidence_level=level, rng=3)
    width = known.confidence_interval.high - known.confidence_interval.low
    assert ours == pytest.approx(tuple(known.confidence_interval), abs=0.03 * width)


def test_agrees_with_scipy_on_an_unclustered_ratio_of_two_arrays():
    rng = np.random.default_rng(4)
    top, bottom = rng.normal(5, 1, 60), rng.normal(9, 2, 60)

    def ratio(x, y, axis=-1):
        return x.mean(axis=axis) / y.mean(axis=axis)

    ours = cluster_bootstrap(ratio, [top, bottom], None, resamples=20_000, seed=5, vectorised=True)
    level = 1 - 2 * expanded_tail(60)
    known = stats.bootstrap(
        [top, bottom], ratio, paired=True, n_resamples=20_000, method="percentile", confidence_level=level, rng=6
    )
    width = known.confidence_interval.high - known.confidence_interval.low
    assert ours == pytest.approx(tuple(known.confidence_interval), abs=0.03 * width)


def test_few_kinds_and_many_kinds_of_cluster_agree(monkeypatch):
    values = (np.arange(200) % 3 == 0).astype(float)
    clusters = np.arange(200) // 4
    counted = cluster_bootstrap(None, [values], clusters, seed=7, resamples=20_000)
    monkeypatch.setattr(intervals, "_FEW_KINDS", 0)
    drawn = cluster_bootstrap(None, [values], clusters, seed=7, resamples=20_000)
    assert counted == pytest.approx(drawn, abs=0.003)


@pytest.mark.parametrize(
    "clusters", [None, np.arange(50) // 5, np.repeat(["a", "b", "c", "d", "e"], [1, 2, 7, 15, 25])]
)
def test_mean_vectorised_and_one_by_one_are_the_same_interval(clusters):
    values = np.random.default_rng(8).normal(size=50)
    fast = cluster_bootstrap(None, [values], clusters, seed=9, resamples=500)
    together = cluster_bootstrap(lambda x: x.mean(axis=-1), [values], clusters, seed=9, resamples=500, vectorised=True)
    single = cluster_bootstrap(np.mean, [values], clusters, seed=9, resamples=500)
    assert together == pytest.approx(single)
    if clusters is None or len(set(clusters)) > intervals._FEW_KINDS:  # else another draw of the same distribution
        assert fast == pytest.approx(single)


def test_chunks_do_not_change_the_resamples(monkeypatch):
    values = np.random.default_rng(10).normal(size=40)

    def middle(x):
        return np.median(x, axis=-1)

    def found():
        together = cluster_bootstrap(middle, [values], None, seed=11, resamples=300, vectorised=True)
        one_by_one = cluster_bootstrap(middle, [values], np.arange(40) // 2, seed=11, resamples=300)
        return together, one_by_one, cluster_bootstrap(None, [values], None, seed=11, resamples=300)

    whole = found()
    monkeypatch.setattr(intervals, "_CELLS", 400)
    assert found() == whole
    monkeypatch.setattr(intervals, "_CELLS", 1)  # not even one resample: one at a time
    assert found() == whole


def test_items_of_a_cluster_stay_together():
    rows = np.arange(12.0)
    clusters = np.array(["x", "y", "z"] * 4)
    seen = []

    def note(x):
        seen.append(sorted(x % 3))
        return 0.0

    cluster_bootstrap(note, [rows], clusters, seed=0, resamples=20)
    assert all(found.count(cluster) % 4 == 0 for found in seen for cluster in (0.0, 1.0, 2.0))


def test_same_seed_same_interval_another_seed_another():
    values = np.random.default_rng(0).normal(size=100)
    first, again, other = (cluster_bootstrap(None, [values], None, seed=s, resamples=200) for s in (1, 1, 2))
    assert first == again != other


def test_a_statistic_undefined_in_some_resample_gives_no_interval():
    values = np.array([0.0] * 9 + [1.0])

    def share_of_ones_among_ones(x):
        ones = x.sum(axis=-1)
        return np.divide(ones, ones, out=np.full_like(ones, np.nan), where=ones > 0)

    found = cluster_bootstrap(share_of_ones_among_ones, [values], None, seed=0, resamples=100, vectorised=True)
    assert all(map(math.isnan, found))


@pytest.mark.parametrize(
    ("arrays", "clusters", "said"),
    [
        ([], None, r"got \[\]"),
        ([np.ones(3), np.ones(2)], None, r"of one length, got \[\(3,\), \(2,\)\]"),
        ([np.ones(3)], ["a"], "expected 3 cluster labels, one per item, got 1"),
        ([np.ones((2, 2))], None, r"got \[\(2, 2\)\]"),
    ],
)
def test_arrays_that_do_not_match_are_an_error(arrays, clusters, said):
    with pytest.raises(ValueError, match=said):
        cluster_bootstrap(np.mean, arrays, clusters, seed=0)


def test_the_mean_of_two_arrays_is_an_error():
    with pytest.raises(ValueError, match="got 2"):
        cluster_bootstrap(None, [np.ones(3), np.ones(3)], None, seed=0)


def _coverage(draw, truth, clusters, *, worlds=500, resamples=800) -> float:
    rng = np.random.default_rng(20)
    hits = 0
    for world in range(worlds):
        low, high = cluster_bootstrap(None, [draw(rng)], clusters, seed=world, resamples=resamples)
        hits += low <= truth <= high
    return hits / worlds


@pytest.mark.parametrize("n", [100, 500])
def test_nominal_95_covers_independent_items(n):
    assert 0.90 <= _coverage(lambda rng: rng.exponential(size=n), 1.0, None, worlds=300) <= 0.97


@pytest.mark.parametrize("n", [100, 500])
def test_nominal_95_covers_right_and_wrong_in_clusters_of_five(n):
    clusters = np.arange(n) // 5

    def draw(rng):  # items of a passage are right together: its own rate, 0.6 on average, correlation 1/3
        return (rng.random(n) < np.repeat(rng.beta(1.2, 0.8, n // 5), 5)).astype(float)

    assert 0.90 <= _coverage(draw, 0.6, clusters) <= 0.97
    assert _coverage(draw, 0.6, None) < 0.90  # what ignoring the passages would claim


@pytest.mark.parametrize("n", [100, 500])
def test_nominal_95_of_wilson_covers(n):
    rng = np.random.default_rng(21)
    inside = [low <= 0.3 <= high for low, high in (wilson(k, n) for k in rng.binomial(n, 0.3, 2000))]
    assert 0.93 <= np.mean(inside) <= 0.97


@pytest.mark.parametrize("n", [100, 500])
@pytest.mark.parametrize(("share", "odds"), [(0.6, (1.2, 0.8)), (0.9, (1.8, 0.2))])
def test_nominal_95_of_clustered_wilson_covers(n, share, odds):
    rng = np.random.default_rng(22)
    clusters = np.arange(n) // 5
    hits = []
    for _ in range(500):
        values = (rng.random(n) < np.repeat(rng.beta(*odds, n // 5), 5)).astype(float)
        low, high = clustered_wilson(values, clusters)
        hits.append(low <= share <= high)
    assert 0.90 <= np.mean(hits) <= 0.98
