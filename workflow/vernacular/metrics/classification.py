"""Classification: the same classes in every item, named by the words of the language.

The headline of `options` is the class whose name gains most by the text, the pointwise mutual information (Holtzman et
al. 2021): names of classes differ in length and frequency, which decide the comparison of their plain probabilities. A
tie, like a response that begins with no name, is the prediction of none of the classes.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from vernacular.metrics.corpus import matthews_corrcoef
from vernacular.metrics.metric import Metric
from vernacular.types import Item, Result

GOLD, PREDICTED = "gold_class", "predicted_class"  # values of an item: numbers of classes
NONE = -1  # predicted class of a tie
HEADLINES = {"accuracy_pmi": "accuracy"}  # headline of a classification, and what it replaces


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Compute the mean F1 score of the classes that are correct or predicted for an item, (…, n) to (…).

    >>> float(macro_f1(np.array([0.0, 0, 1, 1]), np.array([0.0, 0, 0, -1])))  # 2 · 2 / 5 and 0
    0.4
    """
    scores, known = [], []
    for label in np.union1d(gold, predicted):
        if label != NONE:
            hits = ((gold == label) & (predicted == label)).sum(-1)
            total = (gold == label).sum(-1) + (predicted == label).sum(-1)
            scores.append(np.divide(2 * hits, total, out=np.zeros(np.shape(total)), where=total > 0))
            known.append(total > 0)
    return np.sum(scores, axis=0) / np.sum(known, axis=0)


METRICS = [
    Metric("macro_f1", "score", True, "surprisal", corpus=macro_f1, needs=(GOLD, PREDICTED),
           about="classification: mean F1 score of the classes, 0 to 1"),
    Metric("mcc", "score", True, "surprisal", corpus=matthews_corrcoef, needs=(GOLD, PREDICTED),
           about="classification: Matthews correlation of correct and predicted classes, -1 to 1 (Gorodkin 2004)"),
]  # fmt: skip


def is_classification(item: Item) -> bool:
    """Return whether the options of an item are classes, the same in every item of its task."""
    return "class_names" in dict(item.get("extra") or ())


def add_classes(items: Sequence[Item], rows: Sequence[Result]) -> None:
    """Add the numbers of the correct and predicted class to the values of items that could be evaluated."""
    item_by_id = {item["item_id"]: item for item in items}
    for row in rows:
        item = item_by_id[row["item_id"]]
        is_single = len(item["gold"]) == 1 and "samples" not in row["metrics"]  # the row has one prediction of several
        if is_classification(item) and is_single and row["correct"] is not None:
            chosen = row["predicted_indices"] or []
            label = item["choices"].index(row["choices"][chosen[0]]) if len(chosen) == 1 else NONE
            row["metrics"] |= {GOLD: float(item["gold"][0]), PREDICTED: float(label)}


def with_classes(metrics: list[Metric], names: Collection[str]) -> list[Metric]:
    """Return the metrics of an evaluation whose items have the values `names`: those of a classification, if it is one.

    The headline is by mutual information, where the protocol has it.
    """
    if GOLD not in names or not metrics:
        return metrics
    present = {metric.name for metric in metrics}
    replaced = {old for new, old in HEADLINES.items() if new in present}
    marked = [replace(m, headline=m.name in HEADLINES or (m.headline and m.name not in replaced)) for m in metrics]
    group = next(metric.metric_group for metric in metrics)
    return [*marked, *(replace(metric, metric_group=group) for metric in METRICS)]
