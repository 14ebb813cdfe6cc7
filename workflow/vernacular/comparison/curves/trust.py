"""Which tasks can be trusted for models of this size: TASK_TRUST rows over all curves, and a sentence on them.

A task is *useful* if its values improve with training and end above chance, and, with several curves, if it separates
them by more than its noise. It is *noise* if no curve ends above chance or if the improvement cannot be told from
chance. Anything else is *uncertain*. The limits are FineTasks' for monotonicity (0.5) and 1 for signal-to-noise and
improvement.

Statistics of several curves show whether a task separates models while they are trained: M runs at K common
checkpoints, as values of the shape (…, M, K); the leading axis, if any, holds resamples of the items, drawn jointly for
all runs. Noise is measured within each run and never pooled: the differences between runs are the signal. Sources:
Heineman et al. 2025 (arXiv 2508.13144) and FineTasks (Hugging Face 2024), whose two signal-to-noise ratios differ.
"""

from collections import Counter

import numpy as np
from scipy.special import chdtri

from vernacular.comparison.curves.curve import Curve, Samples, common_axis, finite, with_interval
from vernacular.statistics import curves as statistics
from vernacular.statistics.curves import MIN_NOISE_POINTS, noise
from vernacular.statistics.paired import ALPHA
from vernacular.types import SETTING

MIN_MONOTONICITY = 0.5
MIN_SIGNAL_TO_NOISE = 1.0
USEFUL, UNCERTAIN, NOISE = "useful", "uncertain", "noise"
_NAMED = 3  # evaluations of a verdict that the sentence names


def trust_row(curves: list[Curve], points: dict[str, list[dict]], samples: Samples, labels: dict) -> dict:
    """Return the TASK_TRUST row of one evaluation and metric over all items.

    Args:
        points: Curve -> its CURVES rows; a curve without three values is left out, and `n_curves` counts the others.
    """
    present = {c.name: [p["model"] for p in points[c.name] if p["value"] is not None] for c in curves}
    used = [c for c in curves if len(present[c.name]) >= statistics.MIN_POINTS]
    by_model = {point["model"]: point for rows in points.values() for point in rows}
    row = {**labels, "n_curves": len(used), "n_common": 0, "reason": None}
    if not used:
        return row | {"verdict": UNCERTAIN, "reason": "no curve has three checkpoints with a value"}
    values = {c.name: np.array([by_model[model]["value"] for model in present[c.name]]) for c in used}
    lasts = [by_model[present[c.name][-1]] for c in used]
    row["n_above_chance"] = sum(_is_above_chance(point) for point in lasts) if _has_chance(lasts, labels) else None
    row["n_improved"] = sum(_has_improved(by_model[present[c.name][0]], labels["higher_is_better"]) for c in used)
    row |= _monotonicity(used, present, values, samples, labels["higher_is_better"])
    positions = {c.name: np.array([by_model[model][c.axis] for model in present[c.name]], dtype=float) for c in used}
    row |= _noise(used, values, positions)
    row |= _between(used, present, by_model, samples)
    row |= _seeds(used, present, by_model)
    if row.get("signal") is not None and row.get("noise"):
        row["signal_to_noise"] = row["signal"] / row["noise"]
        row["signal_to_noise_low"], row["signal_to_noise_high"] = (
            row["signal"] / row[f"noise_{end}"] for end in ("high", "low")
        )
    if row.get("signal") is not None and row.get("residual_noise"):
        row["signal_to_residual_noise"] = row["signal"] / row["residual_noise"]
    return row | dict(zip(("verdict", "reason"), judge(row), strict=True))


def judge(row: dict) -> tuple[str, str]:
    """Return the verdict on a TASK_TRUST row without one, and its reason.

    >>> judge({"n_curves": 2, "n_above_chance": 0, "n_improved": 0, "monotonicity": 0.1})
    ('noise', 'no curve ends above chance')
    """
    rho, low = row.get("monotonicity"), row.get("monotonicity_low")
    ratio = row.get("signal_to_residual_noise", row.get("signal_to_noise"))  # learning is not noise
    if row["n_above_chance"] == 0:
        return NOISE, "no curve ends above chance"
    if rho is None:
        return NOISE, "all values of a curve are equal"
    if row["n_improved"] == 0 and (low is None or low <= 0):
        return NOISE, "neither an improvement over training nor a better last checkpoint can be shown"
    if rho < MIN_MONOTONICITY:
        return UNCERTAIN, f"values improve irregularly (monotonicity {rho:.2f}, below {MIN_MONOTONICITY})"
    if row["n_improved"] == 0:
        return UNCERTAIN, "values improve, but no last checkpoint is significantly better than the first"
    if row["n_curves"] > 1 and ratio is not None and ratio < MIN_SIGNAL_TO_NOISE:
        return UNCERTAIN, f"improves, but does not separate the runs (signal-to-noise {ratio:.1f})"
    return USEFUL, "improves with training" + ("" if row["n_above_chance"] is None else " and ends above chance")


def sentence(rows: list[dict], size: str | None = None) -> str:
    """Return which tasks to look at and which are noise, in one sentence that names at most three of each.

    Evaluations that differ in the prompt only are one task, with the verdict of most prompts, or the more careful one.

    Args:
        rows: TASK_TRUST rows.
        size: The size of the models, for readers: "135M parameters".
    """
    best: dict[str, str] = {}  # the best verdict of an evaluation's metrics
    order = (USEFUL, UNCERTAIN, NOISE)
    for row in rows:
        previous = best.get(row["evaluation"], NOISE)
        best[row["evaluation"]] = min(previous, row["verdict"], key=order.index)
    prompts: dict[tuple, dict[str, str]] = {}  # the verdict under each prompt, by the other settings
    for row in rows:
        setting = tuple(row.get(name) for name in SETTING if name != "prompt") if "prompt" in row else row["evaluation"]
        prompts.setdefault(setting, {})[row["evaluation"]] = best[row["evaluation"]]
    tasks = {}
    for verdicts in prompts.values():
        counts = Counter(verdicts.values())
        number = f" ({len(verdicts)} prompts)" if len(verdicts) > 1 else ""
        tasks[f"{min(verdicts, key=len)}{number}"] = max(counts, key=lambda each: (counts[each], order.index(each)))
    parts = []
    for verdict, text in ((USEFUL, "look at"), (UNCERTAIN, "be careful with"), (NOISE, "ignore as noise")):
        names = [evaluation for evaluation, value in tasks.items() if value == verdict]
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            parts.append(f"{text} {', '.join(names[:_NAMED])}{more}")
    models = f"models of this size ({size})" if size else "models of this size"
    return f"For {models}: {'; '.join(parts)}." if parts else ""


def _has_chance(lasts: list[dict], labels: dict) -> bool:
    return bool(labels["higher_is_better"]) and any(point["chance_level"] is not None for point in lasts)


def _is_above_chance(point: dict) -> bool:
    return None not in (point["ci_low"], point["chance_level"]) and point["ci_low"] > point["chance_level"]


def _has_improved(first: dict, higher_is_better: bool | None) -> bool:
    """Return whether the first checkpoint is significantly worse than the last (Holm over the checkpoints)."""
    difference, p = first.get("last_difference"), first.get("last_p_holm")
    if None in (difference, p, higher_is_better):
        return False
    return p < ALPHA and (difference < 0) == higher_is_better


def _draws(samples: Samples, models: list[str]) -> np.ndarray:
    """Return the draws (R, K) of these models; none if one has no values per item."""
    has_draws = len(samples.draws) and set(models) <= set(samples.models)
    return samples.columns(models) if has_draws else np.full((0, len(models)), np.nan)


def _monotonicity(used, present, values, samples: Samples, higher_is_better: bool | None) -> dict:
    """Return the mean over curves of Spearman's correlation, positive where the metric improves."""
    sign = -1 if higher_is_better is False else 1
    single, draws = [], []
    for curve in used:
        x = np.arange(len(present[curve.name]))
        single.append(float(statistics.spearman(x, sign * values[curve.name])))
        draws.append(statistics.spearman(x, sign * _draws(samples, present[curve.name])))
    return with_interval("monotonicity", np.mean(single), np.mean(draws, axis=0))


def _noise(used: list[Curve], values: dict, positions: dict) -> dict:
    """Return the mean noise within curves, relative to their means and in the metric's unit; never pooled.

    values, positions: curve -> (K,) values and x of the checkpoints that have a value.
    """
    long = [values[c.name] for c in used if len(values[c.name]) >= statistics.MIN_NOISE_POINTS]
    if not long:
        return {}
    relative = float(np.mean([relative_noise(array) for array in long]))
    low, high = noise_interval(relative, (statistics.MIN_NOISE_POINTS - 1) * len(long))
    in_units = finite(np.mean([statistics.noise(array) for array in long]))
    row = {"noise": finite(relative), "noise_low": finite(low), "noise_high": finite(high), "noise_in_units": in_units}
    residual = [
        statistics.residual_noise(positions[c.name], values[c.name])
        / values[c.name][-statistics.MIN_NOISE_POINTS :].mean()
        for c in used
        if len(values[c.name]) >= statistics.MIN_NOISE_POINTS and positions[c.name][-statistics.MIN_NOISE_POINTS] > 0
    ]
    return row | ({"residual_noise": finite(np.mean(residual))} if residual else {})


def _between(used, present, by_model, samples: Samples) -> dict:
    """Return the statistics that need two models: signal, rank consistency and decision accuracy.

    Phases and seeds of one series are not different models: its longest curve represents it.
    """
    longest: dict[str, Curve] = {}
    for curve in used:
        longest[curve.series] = max(longest.get(curve.series, curve), curve, key=lambda c: len(present[c.name]))
    used = list(longest.values())
    axis, x, models = common_axis(used)
    row = {"axis": axis or used[0].axis, "n_common": len(x)}
    if len(used) < 2:
        return row
    finals = [present[curve.name][-1] for curve in used]
    last_values = np.array([by_model[model]["value"] for model in finals])
    row |= with_interval("signal", signal(last_values), signal(_draws(samples, finals)))
    complete = [i for i in range(len(x)) if all(by_model[column[i]]["value"] is not None for column in models)]
    if len(complete) < 2:
        return row
    grid = [[column[i] for i in complete] for column in models]
    array = np.array([[by_model[model]["value"] for model in column] for column in grid])
    draws = _draws(samples, [model for column in grid for model in column]).reshape(-1, *array.shape)
    row["n_common"] = len(complete)
    row |= with_interval("rank_consistency", rank_consistency(array), rank_consistency(draws))
    return row | with_interval("decision_accuracy", _decisions(array), _decisions(draws))


def _decisions(values: np.ndarray) -> np.ndarray:
    """Return the decision accuracy of the earlier checkpoints for the last, mean over them: (…, M, K) -> (…)."""
    earlier = [decision_accuracy(values[..., k], values[..., -1]) for k in range(values.shape[-1] - 1)]
    return np.mean(earlier, axis=0)


def _seeds(used: list[Curve], present: dict, by_model: dict) -> dict:
    """Return FineTasks' ratio for curves of one series that differ in their seed; {} without such curves."""
    groups: dict[str, list[Curve]] = {}
    for curve in used:
        if curve.name.startswith(f"{curve.series}/seed"):
            groups.setdefault(curve.series, []).append(curve)
    seeds = max(groups.values(), key=len, default=[])
    if len(seeds) < 2:
        return {}
    _, x, models = common_axis(seeds)
    grid = [[by_model[model]["value"] for model in column] for column in models]
    complete = [k for k in range(len(x)) if all(row[k] is not None for row in grid)]
    if not complete:
        return {}
    return {"seed_signal_to_noise": finite(seed_signal_to_noise(np.array(grid, dtype=float)[:, complete]))}


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
    return float(np.asarray(values, dtype=float).std(axis=0, ddof=1).mean()) if len(values) > 1 else float("nan")


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
