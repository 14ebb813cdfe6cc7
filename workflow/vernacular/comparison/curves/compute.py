"""All curve tables of a run: points, statistics, trust in tasks, and pairs of curves.

Evaluations are independent; each is aligned once over all checkpoints, and all its statistics use the same resamples.
Two curves are compared at equal steps or tokens: differences on the same items, and the area between the curves.
"""

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
    finite,
    point_rows,
    samples_of,
    statistics_row,
)
from vernacular.comparison.curves.trust import trust_row
from vernacular.metrics.classification import with_classes
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.statistics.curves import area_between
from vernacular.statistics.paired import ALPHA, corpus_difference, holm


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
        differences += _point_rows(identity, x, first, second, by_model, result)
        draws = area_between(x, samples.columns(first), samples.columns(second)) if len(samples.draws) else np.empty(0)
        area = float(area_between(x, np.zeros(len(x)), result.value))
        low, high, p, _ = corpus_difference(area, draws, samples.n_clusters)
        numbers = {"area": area, "area_low": low, "area_high": high, "p_value": p}
        row = identity | {name: finite(number) for name, number in numbers.items()}
        areas.append(row | {"n_common": len(x), "from_x": x[0], "to_x": x[-1]})
    return areas, differences


def correct_areas(rows: list[dict]) -> None:
    """Add `p_holm`, `n_tests` and `better` to CURVE_PAIRS rows: one family per pair, of its rows over all items."""
    families: dict[tuple, list[dict]] = {}
    for row in rows:
        row |= {"p_holm": None, "n_tests": None, "better": None}
        if not row["category"] and row["p_value"] is not None:
            families.setdefault((row["baseline"], row["candidate"]), []).append(row)
    for family in families.values():
        for row, adjusted in zip(family, holm([row["p_value"] for row in family]), strict=True):
            row |= {"p_holm": float(adjusted), "n_tests": len(family)}
            if adjusted < ALPHA and row["area"] and row["higher_is_better"] is not None:
                row["better"] = row["candidate" if (row["area"] > 0) == row["higher_is_better"] else "baseline"]


def _point_rows(identity: dict, x, first, second, by_model, result) -> list[dict]:
    columns = (result.value, result.low, result.high, result.p, holm(result.p))
    rows = []
    for position, baseline, candidate, *numbers in zip(x, first, second, *columns, strict=True):
        names = ("difference", "difference_low", "difference_high", "p_value", "p_holm")
        values = {"baseline_value": by_model[baseline]["value"], "candidate_value": by_model[candidate]["value"]}
        row = identity | {"x": position} | values
        rows.append(row | {name: finite(number) for name, number in zip(names, numbers, strict=True)})
    return rows


def curve_tables(
    checkpoints: dict[str, dict],
    evaluations: Mapping[str, dict],
    results: Callable[[str, str], pa.Table],
    values: Callable[[str, str], Mapping[tuple[str, str], dict]],
    *,
    tool_metrics: Mapping[str, list[Metric]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
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
    tables: dict[str, list[dict]] = {
        name: [] for name in ("curves", "curve_statistics", "task_trust", "curve_pairs", "curve_pair_points")
    }
    for evaluation, setting in evaluations.items():
        items, sides = align({model: results(model, evaluation) for model in checkpoints})
        metric_values = {model: values(model, evaluation) for model in checkpoints}
        categories = ["", *sorted({label for label in items.categories if label})]
        own_metrics = PROTOCOL_METRICS.get(setting["protocol"])
        metrics = own_metrics.METRICS if own_metrics else (tool_metrics or {}).get(evaluation, [])
        metrics = with_classes(metrics, {name for side in sides.values() for name in side.values})
        for metric in (metric for metric in metrics if metric.headline):
            if not any(("", metric.name) in rows for rows in metric_values.values()):
                continue
            for category in categories:
                mask = items.categories == category if category else np.ones(len(items.ids), dtype=bool)
                labels = {"evaluation": evaluation, **setting, "category": category, "metric": metric.name}
                labels |= {"unit": metric.unit, "higher_is_better": metric.higher_is_better}
                samples = samples_of(items, sides, metric, mask, resamples=resamples, seed=seed)
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
