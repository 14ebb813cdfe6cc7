"""Estimates from few labels and an automatic score of every item, and the agreement of annotators.

The labels are those of the first clusters of items in a random order. The score is centered on its mean over all items
and subtracted from the labels with a weight that is estimated outside an item's fold, so that any score keeps the
coverage of the interval, and a good one narrows it (Angelopoulos et al. 2023, arXiv 2311.01453; cross-fitting and its
price: Mani et al. 2025, arXiv 2505.20178). Predictions from other models' answers can take the place of a score.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from vernacular.statistics.intervals import chunks, cluster_codes, expanded_tail, wilson_at
from vernacular.statistics.paired import t_test

FOLDS = 5
MIN_CLUSTERS = 10  # labeled; with fewer, the labels alone are the estimate
PENALTY = 20.0  # of the ridge regression, on the sum of squares


@dataclass(frozen=True)
class Estimate:
    """A mean over all items, from the labels of some."""

    value: float
    variance: float
    df: int  # degrees of freedom of the variance
    weight: float | None = None  # mean of the weights of a score

    def interval(self, *, proportion: bool) -> tuple[float, float]:
        """Return the 95 % interval: Wilson's for values in 0..1, and otherwise that of the t distribution."""
        if self.df < 1:
            return float("nan"), float("nan")
        if proportion:
            return wilson_at(self.value, self.variance, self.df)
        half = float(stdtrit(self.df, 0.975)) * self.variance**0.5
        return self.value - half, self.value + half

    def p_value(self) -> float | None:
        """Return the two-sided p-value of a mean of 0; None without variation."""
        if self.df < 1 or self.variance <= 0:
            return None
        return t_test(self.value, self.variance**0.5, self.df)


def labels_alone(labels: np.ndarray, clusters: np.ndarray) -> Estimate:
    """Return the mean of the labels (N,), NaN where there is none; `clusters`: (N,) codes in the order of the draw."""
    estimate = _combined(labels, np.zeros((FOLDS, len(labels))), clusters)
    return replace(estimate, df=estimate.df + 1)


def corrected(labels: np.ndarray, scores: np.ndarray, clusters: np.ndarray, *, folds: int = FOLDS) -> Estimate:
    """Return the estimate from the labels and an automatic score of all items.

    Args:
        labels: (N,) NaN where there is none.
        scores: (N,) in any unit, higher for better items.
        clusters: (N,) integers 0..k-1 in the order of the draw, of which the first have labels.
        folds: 1 for one weight from all labels, whose interval is too narrow; for comparison only.
    """
    fold_of, is_labeled = clusters % folds, ~np.isnan(labels)
    weights = np.empty(folds)
    for fold in range(folds):
        use = is_labeled & (fold_of != fold) if folds > 1 else is_labeled
        weights[fold] = _slope(labels[use], scores[use], clusters[use])
    return _combined(labels, weights[:, None] * (scores - scores.mean()), clusters, weights)


def borrowed(labels: np.ndarray, features: np.ndarray, clusters: np.ndarray) -> Estimate:
    """Return the estimate from a model's own values of some items, and other models' answers (N, q) to all items."""
    spread = features.std(axis=0)
    features = (features - features.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    fold_of, is_labeled = clusters % FOLDS, ~np.isnan(labels)
    predictions = np.zeros((FOLDS, len(labels)))
    for fold in range(FOLDS):
        use = is_labeled & (fold_of != fold)
        own = features[use] - features[use].mean(axis=0)
        penalized = own.T @ own + PENALTY * np.eye(own.shape[1])
        predictions[fold] = features @ np.linalg.solve(penalized, own.T @ labels[use])
    return _combined(labels, predictions, clusters)


def _slope(labels: np.ndarray, scores: np.ndarray, clusters: np.ndarray) -> float:
    """Return the weight of a score, at least 0: the regression of clusters' sums of labels on those of scores."""
    y, f = (np.bincount(clusters, weights=values - values.mean()) for values in (labels, scores))
    square = float(f @ f)
    return max(0.0, float(y @ f) / square) if square > 1e-12 * max(1.0, float(scores @ scores)) else 0.0


def _combined(
    labels: np.ndarray, predictions: np.ndarray, clusters: np.ndarray, weights: np.ndarray | None = None
) -> Estimate:
    """Return the estimate from predictions (folds, N), each with a mean of 0 over all items."""
    at = np.flatnonzero(~np.isnan(labels))
    n, n_all, n_clusters = len(at), len(labels), len(np.unique(clusters[at]))
    folds = clusters[at] % len(predictions)
    shares = np.bincount(folds, minlength=len(predictions)) / n
    residuals = labels[at] - predictions[folds, at]
    value = float(residuals.mean())
    weight = None if weights is None else float(shares @ weights)
    if n_clusters < 2:
        return Estimate(value, float("nan"), n_clusters - 2, weight)
    v = np.bincount(clusters, weights=shares @ predictions)
    u = np.bincount(clusters[at], weights=residuals - value, minlength=len(v))  # 0 without labels
    correction = n_clusters / (n_clusters - 1)
    own = correction * float(u @ u) / n**2
    shared = len(v) / (len(v) - 1) * float(v @ v) / n_all**2 + 2 * correction * float(u @ v) / (n * n_all)
    return Estimate(value, max(own / 10, own + shared), n_clusters - 2, weight)


@dataclass(frozen=True)
class Agreement:
    """Krippendorff's alpha of several annotators, with its interval; NaN where it is not defined."""

    alpha: float
    low: float
    high: float
    n: int  # units with at least two labels


def agreement(
    labels: np.ndarray, clusters: list | None = None, *, ordinal: bool = False, resamples: int = 2_000, seed: int = 0
) -> Agreement:
    """Return Krippendorff's alpha of labels (annotators, units), NaN where there is none.

    Units with one label do not enter. The interval is a bootstrap of the clusters of units. `ordinal`: labels are
    ranks, otherwise names. (Krippendorff 2011, "Computing Krippendorff's alpha-reliability".)
    """
    numbers = (~np.isnan(labels)).sum(axis=0)
    labels, codes = labels[:, numbers > 1], cluster_codes(clusters, labels.shape[1])[numbers > 1]
    n_units = labels.shape[1]
    if not n_units:
        return Agreement(float("nan"), float("nan"), float("nan"), 0)
    counts = np.stack([(labels == value).sum(axis=0) for value in np.unique(labels[~np.isnan(labels)])], axis=1)
    size = counts.shape[1]
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(size)
    pairs = (pairs / (counts.sum(axis=1) - 1)[:, None, None]).reshape(n_units, -1)
    codes = np.unique(codes, return_inverse=True)[1]
    n_clusters = int(codes.max()) + 1
    of_clusters = np.stack([np.bincount(codes, weights=column, minlength=n_clusters) for column in pairs.T], axis=1)
    alpha = float(_alpha(of_clusters.sum(axis=0).reshape(1, size, size), ordinal)[0])
    draws = np.empty(resamples)
    rng = np.random.default_rng(seed)
    for rows in chunks(resamples, n_clusters):
        drawn = rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=rows.stop - rows.start)
        draws[rows] = _alpha((drawn @ of_clusters).reshape(-1, size, size), ordinal)
    draws = draws[~np.isnan(draws)]  # a resample with one value only has no expected disagreement
    if n_clusters < 2 or np.isnan(alpha) or len(draws) < resamples / 2:
        return Agreement(alpha, float("nan"), float("nan"), n_units)
    tail = expanded_tail(n_clusters)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Agreement(alpha, float(low), float(high), n_units)


def _alpha(coincidences: np.ndarray, ordinal: bool) -> np.ndarray:
    """Return alpha of tables of coincidences (B, k, k): 1 minus the observed over the expected disagreement."""
    totals = coincidences.sum(axis=2)
    n = totals.sum(axis=1)
    if ordinal:
        middle = np.cumsum(totals, axis=1) - totals / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    else:
        distance = 1 - np.eye(totals.shape[1])[None]
    observed = (coincidences * distance).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum(axis=(1, 2)) / (n - 1)
    return 1 - np.divide(observed, expected, out=np.full(len(n), np.nan), where=expected > 0)
