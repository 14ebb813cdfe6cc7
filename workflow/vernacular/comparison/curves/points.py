"""Points of curves: the value of each checkpoint, and its paired differences to three references.

The interval of a value says how well its level is known; it is far too wide for the question whether the value
rose, because the items are the same. The differences answer that: to the previous checkpoint, to the best one and to
the last.
"""

from itertools import pairwise

import numpy as np

from vernacular.comparison.curves.curve import Curve
from vernacular.comparison.curves.samples import Samples
from vernacular.comparison.curves.schema import REFERENCES
from vernacular.statistics.paired import holm


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
