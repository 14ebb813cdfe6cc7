"""Calibration errors, against values computed by hand and simulations of a calibrated model."""

import numpy as np
import pytest
from vernacular.metrics.corpus import (
    adaptive_calibration_error,
    calibrated_error,
    expected_calibration_error,
    overconfidence,
)
from vernacular.metrics.spans import probabilities

CONFIDENCE = np.array([0.95, 0.85, 0.75, 0.65, 0.55, 0.45, 0.35, 0.35, 0.62, 0.91])
CORRECT = np.array([1.0, 1, 1, 0, 1, 0, 0, 1, 0, 1])


def test_worked_example():
    assert float(expected_calibration_error(CONFIDENCE, CORRECT)) == pytest.approx(0.301)
    assert float(adaptive_calibration_error(CONFIDENCE, CORRECT, 5)) == pytest.approx(0.211)
    assert float(adaptive_calibration_error(CONFIDENCE, CORRECT)) == pytest.approx(0.211), "5 bins for few items"
    assert float(adaptive_calibration_error(CONFIDENCE, CORRECT, 2)) == pytest.approx(0.043)
    assert float(overconfidence(CONFIDENCE, CORRECT)) == pytest.approx(0.043)


def test_brier_score_of_an_item():
    probability = probabilities([-10.0, -11.0, -12.0, -12.0])
    assert probability.round(6).tolist() == [0.610296, 0.224515, 0.082595, 0.082595]
    assert float(((probability - [1, 0, 0, 0]) ** 2).sum()) == pytest.approx(0.215920, abs=5e-7)


@pytest.mark.parametrize(
    ("n", "expected", "tolerance"), [(100, 0.095, 0.002), (300, 0.055, 0.002), (1000, 0.030, 0.001)]
)
def test_expected_error_of_a_calibrated_model(n, expected, tolerance):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.25, 1, (400, n))
    simulated = expected_calibration_error(confidence, (rng.random((400, n)) < confidence).astype(float))
    assert float(calibrated_error(confidence).mean()) == pytest.approx(expected, abs=tolerance)
    assert float(calibrated_error(confidence).mean()) == pytest.approx(float(simulated.mean()), abs=tolerance)


def test_bins_have_equal_numbers_of_items_and_ignore_their_order():
    rng = np.random.default_rng(1)
    confidence, correct = rng.uniform(0.25, 1, 230), rng.integers(0, 2, 230).astype(float)
    order = np.argsort(confidence)
    expected = sum(abs((confidence - correct)[part].sum()) for part in np.array_split(order, 10)) / 230
    assert float(adaptive_calibration_error(confidence, correct)) == pytest.approx(expected)
    shuffled = rng.permutation(230)
    assert float(adaptive_calibration_error(confidence[shuffled], correct[shuffled])) == pytest.approx(expected)


def test_certain_and_correct_model_has_no_error():
    certain = np.ones(12)
    assert float(calibrated_error(certain)) == float(adaptive_calibration_error(certain, certain)) == 0
    assert float(overconfidence(certain, np.zeros(12))) == 1
