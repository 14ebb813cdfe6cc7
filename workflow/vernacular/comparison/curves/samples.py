"""Values of one metric of all checkpoints on the same items, and their joint bootstrap resamples.

Clusters of items are drawn once for all checkpoints, so that a difference between two of them is a paired one, and a
statistic of a curve is computed per resample.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.metrics.metric import Metric
from vernacular.statistics.intervals import cluster_codes, redrawn, resample_statistic
from vernacular.statistics.paired import (
    Differences,
    cluster_counts,
    cluster_sums,
    corpus_difference,
    item_differences,
    mean_differences,
    resample_means,
)

RESAMPLES = 2_000
CORPUS_RESAMPLES = 500  # of a statistic that is not a mean


@dataclass(frozen=True)
class Samples:
    """One metric over one subset of the items.

    Attributes:
        models: the M checkpoints with values
        values: (n, M) value per item; NaN where a checkpoint lacks it. Of a corpus statistic: 0 for each item that all
            checkpoints have, NaN for the others.
        codes: (n,) cluster of each item
        inputs: of a corpus statistic, the arrays of each model over the items that all have
    """

    metric: Metric
    models: list[str]
    values: np.ndarray
    codes: np.ndarray
    inputs: dict[str, list[np.ndarray]]
    resamples: int
    seed: int

    @cached_property
    def draws(self) -> np.ndarray:
        """(R, M) values of the metric in resamples of the clusters; NaN where undefined too often (`redrawn`)."""
        n_clusters = self.n_clusters
        if n_clusters < 2 or not self.models:
            return np.full((0, len(self.models)), np.nan)
        if self.metric.corpus:
            return redrawn(np.column_stack([self._corpus_draws(model) for model in self.models]))
        known = ~np.isnan(self.values)
        sums = cluster_sums(np.where(known, self.values, 0.0), self.codes)
        sizes = cluster_sums(known.astype(float), self.codes)
        return redrawn(resample_means(sums, sizes, cluster_counts(n_clusters, self.resamples, self.seed)))

    @property
    def n_clusters(self) -> int:
        return int(self.codes.max(initial=-1)) + 1

    def column(self, model: str) -> np.ndarray:
        return self.draws[:, self.models.index(model)]

    def columns(self, models: list[str]) -> np.ndarray:
        """Return the draws (R, len(models)) of some of the models."""
        return self.draws[:, [self.models.index(model) for model in models]]

    def differences(self, pairs: list[tuple[str, str]]) -> Differences:
        """Return paired differences, second minus first, over the items that both have, one per pair."""
        if self.metric.corpus:
            return self._corpus_differences(pairs)
        first, second = (self.values[:, [self.models.index(pair[side]) for pair in pairs]] for side in (0, 1))
        binary = np.full(len(pairs), self.metric.proportion)
        differences = item_differences(second, first)
        return mean_differences(differences, self.codes, binary, resamples=self.resamples, seed=self.seed)

    def _corpus_draws(self, model: str) -> np.ndarray:
        rng = np.random.default_rng(self.seed)  # the same resamples for each model
        count = min(self.resamples, CORPUS_RESAMPLES)
        arguments = (self.inputs[model], self.codes, self.n_clusters, count, rng)
        return resample_statistic(self.metric.corpus, *arguments, self.metric.vectorized)

    def _corpus_differences(self, pairs: list[tuple[str, str]]) -> Differences:
        rows = []
        for first, second in pairs:
            value = float(self.metric.corpus(*self.inputs[second])) - float(self.metric.corpus(*self.inputs[first]))
            rows.append((value, *corpus_difference(value, self.column(second) - self.column(first), self.n_clusters)))
        value, low, high, p, se = np.array(rows, dtype=float).reshape(-1, 5).T
        return Differences(value, low, high, p, se, np.full(len(pairs), self.n_clusters))


def samples_of(
    items: Items, sides: dict[str, Side], metric: Metric, mask: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> Samples:
    """Return the values of a metric over the items of the (N,) `mask`, for the models that have any.

    An item counts for a model only if its prompt, options and gold are those of the first model that has the item.
    """
    reference = np.full(len(items.ids), -1)
    for side in sides.values():
        reference = np.where(reference < 0, side.text_id, reference)
    masks = {model: mask & side.value_mask(metric) & (side.text_id == reference) for model, side in sides.items()}
    models = [model for model in sides if masks[model].any()]
    if metric.corpus:  # every checkpoint over the same items
        shared = np.logical_and.reduce([masks[model] for model in models]) if models else mask & False
        used, values = shared, np.zeros((int(shared.sum()), len(models)))
        inputs = {model: [array[shared] for array in sides[model].inputs(metric)] for model in models}
    else:
        used = np.logical_or.reduce([masks[model] for model in models]) if models else mask & False
        columns = [np.where(masks[model], sides[model].value(metric.name), np.nan)[used] for model in models]
        values, inputs = np.column_stack(columns) if columns else np.empty((0, 0)), {}
        values[:, np.isinf(values).any(axis=0)] = np.nan  # the mean of a model with an infinite value is undefined
    codes = cluster_codes(items.clusters[used], int(used.sum()))
    return Samples(metric, models, values, codes, inputs, resamples, seed)
