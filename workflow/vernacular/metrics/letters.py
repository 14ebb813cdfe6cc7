"""letters: the probabilities of the offered letters, by softmax over them alone (as the PalmX script has it)."""

import numpy as np
from scipy.special import softmax

from vernacular.metrics.choosing import best, choose, margin, right_options
from vernacular.metrics.corpus import expected_calibration_error, most_common_share
from vernacular.metrics.rows import asked, result
from vernacular.metrics.spans import logliks
from vernacular.metrics.types import Metric

METRICS = [
    Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True,
           about="the likeliest letter is a right one (PalmX 2025)"),
    Metric("probability", "share", True, "surprisal", about="probability of the right letters among those offered"),
    Metric("brier", "score", False, "surprisal", about="sum over letters of (probability - truth)^2 (Brier 1950)"),
    Metric("ece", "share", False, "surprisal", corpus=expected_calibration_error, needs=("confidence", "accuracy"),
           vectorised=True, about="expected calibration error over ten bins (Guo et al. 2017)"),
    Metric("accuracy_orders", "share", True, "surprisal", about="accuracy, mean over the rotations of the options"),
    Metric("right_in_every_order", "share", True, "surprisal", proportion=True, about="right in all rotations"),
    Metric("same_in_every_order", "share", True, "surprisal", proportion=True,
           about="one and the same option is chosen in all rotations"),
    Metric("most_chosen_letter", "share", None, "surprisal", corpus=most_common_share, needs=("chosen_position",),
           vectorised=True, about="share of the letter chosen most often: 1/n without a bias of position"),
    Metric("baseline_letter", "share", None, "surprisal", corpus=most_common_share, needs=("gold_position",),
           vectorised=True, about="accuracy of always answering with the most common right letter"),
]  # fmt: skip


def per_item(items: list[dict], requests: list[dict], scores: list[dict]) -> list[dict]:
    """A row per item; `option_scores` are log-likelihoods (nats) of the letters, in the order of the item's options."""
    return [_row(item, spans) for item, spans in asked(items, requests, scores)]


def _row(item: dict, spans: dict) -> dict:
    n = len(item["choices"])
    scores, right = logliks(spans, "choice", n), right_options(item)
    choice = choose(scores, right)
    if scores is None:
        return result(item, spans, values={}, choice=choice, prompt=_prompt(spans))
    shown = [spans[f"choice:{i}"].text for i in range(n)]  # the letter each option was shown at
    probability = softmax(scores)
    values = {
        **choice.outcome(),
        "confidence": probability.max(),
        "margin": margin(scores, right),
        **_orders(spans, n, right),
    }
    if len(choice.predicted) == 1:
        values["chosen_position"] = _position(shown[choice.predicted[0]])
    if right:
        truth = np.isin(np.arange(n), right) / len(right)
        values["probability"] = probability[right].sum()
        values["brier"] = ((probability - truth) ** 2).sum()
        values["gold_position"] = _position(shown[right[0]])
    prediction = " | ".join(sorted(shown[i] for i in choice.predicted))
    return result(
        item, spans, values=values, option_scores=scores, choice=choice, prediction=prediction, prompt=_prompt(spans)
    )


def _orders(spans: dict, n: int, right: list[int]) -> dict[str, float]:
    """Order sensitivity; {} where the options were shown in one order only, or an order could not be scored."""
    rotations = sorted({int(role.partition("@")[2]) for role in spans if "@" in role})
    if not rotations:
        return {}
    orders = [[spans.get(f"choice:{i}{suffix}") for i in range(n)] for suffix in ("", *(f"@{r}" for r in rotations))]
    if any(span is None or span.loglik is None for order in orders for span in order):
        return {}
    chosen = [best([span.loglik for span in order]) for order in orders]
    values = {"same_in_every_order": all(len(c) == 1 and c == chosen[0] for c in chosen)}
    if right:
        correct = [set(c) <= set(right) for c in chosen]
        values |= {"accuracy_orders": sum(correct) / len(correct), "right_in_every_order": all(correct)}
    return values


def _position(letter: str) -> int:
    return ord(letter) - ord("A")


def _prompt(spans: dict) -> str | None:
    return spans["choice:0"].before if "choice:0" in spans else None
