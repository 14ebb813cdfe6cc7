"""Statistics of training curves: K values of one metric at K checkpoints in the order of training.

`values` has the shape (K,), or (R, K) for R resamples of the items, drawn jointly for all checkpoints: each statistic
is then computed per resample, and its interval accounts for the items that the checkpoints share. No statistic smooths
or interpolates over a missing checkpoint; NaN values are removed by the caller.

Statistics of several curves show whether a task separates models while they are trained: M runs at K common
checkpoints, as values of the shape (…, M, K); the leading axis, if any, holds resamples of the items, drawn jointly for
all runs. Noise is measured within each run and never pooled: the differences between runs are the signal.

Sources: signal and noise, Heineman et al. 2025 (arXiv 2508.13144); monotonicity, FineTasks (Hugging Face 2024); steps
to a share of the final accuracy, Evanson et al. 2023 (ACL Findings 773), here above chance.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri

from vernacular.statistics.intervals import mean_ranks

MIN_POINTS = 3  # for a statistic of the shape of a curve
MIN_NOISE_POINTS = 5  # of the end of a curve
SHARES = (0.5, 0.9)  # of the rise above chance, for `learned`


def spearman(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation of x and values, ties with mean ranks; NaN if constant or fewer than 3 points.

    >>> round(float(spearman(np.arange(4), np.array([1.0, 2.0, 2.0, 5.0]))), 6)
    0.948683
    """
    if np.shape(values)[-1] < MIN_POINTS:
        return np.full(np.shape(values)[:-1], np.nan)
    left, right = mean_ranks(np.asarray(x, dtype=float)), mean_ranks(values)
    left, right = left - left.mean(), right - right.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (right @ left) / np.sqrt((left @ left) * (right**2).sum(axis=-1))


def rises_and_falls(values: np.ndarray) -> tuple[int, int]:
    """Return the numbers of neighboring checkpoints between which the value rises and falls."""
    changes = np.diff(values)
    return int((changes > 0).sum()), int((changes < 0).sum())


def noise(values: np.ndarray, window: int = MIN_NOISE_POINTS) -> np.ndarray:
    """Return the population standard deviation of the last `window` checkpoints; NaN with fewer checkpoints."""
    values = np.asarray(values, dtype=float)
    if values.shape[-1] < window:
        return np.full(values.shape[:-1], np.nan)
    return values[..., -window:].std(axis=-1)


def residual_noise(x: np.ndarray, values: np.ndarray, window: int = MIN_NOISE_POINTS) -> np.ndarray:
    """Return the standard deviation of the residuals of the last checkpoints around a line in ln x.

    Learning that continues does not count as noise, as it does in `noise`. Two parameters are fitted: window - 2
    degrees of freedom. NaN with fewer checkpoints.
    """
    values = np.asarray(values, dtype=float)
    if values.shape[-1] < window or np.asarray(x)[-window] <= 0:
        return np.full(values.shape[:-1], np.nan)
    position = np.log(np.asarray(x, dtype=float)[-window:])
    position -= position.mean()
    end = values[..., -window:]
    slope = (end @ position) / (position @ position)
    residuals = end - end.mean(axis=-1, keepdims=True) - slope[..., None] * position
    return np.sqrt((residuals**2).sum(axis=-1) / (window - 2))


def last_third_slope(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the least-squares slope (per unit of x) of the last third of the checkpoints, at least three of them."""
    values, x = np.asarray(values, dtype=float), np.asarray(x, dtype=float)
    count = max(MIN_POINTS, math.ceil(len(x) / 3))
    if len(x) < MIN_POINTS:
        return np.full(values.shape[:-1], np.nan)
    position = x[-count:] - x[-count:].mean()
    return (values[..., -count:] @ position) / (position @ position)


def since(flags) -> int | None:
    """Return the index from which on every flag is true; None if the last one is false.

    >>> since([True, False, True, True]), since([True, False])
    (2, None)
    """
    flags = np.asarray(flags, dtype=bool)
    if not len(flags) or not flags[-1]:
        return None
    return int(len(flags) - np.argmin(flags[::-1])) if not flags.all() else 0


class Learned(NamedTuple):
    """When a curve reached a target; None or NaN if it did not, or ends below it."""

    first: int | None  # index of the first checkpoint at the target
    stay: int | None  # index from which on all checkpoints are
    interpolated: float  # x of the first crossing, linear in the value against log10 x; NaN at x = 0 or the first point


def learned(x: np.ndarray, values: np.ndarray, chance: float, share: float) -> Learned:
    """Return when a curve reached `chance + share * (final - chance)`, where the final value is the last.

    Meaningless if the final value is not above chance, which the caller checks (for an interval: on the original data).
    """
    x, values = np.asarray(x, dtype=float), np.asarray(values, dtype=float)
    target = chance + share * (values[-1] - chance)
    reached = values >= target
    if not reached.any():
        return Learned(None, None, float("nan"))
    first = int(np.argmax(reached))
    if first == 0 or x[first - 1] <= 0:
        return Learned(first, since(reached), float("nan"))
    before, after = np.log10(x[first - 1]), np.log10(x[first])
    fraction = (target - values[first - 1]) / (values[first] - values[first - 1])
    return Learned(first, since(reached), float(10 ** (before + fraction * (after - before))))


def interpolated(x: np.ndarray, draws: np.ndarray, chance: float, share: float) -> np.ndarray:
    """Return the interpolated x of `learned` in each resample (R, K), with its own final value.

    Censored resamples count: -inf where the first checkpoint is already at the target, inf where the curve does not end
    above chance.
    """
    result = np.empty(len(draws))
    for i, values in enumerate(draws):
        point = learned(x, values, chance, share)
        is_early = point.first == 0 or math.isnan(point.interpolated)
        result[i] = math.inf if values[-1] <= chance else -math.inf if is_early else point.interpolated
    return result


def selection_optimism(values: np.ndarray, draws: np.ndarray) -> float:
    """Return by how much the best of K values overstates that checkpoint, because it was chosen on the same items.

    Efron's optimism: the best checkpoint of a resample (R, K) in the resample, minus its value in the data (K,);
    the same for the fixed checkpoint is subtracted, whose mean is 0. Never negative; higher is better. NaN without
    resamples.

    >>> round(selection_optimism(np.array([0.5, 0.5]), np.array([[0.4, 0.6], [0.6, 0.4]])), 6)
    0.1
    """
    if not len(draws):
        return float("nan")
    fixed = int(np.argmax(values))
    chosen = draws.argmax(axis=1)
    optimism = draws.max(axis=1) - values[chosen] - (draws[:, fixed] - values[fixed])
    return float(optimism.mean())


def area_between(x: np.ndarray, baseline: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return the area between two curves over x, divided by the length of x: a mean difference (trapezoidal rule).

    >>> round(float(area_between(np.array([0, 1, 3]), np.array([0.0, 0, 0]), np.array([0.0, 1, 1]))), 6)
    0.833333
    """
    x = np.asarray(x, dtype=float)
    halves = np.diff(x) / 2
    weights = np.append(halves, 0) + np.append(0, halves)
    return (np.asarray(candidate) - np.asarray(baseline)) @ (weights / (x[-1] - x[0]))


def percentile_interval(draws: np.ndarray, tail: float = 0.025) -> tuple[float, float]:
    """Return the percentile interval of a statistic's resamples; (nan, nan) if it is undefined in one of them.

    Infinite values are censored ones, and may bound the interval.
    """
    if not len(draws) or np.isnan(draws).any():
        return float("nan"), float("nan")
    low, high = np.quantile(draws, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


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
    return float(np.std(values, axis=0, ddof=1).mean()) if len(values) > 1 else float("nan")


def seed_signal_to_noise(values: np.ndarray) -> float:
    """Return FineTasks' signal-to-noise ratio: mean score of all seeds at the last step over `seed_noise`; (S, K)."""
    spread = seed_noise(values)
    return float(np.asarray(values)[:, -1].mean() / spread) if spread > 0 else float("nan")


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
