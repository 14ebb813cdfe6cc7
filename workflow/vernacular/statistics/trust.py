"""Whether a task separates models while they are trained: statistics of the curves of several training runs.

M runs at K common checkpoints, as values of the shape (…, M, K); the leading axis, if any, holds resamples of the
items, drawn jointly for all runs. Noise is measured within each run and never pooled: the differences between runs
are the signal. Sources: Heineman et al. 2025 (arXiv 2508.13144) and FineTasks (Hugging Face 2024), whose two
signal-to-noise ratios differ.
"""

import numpy as np
from scipy.special import chdtri

from vernacular.statistics.curves import MIN_NOISE_POINTS, noise


def signal(finals: np.ndarray) -> np.ndarray:
    """Return the largest difference between two models, over their mean: finals (…, M) -> (…).

    NaN with fewer than two models, or a mean of 0. The ratio is meaningless for values that may be negative.

    >>> round(float(signal(np.array([0.40, 0.50, 0.55]))), 6)
    0.310345
    """
    finals = np.asarray(finals, dtype=float)
    if finals.shape[-1] < 2:
        return np.full(finals.shape[:-1], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.ptp(finals, axis=-1) / finals.mean(axis=-1)
    return np.where(np.isfinite(ratio), ratio, np.nan)


def relative_noise(values: np.ndarray, window: int = MIN_NOISE_POINTS) -> np.ndarray:
    """Return the noise of the last checkpoints of single runs over their mean: (…, K) -> (…); NaN with a mean of 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = noise(values, window) / np.asarray(values, dtype=float)[..., -window:].mean(axis=-1)
    return np.where(np.isfinite(ratio), ratio, np.nan)


def signal_to_noise(signal_value, noise_value) -> np.ndarray:
    """Return signal over noise; NaN, not infinite, where the noise is 0: the model gives the same answers each time."""
    noise_value = np.asarray(noise_value, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(noise_value > 0, signal_value / noise_value, np.nan)


def decision_accuracy(early: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Return the share of pairs of models in the same order early and late; a tie counts half: (…, M) -> (…).

    The result does not depend on the order of the models, as it does where a tie counts as "not greater".

    >>> round(float(decision_accuracy(np.array([1, 1, 2]), np.array([1, 2, 3]))), 6)
    0.833333
    """
    early_signs, late_signs = _pair_signs(early), _pair_signs(late)
    if early_signs.shape[-1] == 0:
        return np.full(early_signs.shape[:-1], np.nan)
    return (0.5 + 0.5 * early_signs * late_signs).mean(axis=-1)


def rank_consistency(values: np.ndarray) -> np.ndarray:
    """Return the mean Kendall tau-a of the models' order at neighboring checkpoints: (…, M, K) -> (…)."""
    values = np.asarray(values, dtype=float)
    if values.shape[-2] < 2 or values.shape[-1] < 2:
        return np.full(values.shape[:-2], np.nan)
    signs = _pair_signs(np.swapaxes(values, -1, -2))  # (…, K, pairs)
    return (signs[..., 1:, :] * signs[..., :-1, :]).mean(axis=(-1, -2))


def seed_noise(values: np.ndarray) -> float:
    """Return FineTasks' noise: the sample standard deviation over S seeds, averaged over steps: (S, K)."""
    return float(np.asarray(values, dtype=float).std(axis=0, ddof=1).mean()) if len(values) > 1 else float("nan")


def seed_signal_to_noise(values: np.ndarray) -> float:
    """Return FineTasks' signal-to-noise ratio: mean score of all seeds at the last step over `seed_noise`; (S, K)."""
    spread = seed_noise(values)
    return float(np.asarray(values)[:, -1].mean() / spread) if spread > 0 else float("nan")


def seed_above_chance(values: np.ndarray, chance: float) -> float:
    """Return FineTasks' "non-random": best seed above chance at the last step, in standard deviations over seeds."""
    last = np.asarray(values, dtype=float)[:, -1]
    spread = last.std(ddof=1) if len(last) > 1 else 0.0
    return float((last.max() - chance) / spread) if spread > 0 else float("nan")


def _pair_signs(values: np.ndarray) -> np.ndarray:
    """Return the sign of each difference of two models: (…, M) -> (…, pairs)."""
    values = np.asarray(values, dtype=float)
    first, second = np.triu_indices(values.shape[-1], 1)
    return np.sign(values[..., second] - values[..., first])


def noise_interval(noise_value: float, degrees: int, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a standard deviation over checkpoints with `degrees` degrees of freedom (chi-squared).

    Checkpoints are the sample here, not items: the same items are asked at each of them. `noise_value` is a population
    standard deviation (or a mean of several), whose squares sum to about degrees + runs times its square.

    >>> [round(bound, 3) for bound in noise_interval(1.0, 4)]
    [0.67, 3.213]
    """
    if not degrees > 0 or not np.isfinite(noise_value):
        return float("nan"), float("nan")
    tail = (1 - level) / 2
    runs_and_degrees = degrees * MIN_NOISE_POINTS / (MIN_NOISE_POINTS - 1)
    low, high = (noise_value * np.sqrt(runs_and_degrees / chdtri(degrees, share)) for share in (tail, 1 - tail))
    return float(low), float(high)
