"""Statistics of each curve, as CURVE_STATISTICS rows, from its points and resamples."""

import numpy as np

from vernacular.comparison.curves.curve import Curve
from vernacular.comparison.curves.points import best_model, finite
from vernacular.comparison.curves.samples import Samples
from vernacular.statistics import curves as statistics
from vernacular.statistics.paired import ALPHA

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
