"""What a model gets without knowing anything: by chance, and by always giving the most common answer."""

from collections import Counter

import numpy as np

from vernacular.metrics.schema import as_table

CHANCE = {"auc": 0.5, "mcc": 0.0}  # by the first part of a metric's name, whatever the items

# protocols whose options stand in an order that a model, or its reader, could lean on; in a minimal pair and among
# forms of a word the right one stands first by the layout of our own files
_WITH_POSITIONS = ("cloze", "generation", "letters", "options")


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


def majority_baseline(protocol: str, rows) -> float | None:
    """Accuracy of always giving the most common answer; None where that means nothing. `rows` are TASK_RESULTS.

    Acceptability: the more common label. Options of a fixed number: the position at which a right option stands most
    often, in the order of the rows (that of the prompt for `letters`). None where the numbers of options differ.

    >>> row = {"options": ["a", "b"], "values": {}}
    >>> majority_baseline("letters", [row | {"item_id": str(i), "prompt": "", "gold": [int(i == 0)]} for i in range(4)])
    0.75
    """
    table = as_table(rows)
    if protocol == "acceptability":
        labels = [dict(values).get("label") for values in table.column("values").to_pylist()]
        counts = Counter(label for label in labels if label is not None)
        return max(counts.values()) / counts.total() if counts else None
    if protocol not in _WITH_POSITIONS:
        return None
    asked = zip(table.column("gold").to_pylist(), table.column("options").to_pylist(), strict=True)
    known = [(gold, len(options)) for gold, options in asked if gold and options]
    if not known or len({n for _, n in known}) > 1:
        return None
    counts = Counter(position for gold, _ in known for position in set(gold))
    return max(counts.values()) / len(known)
