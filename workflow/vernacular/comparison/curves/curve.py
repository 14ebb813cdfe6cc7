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
from vernacular.comparison.curves.schema import DIFFERENCE, REFERENCES
from vernacular.core.tables import finite_or_none
from vernacular.metrics.metric import Metric
from vernacular.statistics import curves as statistics
from vernacular.statistics import paired, significance
from vernacular.statistics.intervals import cluster_codes, redrawn, resample_statistic

AXES = ("step", "tokens", "words")
_COMPARISON_ORDER = ("tokens", "step", "words")  # a step of two runs is the same amount of text only by chance
SLOPE_UNIT = {"step": 1_000, "tokens": 10**9, "words": 10**9}
RESAMPLES = 2_000
CORPUS_RESAMPLES = 500  # of a statistic that is not a mean
_SEED = 0


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


@dataclass(frozen=True)
class Samples:
    """One metric over one subset of the items: of a corpus statistic, of those that all checkpoints have."""

    metric: Metric
    models: list[str]  # the M checkpoints with values
    values: np.ndarray  # (n, M) value per item, NaN where a checkpoint lacks it; 0 of a corpus statistic
    codes: np.ndarray  # (n,) cluster of each item
    inputs: dict[str, list[np.ndarray]]  # of a corpus statistic: the (n,) arrays of each model
    resamples: int

    @cached_property
    def draws(self) -> np.ndarray:
        """(R, M) values of the metric in resamples of the clusters; NaN where undefined too often (`redrawn`)."""
        if self.n_clusters < 2 or not self.models:
            return np.full((0, len(self.models)), np.nan)
        if self.metric.corpus:
            return redrawn(np.column_stack([self._corpus_draws(model) for model in self.models]))
        known = ~np.isnan(self.values)
        sums = paired.cluster_sums(np.where(known, self.values, 0.0), self.codes)
        sizes = paired.cluster_sums(known.astype(float), self.codes)
        return redrawn(
            paired.resample_means(sums, sizes, paired.cluster_counts(self.n_clusters, self.resamples, _SEED))
        )

    @property
    def n_clusters(self) -> int:
        return int(self.codes.max(initial=-1)) + 1

    def column(self, model: str) -> np.ndarray:
        return self.draws[:, self.models.index(model)]

    def columns(self, models: list[str]) -> np.ndarray:
        """Return the draws (R, len(models)) of these models; none if one has no values per item."""
        if not set(models) <= set(self.models):
            return np.full((0, len(models)), np.nan)
        return self.draws[:, [self.models.index(model) for model in models]]

    def differences(self, pairs: list[tuple[str, str]]) -> paired.Differences:
        """Return paired differences, second minus first, over the items that both have, one per pair."""
        if self.metric.corpus:
            return self._corpus_differences(pairs)
        first, second = (self.values[:, [self.models.index(pair[side]) for pair in pairs]] for side in (0, 1))
        binary = np.array(
            [self.metric.proportion and paired.is_binary(*sides) for sides in zip(first.T, second.T, strict=True)]
        )
        differences = paired.item_differences(second, first)
        return paired.mean_differences(differences, self.codes, binary, resamples=self.resamples, seed=_SEED)

    def _corpus_draws(self, model: str) -> np.ndarray:
        rng = np.random.default_rng(_SEED)  # the same resamples for each model
        count = min(self.resamples, CORPUS_RESAMPLES)
        arguments = (self.inputs[model], self.codes, self.n_clusters, count, rng)
        return resample_statistic(self.metric.corpus, *arguments)

    def _corpus_differences(self, pairs: list[tuple[str, str]]) -> paired.Differences:
        rows = []
        for first, second in pairs:
            value = float(self.metric.corpus(*self.inputs[second])) - float(self.metric.corpus(*self.inputs[first]))
            rows.append(
                (value, *paired.corpus_difference(value, self.column(second) - self.column(first), self.n_clusters))
            )
        value, low, high, p, se = np.array(rows, dtype=float).reshape(-1, 5).T
        return paired.Differences(value, low, high, p, se, np.full(len(pairs), self.n_clusters))


def samples_of(
    items: Items, sides: dict[str, Side], metric: Metric, mask: np.ndarray, *, resamples: int = RESAMPLES
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
    return Samples(metric, models, values, codes, inputs, resamples)


def point_rows(curve: Curve, checkpoints: dict, values: dict[str, dict], samples: Samples, labels: dict) -> list[dict]:
    """Return CURVES rows of one curve for one metric and subset of the items, which `labels` names.

    `values`: model -> METRICS row, or {"note": reason} for a checkpoint without a value.
    """
    rows = {}
    for model in curve.models:
        value, checkpoint = values.get(model, {}), checkpoints[model]
        rows[model] = {
            "series": curve.series,
            "curve": curve.name,
            "model": model,
            "checkpoint": checkpoint["name"],
            **{axis: checkpoint[axis] for axis in AXES},
            **labels,
            **{key: value.get(key) for key in ("value", "ci_low", "ci_high", "n", "chance_level", "note")},
        }
    present = [m for m in curve.models if rows[m]["value"] is not None and m in samples.models]
    for reference, pairs in zip(REFERENCES, _pairs(present, rows, labels["higher_is_better"]), strict=True):
        differences = difference_columns(samples.differences(pairs)) if pairs else []
        for (_, model), columns in zip(pairs, differences, strict=True):
            rows[model] |= {f"{reference}_{name}": number for name, number in columns.items()}
    return list(rows.values())


def difference_columns(found: paired.Differences) -> list[dict]:
    """Return the columns of each difference; Holm over all of them."""
    columns = zip(found.value, found.low, found.high, found.p, significance.holm(found.p), strict=True)
    return [dict(zip(DIFFERENCE, map(finite_or_none, numbers), strict=True)) for numbers in columns]


def _pairs(models: list[str], rows: dict[str, dict], higher_is_better: bool | None) -> list[list[tuple[str, str]]]:
    """Return the (reference, model) pairs of each kind of reference; a checkpoint is not compared with itself."""
    if len(models) < 2:
        return [[] for _ in REFERENCES]
    best = None if higher_is_better is None else best_point([rows[m] for m in models], higher_is_better)["model"]
    return [
        list(pairwise(models)),
        [(best, model) for model in models if model != best] if best else [],
        [(models[-1], model) for model in models[:-1]],
    ]


def best_point(points: list[dict], higher_is_better: bool) -> dict:
    """Return the point with the best value; the first of several."""
    sign = 1 if higher_is_better else -1
    return max(points, key=lambda point: sign * point["value"])


def statistics_row(curve: Curve, points: list[dict], samples: Samples, labels: dict) -> dict:
    """Return the CURVE_STATISTICS row of the `points` (CURVES rows) of one curve, metric and subset of the items.

    A statistic that cannot be computed is null, and `note` states why.
    """
    axis, higher_is_better = curve.axis, labels["higher_is_better"]
    present = [point for point in points if point["value"] is not None]
    row = {"series": curve.series, "curve": curve.name, **labels, "axis": axis}
    row |= {"n_checkpoints": len(present), "n_missing": len(points) - len(present), "note": None}
    if not present:
        return row | {"note": "no checkpoint has a value"}
    x = np.array([point[axis] for point in present], dtype=float)
    values = np.array([point["value"] for point in present])
    draws = samples.columns([point["model"] for point in present])
    last = present[-1]
    row |= {"chance_level": last["chance_level"], "first": values[0], "last": values[-1], "last_x": int(x[-1])}
    row |= {"last_low": last["ci_low"], "last_high": last["ci_high"]}
    if higher_is_better is not None:
        sign, best = 1 if higher_is_better else -1, best_point(present, higher_is_better)
        optimism = statistics.selection_optimism(sign * values, sign * draws)
        row |= {"best": best["value"], "best_x": best[axis], "best_optimism": finite_or_none(optimism)}
        row["forgetting"] = sign * (best["value"] - last["value"])
    row["rises"], row["falls"] = statistics.rises_and_falls(values)
    if len(present) < statistics.MIN_POINTS:
        return row | {"note": "fewer than three checkpoints"}
    row["noise"] = finite_or_none(statistics.noise(values))
    row["residual_noise"] = finite_or_none(statistics.residual_noise(x, values))
    slopes = (statistics.last_third_slope(x, array) * SLOPE_UNIT[axis] for array in (values, draws))
    row |= with_interval("slope", *slopes)
    row |= with_interval("monotonicity", *(statistics.spearman(x, array) for array in (values, draws)))
    notes = ["all values are equal: no monotonicity"] if row["monotonicity"] is None else []
    if len(present) < statistics.MIN_NOISE_POINTS:
        notes.append("fewer than five checkpoints: no noise")
    if higher_is_better is not None:
        index = statistics.since([not is_worse_than_last(point, higher_is_better) for point in present])
        row["as_good_as_last_since"] = None if index is None else present[index][axis]
    chance_row, note = _above_chance(present, x, values, draws, higher_is_better)
    notes += [note] if note else []
    return row | chance_row | {"note": "; ".join(notes) or None}


def with_interval(name: str, value, draws: np.ndarray) -> dict:
    """Return {name, name_low, name_high}: a statistic and its percentile interval over resamples."""
    low, high = statistics.percentile_interval(np.asarray(draws)) if np.isfinite(value) else (np.nan, np.nan)
    return {name: finite_or_none(value), f"{name}_low": finite_or_none(low), f"{name}_high": finite_or_none(high)}


def is_worse_than_last(point: dict, higher_is_better: bool | None) -> bool:
    """Return whether a checkpoint is significantly worse than the last (Holm over the checkpoints)."""
    difference, p = point.get("last_difference"), point.get("last_p_holm")
    if None in (difference, p, higher_is_better):
        return False
    return p < significance.ALPHA and difference != 0 and (difference < 0) == higher_is_better


def _above_chance(
    present: list[dict], x: np.ndarray, values: np.ndarray, draws: np.ndarray, higher_is_better: bool | None
) -> tuple[dict, str | None]:
    """Return when the curve rose above chance, and to shares of its rise; or why that is undefined."""
    chance = present[-1]["chance_level"]
    if chance is None or not higher_is_better:
        return {}, "no chance level"
    index = statistics.since([point["ci_low"] is not None and point["ci_low"] > chance for point in present])
    if index is None:
        return {}, "the last checkpoint is not above chance: when it was learned is undefined"
    half, most = (statistics.learned(x, values, chance, share) for share in statistics.SHARES)
    row = {"above_chance_since": int(x[index]), "learned_50": int(x[half.first]), "learned_90": int(x[most.first])}
    row["learned_90_stay"] = int(x[most.stay])
    crossings = statistics.interpolated(x, draws, chance, statistics.SHARES[1])
    return row | with_interval("learned_90_interpolated", most.interpolated, crossings), None
