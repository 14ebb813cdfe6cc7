"""Variance components, intervals over prompts, planning and the choice of a prompt, by hand and by invariance."""

import math

import numpy as np
import pytest
from scipy import stats
from vernacular.comparison.over_prompts import best_prompt, ranks_by_prompt
from vernacular.statistics.over_prompts import (
    LIKE_THESE,
    THESE,
    Components,
    accuracy_components,
    cluster_table,
    clustered_variance,
    components,
    design_table,
    mean_over_prompts,
    mean_squares,
    probability_better,
    resampled_variance,
    smallest_difference,
    standard_error,
)

HAND = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])


def over(values, clusters=None):
    """The mean over prompts of (items, prompts) or (items, prompts, seeds)."""
    variance, n_clusters = clustered_variance(values.reshape(len(values), -1).mean(1), clusters)
    return mean_over_prompts(values.mean(0), variance, n_clusters)


def draw(rng, shape, sd):
    """A normal table: independent effects of each factor and their interaction, SD by effect."""
    table = np.full(shape, 0.5)
    for axes, scale in sd.items():
        table = table + scale * rng.standard_normal([size if axis in axes else 1 for axis, size in enumerate(shape)])
    return table


def test_hand_computed_table():
    squares = mean_squares(HAND)
    assert {effect: round(ms, 6) for effect, (ms, _) in squares.items()} == {
        (0,): 0.5,
        (1,): 0.166667,
        (0, 1): 0.166667,
    }
    variance, n_clusters = clustered_variance(HAND.mean(1))
    assert variance == pytest.approx(1 / 12)
    b = HAND.mean(0).var(ddof=1) / 2
    assert b == pytest.approx(1 / 36)
    assert components(HAND).of("prompts") == 0
    # three prompts are the fewest for the interval; the formula itself, on the two of the hand table:
    from vernacular.statistics.over_prompts import _satterthwaite

    se, df = _satterthwaite([(variance, n_clusters - 1), (b, 1)])
    assert se == pytest.approx(1 / 3)
    assert df == pytest.approx((1 / 9) ** 2 / ((1 / 12) ** 2 / 2 + (1 / 36) ** 2))
    assert round(df, 2) == 2.91


def test_components_of_normal_tables_are_unbiased_and_the_interval_holds():
    rng = np.random.default_rng(1)
    estimates, held = [], []
    for _ in range(2000):
        table = draw(rng, (100, 5), {(0,): 0.2, (1,): 0.02, (0, 1): 0.17})
        found = components(table)
        estimates.append([found.variances[effect] for effect in ((0,), (1,), (0, 1))])
        interval = over(table)
        held.append(interval.low <= 0.5 <= interval.high)
    means, errors = np.mean(estimates, 0), np.std(estimates, 0) / np.sqrt(2000)
    assert (np.abs(means - [0.04, 0.0004, 0.0289]) <= 3 * errors).all()
    assert 0.945 <= np.mean(held) <= 0.975


@pytest.mark.slow
def test_components_of_three_factors_are_unbiased():
    rng = np.random.default_rng(2)
    sd = {(0,): 0.2, (1,): 0.05, (2,): 0.03, (0, 1): 0.1, (0, 2): 0.08, (1, 2): 0.04, (0, 1, 2): 0.17}
    tables = [components(draw(rng, (40, 5, 4), sd)).variances for _ in range(2000)]
    for effect, scale in sd.items():
        values = np.array([variances[effect] for variances in tables])
        assert abs(values.mean() - scale**2) <= 4 * values.std() / np.sqrt(len(values)), effect


def test_shares_are_those_of_one_run():
    found = Components((100, 5), {(0,): 0.043, (1,): 0.00056, (0, 1): 0.028})
    shares = found.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert [round(100 * shares[name]) for name in ("items", "prompts", "items × prompts")] == [34, 44, 22]
    assert Components((3, 2), {(0,): 0.0, (1,): -0.1, (0, 1): 0.0}).shares() == {}


def test_prompts_with_equal_values_give_the_interval_over_items():
    rng = np.random.default_rng(3)
    items = rng.random((60, 1)).repeat(5, axis=1)
    found = over(items)
    assert (found.se_prompts, found.df) == (0, pytest.approx(59))
    reference = stats.t.interval(0.95, 59, loc=items.mean(), scale=items[:, 0].std(ddof=1) / np.sqrt(60))
    assert (found.low, found.high) == pytest.approx(reference)


def test_items_with_equal_values_give_the_interval_over_prompts():
    prompts = np.array([[0.5, 0.6, 0.4, 0.7, 0.5]]).repeat(30, axis=0)
    found = over(prompts)
    assert (found.se_items, found.df) == (pytest.approx(0), pytest.approx(4))
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 4, loc=0.54, scale=prompts[0].std(ddof=1) / np.sqrt(5))
    )


def test_items_doubled_within_their_clusters_change_nothing():
    rng = np.random.default_rng(4)
    values = rng.random((40, 5))
    once, twice = over(values), over(np.repeat(values, 2, axis=0), [str(i) for i in range(40) for _ in range(2)])
    for name in ("value", "se_items", "se_prompts", "df", "low", "high"):
        assert getattr(twice, name) == pytest.approx(getattr(once, name), rel=1e-9), name


def test_order_of_prompts_and_items_does_not_matter():
    rng = np.random.default_rng(5)
    values = rng.random((40, 5))
    found, permuted = over(values), over(values[rng.permutation(40)][:, rng.permutation(5)])
    assert (permuted.low, permuted.high, permuted.df) == pytest.approx((found.low, found.high, found.df))


def test_clusters_of_unequal_size_have_the_mean_over_items():
    rng = np.random.default_rng(6)
    values, clusters = rng.random((9, 4)), list("aaabbcccc")
    table = cluster_table(values, clusters)
    assert table.shape == (3, 4)
    assert table.mean(0) == pytest.approx(values.mean(0))
    # the squared standard error over clusters is MS_C / (C K), with the clusters' weights
    variance, n_clusters = clustered_variance(values.mean(1), clusters)
    assert variance == pytest.approx(mean_squares(table)[0,][0] / table.size)
    assert n_clusters == 3


def test_variance_over_fewer_than_two_clusters_is_unknown():
    for values, clusters, n_clusters in (([0.5, 0.7], ["a", "a"], 1), ([0.5], None, 1), ([], None, 0)):
        variance, found = clustered_variance(np.array(values), clusters)
        assert np.isnan(variance)
        assert found == n_clusters


def test_fewer_than_three_prompts_answer_for_these_prompts_only():
    rng = np.random.default_rng(7)
    values = rng.random((50, 2))
    found = over(values)
    assert found.question == THESE
    assert found.se == pytest.approx(found.se_items)
    assert found.df == 49
    assert np.isnan(probability_better(0.1, 0.01, 0.1, 2))
    assert over(rng.random((50, 3))).question == LIKE_THESE


def test_seeds_that_are_crossed_with_prompts_are_a_third_term():
    rng = np.random.default_rng(8)
    values = rng.random((50, 5, 3))
    found = over(values)
    squares = mean_squares(values)
    assert found.se**2 == pytest.approx(sum(squares[effect][0] for effect in ((0,), (1,), (2,))) / values.size)


def test_degrees_of_freedom_are_those_of_clusters_and_of_prompts():
    """Four prompts and three clusters: a = 1/6 on 2 degrees, b = (1/3) / 4 = 1/12 on 3, together 1/4 on 27/7."""
    found = mean_over_prompts([0.0, 0.0, 1.0, 1.0], 1 / 6, 3, level=0.9)
    assert (found.value, found.se, found.df) == pytest.approx((0.5, 0.5, 27 / 7))
    assert (found.se_items**2, found.se_prompts**2, found.sd_prompts**2) == pytest.approx((1 / 6, 1 / 12, 1 / 3))
    assert found.p == pytest.approx(2 * stats.t.sf(1, 27 / 7))
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.9, 27 / 7, loc=0.5, scale=0.5))
    two = mean_over_prompts([0.0, 1.0], 1 / 4, 3)
    assert (two.se, two.df, two.p) == pytest.approx((0.5, 2, 2 * stats.t.sf(1, 2)))
    assert (two.se_prompts, two.sd_prompts) == pytest.approx((0.5, np.sqrt(0.5)))


def test_mean_without_spread_differs_from_0_or_not_but_has_no_interval():
    equal, other = mean_over_prompts([0.0] * 3, 0.0, 9), mean_over_prompts([0.5] * 3, 0.0, 9)
    assert (equal.p, equal.se, other.se) == (1, 0, 0)
    assert np.isnan([other.p, equal.low, equal.high, other.low, other.high, other.df]).all()
    unknown = mean_over_prompts([0.5, 0.6, 0.7], float("nan"), 1)
    assert np.isnan([unknown.p, unknown.se, unknown.df, unknown.low]).all()


def test_spread_of_prompts_that_are_crossed_with_seeds_is_that_of_their_means():
    """Means of prompts 1, 3, 5: variance 4, b = 4/3; means of seeds 2, 4: variance 2, over their number 1."""
    found = mean_over_prompts([[0.0, 2.0], [2.0, 4.0], [4.0, 6.0]], 2 / 3, 5)
    assert (found.value, found.sd_prompts, found.se_prompts**2, found.se**2) == pytest.approx((3, 2, 7 / 3, 3))
    assert found.df == pytest.approx(9 / ((2 / 3) ** 2 / 4 + (4 / 3) ** 2 / 2 + 1 / 1))


def mean(values):
    return values.mean(-1)


def test_resampled_variance_is_that_of_a_mean_with_few_clusters():
    """Means over prompts 1, 1, 7: variance 12, over three clusters 4; without C / (C - 1), it would be 8/3."""
    prompts = [[np.array([0.0, 2.0, 4.0])], [np.array([2.0, 0.0, 10.0])]]
    exact, _ = clustered_variance(np.array([1.0, 1.0, 7.0]))
    assert exact == pytest.approx(4)
    found = resampled_variance(mean, prompts, None, resamples=10_000)
    assert found == (pytest.approx(exact, rel=0.03), 3)
    twice = [[np.repeat(values, 2)] for (values,) in prompts]  # items of one cluster are drawn together
    assert resampled_variance(mean, twice, list("aabbcc"), resamples=10_000) == found
    two = resampled_variance(mean, [[np.array([0.0, 2.0])]], None, resamples=10_000)
    assert two == (pytest.approx(1, rel=0.03), 2)


def test_draws_of_clusters_are_shared_by_prompts_and_their_variance_is_that_of_a_sample():
    first, second = np.array([1.0, 5.0, 2.0]), np.array([3.0, 3.0, 9.0])
    draws = np.random.default_rng(7).integers(3, size=(5, 3))
    means = [(first[drawn].mean() + second[drawn].mean()) / 2 for drawn in draws]
    expected = np.var(means, ddof=1) * 3 / 2
    found = resampled_variance(mean, [[first], [second]], None, seed=7, resamples=5)
    assert found == (pytest.approx(expected), 3)
    default = resampled_variance(mean, [[first], [second]], None)
    assert default == resampled_variance(mean, [[first], [second]], None, seed=0, resamples=500)


def test_resampled_variance_is_unknown_with_one_cluster_or_where_the_statistic_is():
    values = np.array([0.0, 1.0])
    variance, n_clusters = resampled_variance(mean, [[values]], ["a", "a"])
    assert np.isnan(variance)
    assert n_clusters == 1

    def undefined(values):
        return np.where(values.any(-1), values.mean(-1), np.nan)

    variance, n_clusters = resampled_variance(undefined, [[values]], None)
    assert np.isnan(variance)
    assert n_clusters == 2


def test_probability_of_a_lead_under_another_prompt():
    """2 / √(3 + 1²) is 1; with two degrees of freedom, t is below 1 with a probability of 1/2 + 1 / (2 √3)."""
    assert probability_better(2.0, 3.0, 1.0, 3) == pytest.approx(0.5 + 1 / np.sqrt(12))
    assert probability_better(-2.0, 3.0, 1.0, 3) == pytest.approx(0.5 - 1 / np.sqrt(12))
    assert probability_better(4.0, -1.0, 2.0, 6) == pytest.approx(stats.t.cdf(2, 5))  # an estimate may be below 0
    assert [probability_better(d, -1.0, 0.0, 3) for d in (-1.0, 0.0, 1.0)] == [0, 0.5, 1]
    assert np.isnan([probability_better(*known, 3) for known in ((np.nan, 1, 1), (1, np.inf, 1), (1, 1, np.nan))]).all()


def test_ranks_share_ties_and_follow_the_direction():
    values = np.array([[0.5, 0.6], [0.7, 0.6]])
    assert ranks_by_prompt(values).tolist() == [[2, 1], [1, 1]]
    assert ranks_by_prompt(values, higher_is_better=False).tolist() == [[1, 1], [2, 1]]


def test_value_of_the_best_prompt_is_corrected_for_the_choice():
    rng = np.random.default_rng(9)
    tables = [draw(rng, (100, 5), {(0,): 0.2, (0, 1): 0.3}) for _ in range(200)]  # no prompt is better
    best = [best_prompt(table) for table in tables]
    shown, corrected = [table.mean(0)[i] for table, (i, _) in zip(tables, best, strict=True)], [c for _, c in best]
    error = np.std(corrected) / np.sqrt(200)
    assert np.mean(shown) - 0.5 > 0.025  # e_5 = 1.16 times 0.03
    assert abs(np.mean(corrected) - 0.5) < 4 * error
    assert best_prompt(-tables[0], higher_is_better=False) == (best[0][0], pytest.approx(-best[0][1]))
    assert np.isnan(best_prompt(tables[0][:3])[1])


def test_a_prompt_that_is_truly_better_keeps_its_value():
    table = np.tile([0.2, 0.9, 0.4], (50, 1))
    assert best_prompt(table) == (1, pytest.approx(0.9))


def test_planning_prefers_prompts_to_items():
    found = Components((100, 5), {(0,): 0.043, (1,): 0.00056, (0, 1): 0.028})  # clusters of five items
    assert standard_error(found, 100, 5) < standard_error(found, 400, 1)  # 500 items × 5 prompts, 2,000 × 1
    rows = design_table(found, found, [100])
    assert [design.prompts for design in rows] == [1, 2, 3, 5, 10]
    # one and two prompts: √((0.043 + 0.028 / k) / 100) · (t(0.975) + t(0.8)) on 99 degrees of freedom
    assert [design.smallest_difference for design in rows[:2]] == pytest.approx([0.0754, 0.0676], abs=1e-4)
    assert math.isnan(smallest_difference(found, 1, 1))
    assert smallest_difference(found, 100, 10) < smallest_difference(found, 100, 3)


def test_planned_difference_is_found_four_times_of_five():
    rng = np.random.default_rng(10)
    sd = {(0,): 0.4, (1,): 0.03, (0, 1): 0.3}
    planned = smallest_difference(Components((100, 5), {effect: scale**2 for effect, scale in sd.items()}), 100, 5)
    found = [over(draw(rng, (100, 5), sd) - 0.5 + planned).p < 0.05 for _ in range(1000)]
    assert 0.72 <= np.mean(found) <= 0.88


def test_assumed_components_are_those_of_the_simulation():
    of_value, of_difference = accuracy_components(0.0236, items_per_cluster=5)  # prompts 2 points, seeds 1, both 0.7
    assert (of_value.of("items"), of_value.of("items", "prompts")) == pytest.approx((0.043, 0.028), rel=0.05)
    published = [4.8, 4.1, 3.9, 3.6, 3.5, 3.6, 2.9, 2.7, 2.5, 2.3, 2.7, 2.1, 1.8, 1.5, 1.3]  # some in docs/prompts.md
    planned = [100 * design.se for design in design_table(of_value, of_difference, [40, 100, 400])]
    assert planned == pytest.approx(published, abs=0.07)
