"""Curves: checkpoints in the order of training, their axis, values, joint bootstrap resamples, points and statistics.

The values of one metric of all checkpoints are those of the same items. Clusters of items are drawn once for all
checkpoints, so that a difference between two of them is a paired one, and a statistic of a curve is computed per
resample.

A point is the value of a checkpoint, and its paired differences to three references. The interval of a value says how
well its level is known; it is far too wide for the question whether the value rose, because the items are the same. The
differences answer that: to the previous checkpoint, to the best one and to the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.curves.schema import REFERENCES
from vernacular.metrics.metric import Metric
from vernacular.statistics import curves as statistics
from vernacular.statistics.intervals import cluster_codes, redrawn, resample_statistic
from vernacular.statistics.paired import (
    ALPHA,
    Differences,
    cluster_counts,
    cluster_sums,
    corpus_difference,
    holm,
    item_differences,
    mean_differences,
    resample_means,
)

AXES = ("step", "tokens", "words")
_COMPARISON_ORDER = ("tokens", "step", "words")  # a step of two runs is the same amount of text only by chance


@dataclass(frozen=True)
class Curve:
    """The checkpoints of one curve; `positions`: axis -> (K,) x, for axes on which all checkpoints have one."""

    name: str
    series: str
    models: list[str]
    positions: dict[str, list[int]]

    @property
    def axis(self) -> str:
        return next(axis for axis in AXES if axis in self.positions)

    @property
    def x(self) -> np.ndarray:
        return np.array(self.positions[self.axis], dtype=float)


def curves_of(checkpoints: dict[str, dict]) -> list[Curve]:
    """Return the curves of a config's checkpoints (model -> series, curve, name, step, tokens, words), in order."""
    models: dict[str, list[str]] = {}
    for model, checkpoint in checkpoints.items():
        models.setdefault(checkpoint["curve"], []).append(model)
    curves = []
    for name, members in models.items():
        positions = {axis: [checkpoints[model][axis] for model in members] for axis in AXES}
        complete = {axis: values for axis, values in positions.items() if None not in values}
        curves.append(Curve(name, checkpoints[members[0]]["series"], members, complete))
    return curves


def common_axis(curves: Sequence[Curve]) -> tuple[str | None, list[int], list[list[str]]]:
    """Return the axis with at least two x in all curves, these x, and each curve's models at them.

    Tokens are preferred to steps. (None, [], …) if there is no such axis.
    """
    for axis in _COMPARISON_ORDER:
        if all(axis in curve.positions for curve in curves):
            by_x = [dict(zip(curve.positions[axis], curve.models, strict=True)) for curve in curves]
            shared = sorted(set.intersection(*(set(models) for models in by_x)))
            if len(shared) >= 2:
                return axis, shared, [[models[x] for x in shared] for models in by_x]
    return None, [], [[] for _ in curves]


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


def point_rows(curve: Curve, checkpoints: dict, values: dict[str, dict], samples: Samples, labels: dict) -> list[dict]:
    """Return CURVES rows of one curve for one metric and subset of the items.

    Args:
        checkpoints: Model -> its position.
        values: Model -> METRICS row, or {"note": reason} for a checkpoint without a value.
        labels: Columns of the evaluation, category and metric.
    """
    rows = {}
    for model in curve.models:
        value, checkpoint = values.get(model, {}), checkpoints[model]
        rows[model] = {
            "series": curve.series,
            "curve": curve.name,
            "model": model,
            "checkpoint": checkpoint["name"],
            **{axis: checkpoint[axis] for axis in ("step", "tokens", "words")},
            **labels,
            **{key: value.get(key) for key in ("value", "ci_low", "ci_high", "n", "chance_level")},
            "note": value.get("note"),
        }
    present = [m for m in curve.models if rows[m]["value"] is not None and m in samples.models]
    for reference, pairs in zip(REFERENCES, _pairs(present, rows, labels["higher_is_better"]), strict=True):
        if not pairs:
            continue
        result = samples.differences(pairs)
        columns = (result.value, result.low, result.high, result.p, holm(result.p))
        for (_, model), *numbers in zip(pairs, *columns, strict=True):
            names = ("difference", "difference_low", "difference_high", "p_value", "p_holm")
            rows[model] |= {f"{reference}_{name}": finite(number) for name, number in zip(names, numbers, strict=True)}
    return list(rows.values())


def _pairs(models: list[str], rows: dict[str, dict], higher_is_better: bool | None) -> list[list[tuple[str, str]]]:
    """Return the (reference, model) pairs of each kind of reference; a checkpoint is not compared with itself."""
    if len(models) < 2:
        return [[] for _ in REFERENCES]
    previous = list(pairwise(models))
    best = [] if higher_is_better is None else [best_model(models, rows, higher_is_better)]
    return [
        previous,
        [(best[0], model) for model in models if model != best[0]] if best else [],
        [(models[-1], model) for model in models[:-1]],
    ]


def best_model(models: list[str], rows: dict[str, dict], higher_is_better: bool) -> str:
    """Return the checkpoint with the best value; the first of several."""
    sign = 1 if higher_is_better else -1
    return max(models, key=lambda model: sign * rows[model]["value"])


def finite(number) -> float | None:
    """Return a float, or None if it is missing, NaN or infinite."""
    return None if number is None or not np.isfinite(number) else float(number)


SLOPE_UNIT = {"step": 1_000, "tokens": 10**9, "words": 10**9}


def statistics_row(curve: Curve, points: list[dict], samples: Samples, labels: dict) -> dict:
    """Return the CURVE_STATISTICS row of the `points` (CURVES rows) of one curve, metric and subset of the items.

    A statistic that cannot be computed is null, and `note` states why.
    """
    by_model = {point["model"]: point for point in points}
    present = [point["model"] for point in points if point["value"] is not None]
    row = {"series": curve.series, "curve": curve.name, **labels, "axis": curve.axis}
    row |= {"n_checkpoints": len(present), "n_missing": len(points) - len(present), "note": None}
    if not present:
        return row | {"note": "no checkpoint has a value"}
    x = np.array([by_model[model][curve.axis] for model in present], dtype=float)
    values = np.array([by_model[model]["value"] for model in present])
    has_draws = len(samples.draws) > 0 and set(present) <= set(samples.models)
    draws = samples.columns(present) if has_draws else np.full((0, len(present)), np.nan)
    last, notes = by_model[present[-1]], []
    row |= {"chance_level": last["chance_level"], "first": values[0], "last": values[-1], "last_x": int(x[-1])}
    row |= {"last_low": last["ci_low"], "last_high": last["ci_high"]}
    row |= _best(present, by_model, draws, labels["higher_is_better"], curve.axis)
    row["rises"], row["falls"] = statistics.rises_and_falls(values)
    if len(present) < statistics.MIN_POINTS:
        return row | {"note": "fewer than three checkpoints"}
    row |= _shape(x, values, draws, curve.axis)
    if row["monotonicity"] is None:
        notes.append("all values are equal: no monotonicity")
    if len(present) < statistics.MIN_NOISE_POINTS:
        notes.append("fewer than five checkpoints: no noise")
    row["as_good_as_last_since"] = _as_good_as_last(present, by_model, labels["higher_is_better"], curve.axis)
    chance_row, note = _above_chance(present, by_model, x, values, draws, labels["higher_is_better"])
    notes += [note] if note else []
    return row | chance_row | {"note": "; ".join(notes) or None}


def _best(present: list[str], by_model: dict, draws: np.ndarray, higher_is_better: bool | None, axis: str) -> dict:
    if higher_is_better is None:
        return {}
    sign = 1 if higher_is_better else -1
    best = by_model[best_model(present, by_model, higher_is_better)]
    values = np.array([by_model[model]["value"] for model in present])
    optimism = statistics.selection_optimism(sign * values, sign * draws)
    return {
        "best": best["value"],
        "best_x": best[axis],
        "best_optimism": finite(optimism),
        "forgetting": sign * (best["value"] - by_model[present[-1]]["value"]),
    }


def _shape(x: np.ndarray, values: np.ndarray, draws: np.ndarray, axis: str) -> dict:
    unit = SLOPE_UNIT[axis]
    row = {"noise": finite(statistics.noise(values)), "residual_noise": finite(statistics.residual_noise(x, values))}
    for name, function, factor in (
        ("slope", statistics.last_third_slope, unit),
        ("monotonicity", statistics.spearman, 1),
    ):
        row |= with_interval(name, function(x, values) * factor, function(x, draws) * factor)
    return row


def with_interval(name: str, value, draws: np.ndarray) -> dict:
    """Return {name, name_low, name_high}: a statistic and its percentile interval over resamples."""
    low, high = statistics.percentile_interval(np.asarray(draws)) if np.isfinite(value) else (np.nan, np.nan)
    return {name: finite(value), f"{name}_low": finite(low), f"{name}_high": finite(high)}


def _as_good_as_last(present: list[str], by_model: dict, higher_is_better: bool | None, axis: str) -> int | None:
    """Return the x from which on no checkpoint is significantly worse than the last (Holm over the checkpoints)."""
    if higher_is_better is None:
        return None
    sign = 1 if higher_is_better else -1
    worse = []
    for model in present:
        difference, p = by_model[model].get("last_difference"), by_model[model].get("last_p_holm")
        worse.append(p is not None and p < ALPHA and sign * difference < 0)
    index = statistics.since(~np.array(worse))
    return None if index is None else by_model[present[index]][axis]


def _above_chance(present, by_model, x, values, draws, higher_is_better: bool | None) -> tuple[dict, str | None]:
    """Return when the curve rose above chance, and to shares of its rise; or why that is undefined."""
    chance = by_model[present[-1]]["chance_level"]
    if chance is None or not higher_is_better:
        return {}, "no chance level"
    lows = [by_model[model]["ci_low"] for model in present]
    index = statistics.since([low is not None and low > chance for low in lows])
    if index is None:
        return {}, "the last checkpoint is not above chance: when it was learned is undefined"
    half, most = (statistics.learned(x, values, chance, share) for share in statistics.SHARES)
    row = {"above_chance_since": int(x[index]), "learned_50": int(x[half.first]), "learned_90": int(x[most.first])}
    row["learned_90_stay"] = int(x[most.stay])
    crossings = statistics.interpolated(x, draws, chance, statistics.SHARES[1]) if len(draws) else np.empty(0)
    return row | with_interval("learned_90_interpolated", most.interpolated, crossings), None
