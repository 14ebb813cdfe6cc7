"""Statistics of training curves against cases worked out by hand, and scipy."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from vernacular.statistics import curves
from vernacular.statistics.paired import mean_differences

STEPS = np.array([0, 1, 10, 100, 1000, 10_000], dtype=float)
CURVE = np.array([0.25, 0.24, 0.35, 0.30, 0.45, 0.45])


def test_spearman_uses_mean_ranks_of_ties():
    assert curves.mean_ranks(CURVE).tolist() == [2, 1, 4, 3, 5.5, 5.5]
    expected = stats.spearmanr(STEPS, CURVE).statistic
    assert curves.spearman(STEPS, CURVE) == pytest.approx(expected, abs=1e-12)
    draws = np.round(np.random.default_rng(1).normal(size=(50, 8)), 1)
    expected = [stats.spearmanr(np.arange(8), row).statistic for row in draws]
    assert curves.spearman(np.arange(8), draws) == pytest.approx(expected, abs=1e-12)


def test_spearman_of_a_constant_or_of_two_points_is_undefined():
    assert math.isnan(curves.spearman(STEPS, np.full(6, 0.4)))
    assert math.isnan(curves.spearman(STEPS[:2], CURVE[:2]))


def test_rises_and_falls_do_not_count_ties():
    assert curves.rises_and_falls(CURVE) == (2, 2)


def test_since_is_the_start_of_the_last_run_of_true():
    assert curves.since([False, True, False, True, True]) == 3
    assert curves.since([True, True]) == 0
    assert curves.since([True, False]) is None
    assert curves.since([]) is None


def test_learned_first_stay_and_interpolated():
    point = curves.learned(STEPS, CURVE, 0.25, 0.5)  # target 0.35: reached at 10, left at 100
    assert (point.first, point.stay) == (2, 4)
    # between 1 (0.24) and 10 (0.35) the target is the end point itself
    assert point.interpolated == pytest.approx(10)
    halfway = curves.learned(STEPS, CURVE, 0.25, 0.25)  # target 0.30, (0.30 - 0.24) / 0.11 of a decade after 1
    assert halfway.interpolated == pytest.approx(10 ** (0.06 / 0.11))
    from_zero = curves.learned(np.array([0.0, 10, 100]), np.array([0.2, 0.4, 0.4]), 0.2, 0.5)
    assert from_zero.first == 1
    assert math.isnan(from_zero.interpolated)  # step 0 has no logarithm


def test_interpolated_counts_censored_resamples():
    draws = np.array([CURVE, CURVE - 0.2 * (STEPS == 10_000) - 0.01, CURVE[::-1]])
    x = curves.interpolated(STEPS, draws, 0.25, 0.5)
    assert x[0] == pytest.approx(10)
    assert x[1] == math.inf  # ends below chance
    assert curves.percentile_interval(np.array([1.0, 2, math.inf, math.inf]), 0.25) == (2.0, math.inf)
    assert all(math.isnan(bound) for bound in curves.percentile_interval(np.array([1.0, math.nan])))


def test_noise_is_of_the_last_checkpoints_and_its_residuals_exclude_learning():
    values = np.array([0.1, 0.50, 0.52, 0.48, 0.51, 0.49])
    assert curves.noise(values) == pytest.approx(np.std(values[1:]))
    assert math.isnan(curves.noise(values[:4]))
    x = np.array([1.0, 2, 4, 8, 16])
    assert curves.residual_noise(x, 0.3 + 0.1 * np.log(x)) == pytest.approx(0, abs=1e-12)
    assert curves.noise(0.3 + 0.1 * np.log(x)) > 0.09
    fit = stats.linregress(np.log(x), values[1:])
    residuals = values[1:] - fit.intercept - fit.slope * np.log(x)
    assert curves.residual_noise(x, values[1:]) == pytest.approx(np.sqrt((residuals**2).sum() / 3))


def test_slope_of_the_last_third():
    x = np.arange(9, dtype=float)
    values = np.concatenate([np.arange(6), [6, 6.5, 7.0]])
    assert curves.last_third_slope(x, values) == pytest.approx(0.5)
    assert curves.last_third_slope(x[:4], values[:4]) == pytest.approx(1)  # at least three points
    assert math.isnan(curves.last_third_slope(x[:2], values[:2]))


def test_area_between_is_a_mean_difference_over_x():
    x = np.array([0.0, 1, 3])
    assert curves.area_between(x, np.zeros(3), np.full(3, 0.2)) == pytest.approx(0.2)
    draws = curves.area_between(x, np.zeros((2, 3)), np.array([[0, 1, 1], [1.0, 0, 0]]))
    assert draws.tolist() == pytest.approx([2.5 / 3, 0.5 / 3])


def test_optimism_of_choosing_the_best_is_that_of_independent_checkpoints():
    """The expected maximum of 10 standard normal numbers is 1.5388."""
    draws = np.random.default_rng(0).normal(size=(20_000, 10))
    assert curves.selection_optimism(np.zeros(10), draws) == pytest.approx(1.5388, abs=0.03)
    assert curves.selection_optimism(np.array([0.0] * 9 + [100]), draws + np.array([0] * 9 + [100])) == 0
    assert math.isnan(curves.selection_optimism(np.zeros(10), draws[:0]))


def test_signal_and_noise_by_the_published_formula():
    signal = curves.signal(np.array([0.40, 0.50, 0.55]))
    noise = curves.relative_noise(np.array([0.50, 0.52, 0.48, 0.51, 0.49]))
    assert (round(float(signal), 6), round(float(noise), 6)) == (0.310345, 0.028284)
    assert round(float(signal / noise), 4) == 10.9723


def test_signal_needs_two_models_of_one_sign():
    assert math.isnan(curves.signal(np.array([0.4])))
    assert math.isnan(curves.signal(np.array([-0.1, 0.1])))


def test_noise_is_within_runs_and_not_pooled():
    runs = np.array([[0.5, 0.5, 0.5, 0.5, 0.51], [0.7, 0.7, 0.7, 0.7, 0.71]])
    pooled = runs.std() / runs.mean()
    assert curves.relative_noise(runs).mean() < pooled / 10


def test_ties_count_half_in_decision_accuracy_whatever_the_order_of_models():
    early, late = np.array([1, 1, 2]), np.array([1, 2, 3])
    assert curves.decision_accuracy(early, late) == pytest.approx(2.5 / 3)
    assert curves.decision_accuracy(early[::-1], late[::-1]) == pytest.approx(2.5 / 3)
    assert curves.decision_accuracy(late[::-1], late) == 0
    assert math.isnan(curves.decision_accuracy(early[:1], late[:1]))


def test_rank_consistency_is_the_mean_tau_of_neighbors():
    values = np.array([[1, 1, 3.0], [2, 2, 2], [3, 3, 1]])
    assert curves.rank_consistency(values) == pytest.approx((1 - 1) / 2)
    assert curves.rank_consistency(values[:, :2]) == 1
    taus = [stats.kendalltau(values[:, k], values[:, k + 1]).statistic for k in range(2)]  # without ties, tau-b = tau-a
    assert curves.rank_consistency(values) == pytest.approx(np.mean(taus))


def test_finetasks_ratio_over_seeds():
    seeds = np.array([[0.30, 0.35, 0.40], [0.31, 0.36, 0.39], [0.30, 0.37, 0.42], [0.32, 0.34, 0.41]])
    assert round(curves.seed_noise(seeds), 6) == 0.011798
    assert round(curves.seed_signal_to_noise(seeds), 4) == 34.3277
    with warnings.catch_warnings(action="error"):  # nothing is printed for a single seed
        assert math.isnan(curves.seed_noise(seeds[:1]))
        assert math.isnan(curves.seed_signal_to_noise(seeds[:1]))


def test_paired_difference_of_neighbors_is_tighter_than_unpaired():
    """1,000 items, of which 120 are won and 80 lost: 0.040 with a paired standard error of 0.0141 (unpaired 0.0223)."""
    before = np.repeat([0.0, 1, 1, 0], [120, 80, 400, 400])
    after = np.repeat([1.0, 0, 1, 0], [120, 80, 400, 400])
    result = mean_differences((after - before)[:, None], np.arange(1000), np.array([True]), resamples=500, seed=0)
    assert result.value[0] == pytest.approx(0.040)
    assert result.se[0] == pytest.approx(0.0141, abs=5e-5)
    unpaired = np.sqrt(before.var() / 1000 + after.var() / 1000)
    assert unpaired == pytest.approx(0.0223, abs=5e-5)
