"""Statistics over all items: functions from float arrays (…, n), items last, to arrays (…).

Calibration: a model should choose correctly as often as its confidence states. The expected calibration error is biased
upwards: with few items, a perfectly calibrated model has one too. `calibrated_error` states how large it is expected to
be.
"""

import numpy as np

from vernacular.statistics.intervals import chunks, mean_ranks

FOLDS = 10
_CELLS = 200_000  # numbers in an array of a chunk, so that they fit in the cache


def difsur(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Compute 100 * (bad - good) / max(good, bad) of mean surprisals, in percent (Simil-Eval; Rodríguez et al. 2025).

    The result is not rounded, and may be negative; it is 0 if both are 0, as in Simil-Eval.

    >>> float(difsur(8.0, 10.0)), float(difsur(10.0, 8.0)), float(difsur(0.0, 0.0))
    (20.0, -20.0, 0.0)
    """
    maximum = np.maximum(good, bad)
    with np.errstate(invalid="ignore"):
        return np.where((good == 0) & (bad == 0), 0.0, 100 * (bad - good) / maximum)


def difsur_of_pairs(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Compute difsur of the means of paired surprisals."""
    return difsur(good.mean(-1), bad.mean(-1))


def difsur_of_labels(surprisal: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Compute difsur of the mean surprisals of acceptable (label 1) and unacceptable (label 0) sentences."""
    return difsur(masked_mean(surprisal, label == 1), masked_mean(surprisal, label == 0))


def good_mean(surprisal: np.ndarray, label: np.ndarray) -> np.ndarray:
    return masked_mean(surprisal, label == 1)


def bad_mean(surprisal: np.ndarray, label: np.ndarray) -> np.ndarray:
    return masked_mean(surprisal, label == 0)


def masked_mean(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the mean of the values for which `mask` is true; NaN if it is true for none."""
    with np.errstate(invalid="ignore"):
        return np.where(mask, values, 0.0).sum(-1) / mask.sum(-1)


def auc(surprisal: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Compute P(an acceptable sentence has a lower surprisal than an unacceptable one); ties count half.

    Mann & Whitney (1947). NaN if one of the labels is missing.

    >>> float(auc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 1, 0, 0])))
    0.875
    """
    ranks = mean_ranks(surprisal)
    is_bad = label == 0
    n_bad, n_good = is_bad.sum(-1), (label == 1).sum(-1)
    with np.errstate(invalid="ignore"):
        return (np.where(is_bad, ranks, 0.0).sum(-1) - n_bad * (n_bad + 1) / 2) / (n_bad * n_good)


def mcc_cross_validated(surprisal: np.ndarray, label: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Compute the cross-validated Matthews correlation of "surprisal at most t means acceptable".

    Each fold is classified with the threshold t that has the best correlation on the other folds (the lowest of
    several), midway between two of their values; the correlation is that of the predictions of all folds. `fold` has
    values 0 … FOLDS-1. The midpoint to an infinite surprisal is above all finite ones. NaN if all items are in one
    fold, because no others are left to select t.
    """
    shape = surprisal.shape
    rows = [np.asarray(array).reshape(-1, shape[-1]) for array in (surprisal, label == 1, fold)]
    values = np.empty(len(rows[0]))
    for chunk in chunks(len(values), FOLDS * shape[-1], _CELLS):
        values[chunk] = _mcc_cross_validated(*(array[chunk] for array in rows))
    return values.reshape(shape[:-1])


def _mcc_cross_validated(surprisal: np.ndarray, is_good: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Compute the correlation of each row, [k] of arrays [k, n]; arrays within have the shape [k, FOLDS, n]."""
    order = np.argsort(surprisal, axis=-1)
    value, is_good, fold = (np.take_along_axis(array, order, -1) for array in (surprisal, is_good, fold.astype(int)))
    train = fold[:, None] != np.arange(FOLDS)[:, None]
    n_train = np.cumsum(train, axis=-1, dtype=np.int32)
    tp = np.cumsum(train & is_good[:, None], axis=-1, dtype=np.int32)
    scores = _matthews(tp, n_train, tp[..., -1:].astype(float), n_train[..., -1:].astype(float))
    scores = scores.round(12)  # values that differ by rounding only are equal
    is_tied = np.zeros(value.shape, bool)
    is_tied[:, :-1] = value[:, 1:] == value[:, :-1]
    # no threshold lies between equal values, nor below all values of the other folds
    scores[is_tied[:, None] | (n_train == 0)] = -np.inf
    best = scores.argmax(axis=-1)
    positions = np.arange(value.shape[-1])
    above = np.where(train & (positions > best[..., None]), positions, len(positions)).min(-1)  # the next other value
    low = np.take_along_axis(value, best, -1)
    high = np.take_along_axis(value, np.minimum(above, len(positions) - 1), -1)
    midpoint = np.minimum((low + high) / 2, np.finfo(float).max)
    threshold = np.where(above < len(positions), midpoint, low)
    predicted = value <= np.take_along_axis(threshold, fold, -1)
    counts = (predicted & is_good, predicted & ~is_good, ~predicted & is_good, ~predicted & ~is_good)
    return np.where((fold == fold[:, :1]).all(-1), np.nan, matthews(*(mask.sum(-1) for mask in counts)))


def matthews(tp, fp, fn, tn) -> np.ndarray:
    """Compute the Matthews correlation coefficient of counts; 0 if a margin is empty (Chicco & Jurman 2020)."""
    tp, fp, fn, tn = (np.asarray(count, float) for count in (tp, fp, fn, tn))
    return _matthews(tp, tp + fp, tp + fn, tp + fp + fn + tn)


def _matthews(tp: np.ndarray, predicted: np.ndarray, positive: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Compute it from true positives, predicted and actual positives and all items; the last two are floats."""
    product = predicted * positive
    denominator = np.sqrt(product * (n - positive) * (n - predicted))
    return np.divide(tp * n - product, denominator, out=np.zeros_like(denominator), where=denominator > 0)


def matthews_corrcoef(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Compute the Matthews correlation of any number of classes (Gorodkin 2004); 0 if one side is constant.

    >>> float(matthews_corrcoef(np.array([0.0, 1, 1, 0]), np.array([0.0, 1, 0, 1])))
    0.0
    """
    classes = np.union1d(gold, predicted)
    true = np.stack([(gold == label).sum(axis=-1) for label in classes], axis=-1).astype(float)
    guessed = np.stack([(predicted == label).sum(axis=-1) for label in classes], axis=-1).astype(float)
    n, correct = gold.shape[-1], (gold == predicted).sum(axis=-1)
    covariance = correct * n - (true * guessed).sum(axis=-1)
    spread = (n**2 - (true**2).sum(axis=-1)) * (n**2 - (guessed**2).sum(axis=-1))
    return np.divide(covariance, np.sqrt(spread), out=np.zeros_like(covariance, dtype=float), where=spread > 0)


def expected_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 10) -> np.ndarray:
    """Compute the expected calibration error over `bins` equal bins (Guo et al. 2017).

    >>> float(expected_calibration_error(np.array([0.95, 0.85]), np.array([1.0, 0.0])).round(6))
    0.45
    """
    # a bin includes its upper edge: (0, 0.1], (0.1, 0.2] …
    bin_index = np.maximum(np.ceil(confidence * bins) - 1, 0)
    gap = confidence - correct
    total = sum(np.abs(np.where(bin_index == i, gap, 0.0).sum(-1)) for i in range(bins))
    return total / confidence.shape[-1]


def most_common_share(position: np.ndarray) -> np.ndarray:
    """Return the share of the most common position (small integers): the accuracy of always choosing it."""
    highest = int(position.max())
    return np.max([(position == i).mean(-1) for i in range(highest + 1)], axis=0)


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
