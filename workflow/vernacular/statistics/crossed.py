"""Variance components of a crossed table: clusters of items × prompts, and × few-shot seeds where they are crossed.

A cell is the value of one cluster under one prompt (and seed). Rows and columns are taken as drawn at random from the
items and from the wordings that could have been used; normality is not assumed. The estimates are those of the analysis
of variance (equal to MINQUE in a complete table), where expected mean squares are sums of components:

    E[MS_u] = sum over v ⊇ u of (product of the sizes of the factors outside v) · σ²_v

so that each component is an alternating sum of mean squares. With one value in a cell, the interaction of all factors
and the residual are one component.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from vernacular.statistics.intervals import cluster_codes

FACTORS = ("items", "prompts", "seeds")  # axes of a table
Effect = tuple[int, ...]  # axes of an effect: (0,) items, (0, 1) items × prompts


def cluster_table(values: np.ndarray, clusters=None) -> np.ndarray:
    """Return the table (C, …) of clusters from `values` (n items, …); its mean is the mean over items.

    A row is the column mean plus C · n_c / N times the deviation of the cluster's mean from it, so that clusters of
    different sizes have the weights of their items (exact if all sizes are equal, else to first order).

    >>> cluster_table(np.array([[0.0], [1.0], [1.0]]), ["a", "a", "b"]).ravel().round(3).tolist()
    [0.444, 0.889]
    """
    values = np.asarray(values, dtype=float)
    codes = cluster_codes(clusters, len(values))
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters == len(values):
        return values
    means = values.mean(axis=0)
    deviations = np.zeros((n_clusters, *values.shape[1:]))
    np.add.at(deviations, codes, values - means)
    return means + deviations * n_clusters / len(values)


def mean_squares(table: np.ndarray) -> dict[Effect, tuple[float, int]]:
    """Return {effect: (mean square, degrees of freedom)} of a complete table; effects without freedom are omitted."""
    table = np.asarray(table, dtype=float)
    axes = range(table.ndim)
    effects = [effect for size in range(table.ndim + 1) for effect in itertools.combinations(axes, size)]
    means = {e: table.mean(axis=tuple(axis for axis in axes if axis not in e), keepdims=True) for e in effects}
    found = {}
    for effect in effects[1:]:
        parts = [(-1) ** (len(effect) - len(part)) * means[part] for part in effects if set(part) <= set(effect)]
        deviations = sum(parts)
        df = int(np.prod([table.shape[axis] - 1 for axis in effect]))
        if df:
            found[effect] = float((deviations**2).sum() * table.size / deviations.size / df), df
    return found


@dataclass(frozen=True)
class Components:
    """Variance components of a table.

    Attributes:
        shape: (clusters, prompts) or (clusters, prompts, seeds)
        variances: component by effect, in squared units of the metric; may be negative
    """

    shape: tuple[int, ...]
    variances: dict[Effect, float]

    def of(self, *factors: str) -> float:
        """Return one component, at least 0: of("items"), of("items", "prompts"). 0 without degrees of freedom."""
        effect = tuple(sorted(FACTORS.index(factor) for factor in factors))
        return max(0.0, self.variances.get(effect, 0.0))

    def shares(self) -> dict[str, float]:
        """Return the share of each source in the variance of one run: "items", "prompts", "items × prompts", ….

        One run has one prompt and one seed, and all clusters: components that involve items are divided by their
        number. Negative estimates count as 0. {} if nothing varies.
        """
        run = {
            effect: max(0.0, variance) / (self.shape[0] if 0 in effect else 1)
            for effect, variance in self.variances.items()
        }
        total = sum(run.values())
        return {effect_name(effect): value / total for effect, value in run.items()} if total > 0 else {}


def effect_name(effect: Effect) -> str:
    """Return the name of an effect.

    >>> effect_name((0, 1))
    'items × prompts'
    """
    return " × ".join(FACTORS[axis] for axis in effect)


def components(table: np.ndarray) -> Components:
    """Estimate the components of a complete table (clusters, prompts) or (clusters, prompts, seeds).

    >>> found = components(np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]))
    >>> {effect: round(variance, 4) for effect, variance in found.variances.items()}
    {(0,): 0.1667, (1,): 0.0, (0, 1): 0.1667}
    """
    table = np.asarray(table, dtype=float)
    squares = mean_squares(table)
    variances = {}
    for effect in squares:
        signed = sum((-1) ** (len(v) - len(effect)) * ms for v, (ms, _) in squares.items() if set(effect) <= set(v))
        outside = [size for axis, size in enumerate(table.shape) if axis not in effect]
        variances[effect] = float(signed / np.prod(outside, initial=1.0))
    return Components(table.shape, variances)


def clustered_variance(values: np.ndarray, clusters=None) -> tuple[float, int]:
    """Return (variance of the mean of `values` (n,) over clusters, number of clusters); NaN with fewer than two.

    C/(C-1) times the sum of the squared sums of deviations, over n² (Miller 2024, arXiv 2411.00640).

    >>> round(clustered_variance(np.array([1.0, 0.5, 0.0]))[0], 4)
    0.0833
    """
    values = np.asarray(values, dtype=float)
    codes = cluster_codes(clusters, len(values))
    n_clusters = int(codes.max(initial=-1)) + 1
    if n_clusters < 2:
        return float("nan"), n_clusters
    sums = np.bincount(codes, weights=values - values.mean(), minlength=n_clusters)
    return float(n_clusters / (n_clusters - 1) * (sums @ sums) / len(values) ** 2), n_clusters
