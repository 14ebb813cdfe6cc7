import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from vernacular.statistics import intervals
from vernacular.statistics.intervals import cluster_bootstrap, cluster_codes, clustered_wilson, expanded_tail, wilson


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

    whole = cluster_bootstrap(middle, [values], None, seed=11, resamples=300, vectorised=True)
    monkeypatch.setattr(intervals, "_CELLS", 400)
    assert cluster_bootstrap(middle, [values], None, seed=11, resamples=300, vectorised=True) == whole


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
    ("arrays", "clusters"),
    [([], None), ([np.ones(3), np.ones(2)], None), ([np.ones(3)], ["a"]), ([np.ones((2, 2))], None)],
)
def test_arrays_that_do_not_match_are_an_error(arrays, clusters):
    with pytest.raises(ValueError, match="one"):
        cluster_bootstrap(np.mean, arrays, clusters, seed=0)


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
