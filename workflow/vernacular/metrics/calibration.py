"""Calibration of choices: does the model choose correctly as often as its confidence states?

The expected calibration error of `corpus` is biased upwards: with few items, a perfectly calibrated model has one too.
`calibrated_error` states how large it is expected to be.
"""

import numpy as np

FEW_ITEMS = 200  # below this number of items, 5 bins of equal counts


def adaptive_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int | None = None) -> np.ndarray:
    """Compute the calibration error over bins with equal numbers of items, (…, n) to (…): sum of |gap| of the bins / n.

    `bins` is by default 10, or 5 for fewer than 200 items. The choice itself is one class, unlike in ACE (Nixon et al.
    2019, arXiv 1904.01685), because the classes of shuffled options have no meaning.

    >>> confidence = np.array([0.95, 0.85, 0.75, 0.65, 0.55, 0.45, 0.35, 0.35, 0.62, 0.91])
    >>> correct = np.array([1.0, 1, 1, 0, 1, 0, 0, 1, 0, 1])
    >>> [float(adaptive_calibration_error(confidence, correct, n).round(6)) for n in (5, 2)]
    [0.211, 0.043]
    """
    n = confidence.shape[-1]
    order = np.argsort(confidence, axis=-1, kind="stable")
    gap = np.take_along_axis(confidence - correct, order, -1)
    parts = np.array_split(np.arange(n), bins or (5 if n < FEW_ITEMS else 10))
    return sum(np.abs(gap[..., part].sum(-1)) for part in parts) / n


def overconfidence(confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Compute mean confidence - accuracy: positive for overconfident, negative for underconfident models."""
    return (confidence - correct).mean(-1)


def calibrated_error(confidence: np.ndarray, bins: int = 10) -> np.ndarray:
    """Compute the expected calibration error of a perfectly calibrated model with these confidences.

    In each of the equal-width bins, the gap of such a model has the mean 0 and the variance sum p (1 - p). Its expected
    absolute value is sqrt(2 variance / pi) if the gap is normal; for 100 items or more with confidences uniform on
    (0.25, 1), the result is within 0.002 of that of simulations.
    """
    bin_index = np.maximum(np.ceil(confidence * bins) - 1, 0)
    variance = confidence * (1 - confidence)
    gaps = (np.sqrt(2 / np.pi * np.where(bin_index == i, variance, 0.0).sum(-1)) for i in range(bins))
    return sum(gaps) / confidence.shape[-1]
