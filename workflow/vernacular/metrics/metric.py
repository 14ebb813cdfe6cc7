"""The definition of a metric, and its baselines: chance level and majority baseline."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.metrics.schema import as_table, value_arrays


@dataclass(frozen=True)
class Metric:
    """One number per evaluation, computed from per-item values.

    Without `corpus`, it is the mean of `metrics[name]` over the items that have it. With `corpus`, it is
    `corpus(*arrays)`, with one float array (n items) per name in `needs`; items that lack one of them are excluded.
    Arrays of shape (resamples, n) give (resamples,), so that a bootstrap takes one call.
    """

    name: str
    unit: str  # "share", "nats", "bits", "percent", "cosine", "score"
    higher_is_better: bool | None  # None: neither direction is better
    metric_group: str  # "similarity" or "surprisal": the workbook that contains it
    proportion: bool = False  # per-item values are 0 or 1: Wilson interval
    headline: bool = False  # is shown in the leaderboard
    corpus: Callable[..., np.ndarray] | None = None
    needs: tuple[str, ...] = ()
    of_dataset: bool = False  # a test of the dataset's texts: no interval, no categories, no comparison of models
    tool_signature: str = ""  # of the tool that defines it, with its version; a part of the signature
    about: str = ""  # one-line description, with the source of the formula

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the per-item values that it is computed from."""
        return self.needs if self.corpus else (self.name,)

    def value(self, arrays: list[np.ndarray]) -> float:
        """Return the value of the items' values, an (n,) array for each of `inputs`."""
        return float(self.corpus(*arrays)) if self.corpus else float(arrays[0].mean())


def in_one_script(metrics: list[Metric]) -> list[Metric]:
    """Return the metrics of texts of a language with two scripts, after transliteration: `exact_match_script`, …"""
    needs = [count_names(f"{each.name}_script", len(each.needs)) if each.corpus else () for each in metrics]
    changes = ({"name": f"{each.name}_script", "about": f"{each.about}; in Latin letters"} for each in metrics)
    own = zip(metrics, changes, needs, strict=True)
    return [replace(each, **names, needs=needs, headline=False) for each, names, needs in own]


COUNT = "#"  # in the name of a per-item value that is only a part of a sum over items, which readers are not shown


def count_names(metric: str, count: int) -> tuple[str, ...]:
    """Return the names of the per-item values that a metric of sums needs: `chrf2pp#0`, `chrf2pp#1`, …"""
    return tuple(f"{metric}{COUNT}{number}" for number in range(count))


_TITLES = {
    "good_mean": "Mean surprisal, acceptable",
    "bad_mean": "Mean surprisal, unacceptable",
    "surprisal_max": "Maximum surprisal",
    "asd": "Average surprisal difference",
    "asd_normalized": "Average surprisal difference, normalized",
    "brier": "Brier score",
    "min_20": "Min-20%",
    "min_20_plus_plus": "Min-20%++",
    "order_difference": "Published order, difference",
    "order_t": "Published order, t",
    "order_p": "Published order, p",
    "ece": "Calibration error (ECE)",
    "ece_calibrated": "ECE if perfectly calibrated",
    "ece_adaptive": "Calibration error, equal counts",
    "greedy": "Greedy match",
    "accuracy_parsed": "Accuracy of the answers found",
    "extraction_failed": "No answer found",
    **{
        f"found_in_{step}": f"Answer found by: {step.replace('_', ' ')}"
        for step in ("boxed", "last_line", "cue", "letter", "option_line", "option_text")
    },
    "pass_at_k": "pass@k",
    "sample_sd": "Standard deviation between samples",
    "reasoning_tokens_p95": "Reasoning tokens, 95th percentile",
    "language_correct": "Language as of the items",
    "language_correct_gold": "Language as of the items, correct answers",
    "language_decided": "Language identified",
    "language_lpr": "Line pass rate",
    "language_blocks": "Language as of the items, joined responses",
    "language_blocks_gold": "Language as of the items, joined correct answers",
    "rank_c": "RankC",  # of `comparison/languages.py`, as the next two
    "same_if_both_incorrect": "Same option if both are incorrect",
    "correct_if_correct_there": "Correct here if correct there",
    "acc": "Accuracy",  # of lm-eval, as the next three
    "acc_norm": "Accuracy, normalized by length",
    "acc_bytes": "Accuracy, normalized by bytes",
    "acc_mutual_info": "Accuracy, mutual information",
}
_WORDS = {"auc": "ROC AUC", "mcc": "MCC", "pmi": "PMI", "f1": "F1", "chrf": "chrF", "chrf2pp": "chrF2++",
          "bleu": "BLEU", "spbleu": "spBLEU", "bertscore": "BERTScore", "moverscore": "MoverScore",
          "difsur": "difsur"}  # fmt: skip
_SUFFIXES = {"token": "per token", "char": "per character", "byte": "per byte", "sentence": "sentence",
             "script": "in one script"}  # fmt: skip


def display_name(metric: str) -> str:
    """Return the name of a metric for tables and figures.

    >>> [display_name(name) for name in ("acc", "auc_char", "bits_per_byte", "token_f1")]
    ['Accuracy', 'ROC AUC, per character', 'Bits per byte', 'Token F1']
    """
    name, _, suffix = metric.rpartition("_")
    if name.startswith("judge_") and suffix == "unvalidated":  # no label of a speaker supports the value
        return f"{display_name(name)} (unvalidated)"
    if name and suffix in _SUFFIXES and not name.endswith("_per"):
        return f"{display_name(name)}, {_SUFFIXES[suffix]}"
    if metric in _TITLES:
        return _TITLES[metric]
    first, *others = metric.split("_")
    return " ".join([_WORDS.get(first, first.capitalize()), *(_WORDS.get(word, word) for word in others)])


CHANCE = {"auc": 0.5, "mcc": 0.0}  # by the first part of a metric's name; independent of the items
LM_EVAL_ACCURACIES = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info")  # over the choices of an item


def chance_level(metric: str, chances: np.ndarray) -> float | None:
    """Return the chance level of a metric over items, as in the column `chance_level`; None if it has none.

    It is the mean of `chances` (n,), the share of correct options among those offered, for accuracies; 0.5 for AUC; 0
    for MCC.
    """
    if (base_name := metric.partition("_")[0]) in CHANCE:
        return CHANCE[base_name]
    known_chances = chances[~np.isnan(chances)]
    return float(known_chances.mean()) if is_accuracy(metric) and len(known_chances) else None


def is_accuracy(metric: str) -> bool:
    """Return whether a metric is an accuracy over the choices of an item, by its name."""
    is_own = metric == "accuracy" or metric.startswith("accuracy_") or metric.endswith("_accuracy")
    return is_own or metric in LM_EVAL_ACCURACIES


def chance_shares(table: pa.Table) -> np.ndarray:
    """Return the share of correct options among those offered, (n,), per TASK_RESULTS row; NaN without options."""
    n_gold, n_options = (
        pc.fill_null(pc.list_value_length(table[name]), 0).to_numpy().astype(float) for name in ("gold", "choices")
    )
    shares = np.full(len(n_gold), np.nan)
    return np.divide(n_gold, n_options, out=shares, where=(n_gold > 0) & (n_options > 0))


# lowest and highest value by a metric's name, or the first part of it, and otherwise by unit
_RANGES = {"overconfidence": (-1, 1), "cosine_margin": (-2, 2), "mcc": (-1, 1), "token_f1": (0, 1),
           **dict.fromkeys(("chrf", "chrf2pp", "bleu", "spbleu"), (0, 100))}  # fmt: skip
UNIT_RANGES = {"share": (0.0, 1.0), "cosine": (-1.0, 1.0)}
_ROUNDING = 1e-6  # of cosines in 32 bits


def value_problem(
    metric: str, value: float, unit: str | None, known: Metric | None = None, *, per_item: bool = False
) -> str | None:
    """Return why a value that others computed is impossible, as "expected X, got Y."; None if it is possible.

    Args:
        unit: The unit that is stated with the value.
        known: The metric as Vernacular defines it; None if it is the metric of a tool.
        per_item: Whether it is the value of one item.

    >>> value_problem("accuracy", 5.0, "share"), value_problem("surprisal", 5.0, "nats")
    ('expected a value of accuracy between 0 and 1, got 5.0.', None)
    """
    if not math.isfinite(value):
        return f"expected a finite value of {metric}, got {value}."
    if known and known.proportion and per_item and value not in (0, 1):
        return f"expected 0 or 1 for {metric}, got {value}."
    unit = known.unit if known else "share" if is_accuracy(metric) else unit
    own_range = _RANGES.get(metric) or _RANGES.get(metric.partition("_")[0])
    low, high = own_range or UNIT_RANGES.get(unit, (-math.inf, math.inf))
    if low - _ROUNDING <= value <= high + _ROUNDING:
        return None
    return f"expected a value of {metric} between {low:g} and {high:g}, got {value}."


def majority_baseline(target: str | None, rows) -> float | None:
    """Return the accuracy of always choosing the most common gold; None if it is undefined. `rows`: TASK_RESULTS.

    `target` is declared by the protocol. "label": the more common label. "position": the most common position of a
    correct option, in the order of the rows (for letters, that of the prompt); None if the numbers of options differ.
    None in minimal pairs and for target words, whose items always list the correct text first.

    >>> row = {"choices": ["a", "b"], "metrics": {}}
    >>> rows = [row | {"item_id": str(i), "prompt": "", "gold": [int(i == 0)]} for i in range(4)]
    >>> majority_baseline("position", rows)
    0.75
    """
    table = as_table(rows)
    if target == "label":
        labels = value_arrays(table).get("label", np.zeros(0))
        _, counts = np.unique(labels[~np.isnan(labels)], return_counts=True)
        return int(counts.max()) / int(counts.sum()) if len(counts) else None
    if target != "position":
        return None
    n_options = pc.fill_null(pc.list_value_length(table["choices"]), 0).to_pylist()
    known_items = [(gold, n) for gold, n in zip(table["gold"].to_pylist(), n_options, strict=True) if gold and n]
    if not known_items or len({n for _, n in known_items}) > 1:
        return None
    positions = Counter(position for gold, _ in known_items for position in set(gold))
    return max(positions.values()) / len(known_items)
