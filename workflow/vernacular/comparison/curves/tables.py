"""All curve tables of a run: points, statistics, trust in tasks, and pairs of curves.

Evaluations are independent; each is aligned once over all checkpoints, and all its statistics use the same resamples.
Two curves are compared at equal steps or tokens: differences on the same items, and the area between the curves.

A task is *useful* for models of this size if its values improve with training and end above chance, and, with several
curves, if it separates them by more than its noise. It is *noise* if no curve ends above chance or if the improvement
cannot be told from chance. Anything else is *uncertain*. The limits are FineTasks' (Hugging Face 2024) for monotonicity
(0.5) and 1 for signal-to-noise and improvement.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np
import pyarrow as pa

from vernacular.comparison.align import align
from vernacular.comparison.curves.curve import (
    RESAMPLES,
    Curve,
    Samples,
    common_axis,
    curves_of,
    difference_columns,
    is_worse_than_last,
    point_rows,
    samples_of,
    statistics_row,
    with_interval,
)
from vernacular.comparison.curves.deciding import deciding_rows
from vernacular.comparison.curves.schema import ALL
from vernacular.core.tables import finite_or_none
from vernacular.metrics.classification import with_classes
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import metrics_in
from vernacular.statistics import curves as statistics
from vernacular.statistics.paired import corpus_difference
from vernacular.statistics.significance import add_significance
from vernacular.types import SETTING

MIN_MONOTONICITY = 0.5
MIN_SIGNAL_TO_NOISE = 1.0
USEFUL, UNCERTAIN, NOISE, UNJUDGED = "useful", "uncertain", "noise", "not judged"
# below which there is no verdict; none of noise on a single curve: a run that learns nothing is not the fault of a task
MIN_CHECKPOINTS, MIN_ITEMS, MIN_CURVES = 5, 100, 2
_NAMED = 3  # evaluations of a verdict that the sentence names


def curve_tables(
    checkpoints: dict[str, dict],
    evaluations: Mapping[str, dict],
    results: Callable[[str, str], pa.Table],
    values: Callable[[str, str], Mapping[tuple[str, str], dict]],
    *,
    tool_metrics: Mapping[str, list[Metric]] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, list[dict]]:
    """Return the rows of each table in `schema.ALL`.

    Args:
        checkpoints: Model -> series, curve, name, step, tokens, words; in the order of training.
        evaluations: Evaluation -> task, language, protocol, shots, seed, style, prompt.
        results: (model, evaluation) -> TASK_RESULTS; without rows if the evaluation was not possible.
        values: (model, evaluation) -> (category, metric) -> METRICS row, and ("", "") -> {"note": reason} if there is
            none.
        tool_metrics: Evaluation -> its metrics, where not the protocol but another tool defines them.
        resamples: Bootstrap resamples of the clusters of items.
    """
    curves = curves_of(checkpoints)
    tables: dict[str, list[dict]] = {name: [] for name in ALL}
    for evaluation, setting in evaluations.items():
        items, sides = align({model: results(model, evaluation) for model in checkpoints})
        metric_values = {model: values(model, evaluation) for model in checkpoints}
        categories = ["", *sorted({label for label in items.categories if label})]
        metrics = metrics_in(setting["protocol"], setting["language"]) or (tool_metrics or {}).get(evaluation, [])
        metrics = with_classes(metrics, {name for side in sides.values() for name in side.values})
        labels = {"evaluation": evaluation, **setting}
        tables["deciding_metrics"] += deciding_rows(curves, metric_values, labels)
        for metric in (metric for metric in metrics if metric.headline):
            if not any(("", metric.name) in rows for rows in metric_values.values()):
                continue
            for category in categories:
                mask = items.categories == category if category else np.ones(len(items.ids), dtype=bool)
                labels = {"evaluation": evaluation, **setting, "category": category, "metric": metric.name}
                labels |= {"unit": metric.unit, "higher_is_better": metric.higher_is_better}
                samples = samples_of(items, sides, metric, mask, resamples=resamples)
                by_model = {
                    model: rows.get((category, metric.name)) or rows.get(("", ""), {})
                    for model, rows in metric_values.items()
                }
                points = {c.name: point_rows(c, checkpoints, by_model, samples, labels) for c in curves}
                for curve in curves:
                    tables["curves"] += points[curve.name]
                    tables["curve_statistics"].append(statistics_row(curve, points[curve.name], samples, labels))
                if not category:
                    tables["task_trust"].append(trust_row(curves, points, samples, labels))
                areas, differences = pair_rows(curves, points, samples, labels)
                tables["curve_pairs"] += areas
                tables["curve_pair_points"] += differences
    correct_areas(tables["curve_pairs"])
    return tables


def pair_rows(
    curves: list[Curve], points: dict[str, list[dict]], samples: Samples, labels: dict
) -> tuple[list[dict], list[dict]]:
    """Return (CURVE_PAIRS rows, CURVE_PAIR_POINTS rows) of all pairs of curves that share two checkpoints with values.

    The area of a resample is computed on the same drawn items at all checkpoints of both curves. Holm over the pair is
    left to `correct_areas`.
    """
    areas, differences = [], []
    by_model = {point["model"]: point for rows in points.values() for point in rows}
    for baseline, candidate in combinations(curves, 2):
        axis, x, models = common_axis([baseline, candidate])
        usable = [
            (position, *pair)
            for position, *pair in zip(x, *models, strict=True)
            if all(by_model[model]["value"] is not None and model in samples.models for model in pair)
        ]
        if len(usable) < 2:
            continue
        x, first, second = (list(column) for column in zip(*usable, strict=True))
        identity = {"baseline": baseline.name, "candidate": candidate.name, **labels, "axis": axis}
        result = samples.differences(list(zip(first, second, strict=True)))
        for position, *models, columns in zip(x, first, second, difference_columns(result), strict=True):
            values = [by_model[model]["value"] for model in models]
            row = identity | dict(zip(("x", "baseline_value", "candidate_value"), (position, *values), strict=True))
            differences.append(row | columns)
        draws = statistics.area_between(x, samples.columns(first), samples.columns(second))
        area = float(statistics.area_between(x, np.zeros(len(x)), result.value))
        low, high, p, _ = corpus_difference(area, draws, samples.n_clusters)
        numbers = {"area": area, "area_low": low, "area_high": high, "p_value": p}
        row = identity | {name: finite_or_none(number) for name, number in numbers.items()}
        areas.append(row | {"n_common": len(x), "from_x": x[0], "to_x": x[-1]})
    return areas, differences


def correct_areas(rows: list[dict]) -> None:
    """Add `p_holm`, `n_tests` and `better` to CURVE_PAIRS rows: one family per pair, of its rows over all items."""
    tested = add_significance([row | {"headline": True, "difference": row["area"]} for row in rows])
    for row, found in zip(rows, tested, strict=True):
        row |= {"p_holm": found["p_holm"], "n_tests": found["n_tests"], "better": row.get(found["better"])}


def trust_row(curves: list[Curve], points: dict[str, list[dict]], samples: Samples, labels: dict) -> dict:
    """Return the TASK_TRUST row of one evaluation and metric over all items.

    Args:
        points: Curve -> its CURVES rows; a curve without three values is left out, and `n_curves` counts the others.
    """
    present = {c.name: [p["model"] for p in points[c.name] if p["value"] is not None] for c in curves}
    used = [c for c in curves if len(present[c.name]) >= statistics.MIN_POINTS]
    by_model = {point["model"]: point for rows in points.values() for point in rows}
    row = {**labels, "n_curves": len(used), "n_common": 0, "reason": None, "n_items": samples.n_clusters}
    if not used:
        return row | {"verdict": UNJUDGED, "reason": "no curve has three checkpoints with a value"}
    row["n_checkpoints"] = min(len(present[c.name]) for c in used)
    values = {c.name: np.array([by_model[model]["value"] for model in present[c.name]]) for c in used}
    lasts = [by_model[present[c.name][-1]] for c in used]
    row["n_above_chance"] = sum(_is_above_chance(point) for point in lasts) if _has_chance(lasts, labels) else None
    row["n_improved"] = sum(is_worse_than_last(by_model[present[c.name][0]], labels["higher_is_better"]) for c in used)
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

    Noise is a finding: an improvement is ruled out, by the interval of the monotonicity. What cannot be shown is not.

    >>> row = {"n_curves": 2, "n_checkpoints": 9, "n_items": 500, "n_above_chance": 0, "n_improved": 0}
    >>> judge(row | {"monotonicity": 0.1, "monotonicity_low": -0.2, "monotonicity_high": 0.3})
    ('noise', 'no improvement over training (monotonicity 0.10, at most 0.30)')
    """
    rho, low, high = (row.get(f"monotonicity{end}") for end in ("", "_low", "_high"))
    ratio = row.get("signal_to_residual_noise", row.get("signal_to_noise"))  # learning is not noise
    if row["n_checkpoints"] < MIN_CHECKPOINTS or row["n_items"] < MIN_ITEMS:
        counts = f"{row['n_checkpoints']} checkpoints and {row['n_items']} items"
        return UNJUDGED, f"{counts}; a verdict needs {MIN_CHECKPOINTS} and {MIN_ITEMS}"
    if row["n_improved"] == 0 and high is not None and high < MIN_MONOTONICITY and row["n_curves"] >= MIN_CURVES:
        return NOISE, f"no improvement over training (monotonicity {rho:.2f}, at most {high:.2f})"
    if rho is None:
        return UNCERTAIN, "all values of a curve are equal"
    if row["n_above_chance"] == 0:
        return UNCERTAIN, "no curve ends measurably above chance"
    if row["n_improved"] == 0 and (low is None or low <= 0):
        return UNCERTAIN, "neither an improvement over training nor a better last checkpoint can be shown"
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
    `size`: that of the models, for readers: "135M parameters".
    """
    best: dict[str, str] = {}  # the best verdict of an evaluation's metrics
    order = (USEFUL, UNCERTAIN, NOISE, UNJUDGED)
    for row in rows:
        previous = best.get(row["evaluation"], UNJUDGED)
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
    needed = f"no verdict (fewer than {MIN_CHECKPOINTS} checkpoints or {MIN_ITEMS} items) on"
    texts = ("look at", "be careful with", "ignore as noise", needed)
    for verdict, text in zip(order, texts, strict=True):
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


def _monotonicity(used, present, values, samples: Samples, higher_is_better: bool | None) -> dict:
    """Return the mean over curves of Spearman's correlation, positive where the metric improves."""
    sign = -1 if higher_is_better is False else 1
    single, draws = [], []
    for curve in used:
        x = np.arange(len(present[curve.name]))
        single.append(float(statistics.spearman(x, sign * values[curve.name])))
        draws.append(statistics.spearman(x, sign * samples.columns(present[curve.name])))
    return with_interval("monotonicity", np.mean(single), np.mean(draws, axis=0))


def _noise(used: list[Curve], values: dict, positions: dict) -> dict:
    """Return the mean noise within curves, relative to their means and in the metric's unit; never pooled.

    values, positions: curve -> (K,) values and x of the checkpoints that have a value.
    """
    long = [values[c.name] for c in used if len(values[c.name]) >= statistics.MIN_NOISE_POINTS]
    if not long:
        return {}
    relative = float(np.mean([statistics.relative_noise(array) for array in long]))
    low, high = statistics.noise_interval(relative, (statistics.MIN_NOISE_POINTS - 1) * len(long))
    in_units = np.mean([statistics.noise(array) for array in long])
    row = {"noise": relative, "noise_low": low, "noise_high": high, "noise_in_units": in_units}
    row = {name: finite_or_none(number) for name, number in row.items()}
    residual = [
        statistics.residual_noise(positions[c.name], values[c.name])
        / values[c.name][-statistics.MIN_NOISE_POINTS :].mean()
        for c in used
        if len(values[c.name]) >= statistics.MIN_NOISE_POINTS and positions[c.name][-statistics.MIN_NOISE_POINTS] > 0
    ]
    return row | ({"residual_noise": finite_or_none(np.mean(residual))} if residual else {})


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
    row |= with_interval("signal", statistics.signal(last_values), statistics.signal(samples.columns(finals)))
    complete = [i for i in range(len(x)) if all(by_model[column[i]]["value"] is not None for column in models)]
    if len(complete) < 2:
        return row
    grid = [[column[i] for i in complete] for column in models]
    array = np.array([[by_model[model]["value"] for model in column] for column in grid])
    draws = samples.columns([model for column in grid for model in column]).reshape(-1, *array.shape)
    row["n_common"] = len(complete)
    row |= with_interval("rank_consistency", statistics.rank_consistency(array), statistics.rank_consistency(draws))
    return row | with_interval("decision_accuracy", _decisions(array), _decisions(draws))


def _decisions(values: np.ndarray) -> np.ndarray:
    """Return the decision accuracy of the earlier checkpoints for the last, mean over them: (…, M, K) -> (…)."""
    earlier = [statistics.decision_accuracy(values[..., k], values[..., -1]) for k in range(values.shape[-1] - 1)]
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
    values = np.array(grid, dtype=float)[:, complete]
    return {"seed_signal_to_noise": finite_or_none(statistics.seed_signal_to_noise(values))}
