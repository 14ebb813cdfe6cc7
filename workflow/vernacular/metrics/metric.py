"""What a metric is, and what it gives without any knowledge: by chance, or by always giving the most common answer."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vernacular.metrics.schema import as_table


@dataclass(frozen=True)
class Metric:
    """One number per evaluation, made of per-item values.

    Without `corpus` it is the mean of the items' `values[name]` over the items that have it. With `corpus` it is
    `corpus(*arrays)`, one float array (n items) per name in `needs`, items lacking any of them left out; arrays of
    shape (resamples, n) give (resamples,) where `vectorised`, so that a bootstrap costs one call.
    """

    name: str
    unit: str  # "share", "nats", "bits", "percent", "cosine", "score"
    higher_is_better: bool | None  # None: neither direction is better
    family: str  # "similarity" or "surprisal": the spreadsheet it stands in
    proportion: bool = False  # per-item values are 0 or 1: Wilson interval
    headline: bool = False  # stands in the leaderboard
    corpus: Callable[..., np.ndarray] | None = None
    needs: tuple[str, ...] = ()
    vectorised: bool = False
    about: str = ""  # one line for the reader, with the paper or tool the formula comes from


CHANCE = {"auc": 0.5, "mcc": 0.0}  # by the first part of a metric's name, whatever the items


def chance_level(metric: str, chances: np.ndarray) -> float | None:
    """Chance level of a metric over items; None where it has none. `chances` (n,): right options among those offered.

    As the column `chance` of the results: the mean share for accuracies, 0.5 for AUC, 0 for MCC.
    """
    if (kind := metric.partition("_")[0]) in CHANCE:
        return CHANCE[kind]
    accuracy = metric == "accuracy" or metric.startswith("accuracy_") or metric.endswith("_accuracy")
    known = chances[~np.isnan(chances)]
    return float(known.mean()) if accuracy and len(known) else None


def chance_shares(rows) -> np.ndarray:
    """(n,) share of correct options among those offered, per TASK_RESULTS row; NaN where there are none."""
    return np.array(
        [len(row["gold"]) / len(row["options"]) if row["options"] and row["gold"] else np.nan for row in rows]
    )


def majority_baseline(of: str | None, rows) -> float | None:
    """Accuracy of always giving the most common answer; None where that means nothing. `rows` are as TASK_RESULTS.

    `of` is what a protocol declares. "label": the more common label. "position": the position at which a right option
    stands most often, in the order of the rows (that of the prompt for letters); None where the numbers of options
    differ. In a minimal pair and among forms of a word the right one stands first by the layout of the items: None.

    >>> row = {"options": ["a", "b"], "values": {}}
    >>> rows = [row | {"item_id": str(i), "prompt": "", "gold": [int(i == 0)]} for i in range(4)]
    >>> majority_baseline("position", rows)
    0.75
    """
    table = as_table(rows)
    if of == "label":
        labels = [dict(values).get("label") for values in table.column("values").to_pylist()]
        counts = Counter(label for label in labels if label is not None)
        return max(counts.values()) / counts.total() if counts else None
    if of != "position":
        return None
    asked = zip(table.column("gold").to_pylist(), table.column("options").to_pylist(), strict=True)
    known = [(gold, len(options)) for gold, options in asked if gold and options]
    if not known or len({n for _, n in known}) > 1:
        return None
    counts = Counter(position for gold, _ in known for position in set(gold))
    return max(counts.values()) / len(known)
