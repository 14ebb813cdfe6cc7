"""All curve tables of a run: points, statistics, trust in tasks, and pairs of curves.

Evaluations are independent; each is aligned once over all checkpoints, and all its statistics use the same resamples.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from vernacular.comparison.align import align
from vernacular.comparison.curves.curve import curves_of
from vernacular.comparison.curves.pairs import correct_areas, pair_rows
from vernacular.comparison.curves.points import point_rows
from vernacular.comparison.curves.samples import RESAMPLES, samples_of
from vernacular.comparison.curves.shape import statistics_row
from vernacular.comparison.curves.trust import trust_row
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import PROTOCOL_METRICS


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
