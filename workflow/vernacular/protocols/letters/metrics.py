"""letters: probabilities of the offered letters, by a softmax over these only, as in the PalmX script."""

from string import ascii_uppercase

import numpy as np

from vernacular.metrics.corpus import (
    adaptive_calibration_error,
    calibrated_error,
    expected_calibration_error,
    most_common_share,
    overconfidence,
)
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import (
    Span,
    best_indices,
    choose_option,
    correct_options,
    logliks,
    margin,
    probabilities,
    result,
)
from vernacular.types import Item, Result, Role, skipped_reason

METRICS = [
    Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True,
           about="the most probable letter is correct (PalmX 2025)"),
    Metric("probability", "share", True, "surprisal", about="probability of the correct letters among those offered"),
    Metric("brier", "score", False, "surprisal", about="sum over letters of (probability - truth)^2 (Brier 1950)"),
    Metric("accuracy_uncond", "share", None, "surprisal", proportion=True,
           about="by letter, without context and question (options-only): above chance, options give answers away"),
    Metric("ece", "share", False, "surprisal", corpus=expected_calibration_error, needs=("confidence", "accuracy"),
           about="expected calibration error over ten bins (Guo et al. 2017)"),
    Metric("ece_calibrated", "share", None, "surprisal", corpus=calibrated_error, needs=("confidence",),
           about="the ECE expected of a perfectly calibrated model with these confidences: not 0"),
    Metric("ece_adaptive", "share", False, "surprisal", corpus=adaptive_calibration_error,
           needs=("confidence", "accuracy"),
           about="calibration error over bins of equal counts: 10, or 5 below 200 items"),
    Metric("overconfidence", "share", None, "surprisal", corpus=overconfidence, needs=("confidence", "accuracy"),
           about="mean confidence - accuracy: above 0 overconfident, below 0 underconfident"),
    Metric("accuracy_orders", "share", True, "surprisal", about="mean accuracy over the rotations of the options"),
    Metric("correct_in_every_order", "share", True, "surprisal", proportion=True, about="correct in all rotations"),
    Metric("same_in_every_order", "share", True, "surprisal", proportion=True,
           about="the same option is chosen in all rotations"),
    Metric("most_chosen_letter", "share", None, "surprisal", corpus=most_common_share, needs=("chosen_position",),
           about="share of the letter chosen most often: 1/n without position bias"),
    Metric("baseline_letter", "share", None, "surprisal", corpus=most_common_share, needs=("gold_position",),
           about="accuracy of always choosing the most common correct letter"),
]  # fmt: skip


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return the row of an item, with options, gold, choice and scores (nats) of letters in the order of the prompt."""
    roles = {name: role for name in spans if (role := _parse_choice(name))}
    letters = {role: spans[name].text for name, role in roles.items()}
    kind = next((role.kind for role in letters), "choice")
    order = sorted((letter, role.index) for role, letter in letters.items() if not role.rotation)
    item = reordered(item, [option for _, option in order] or list(range(len(item["choices"]))))
    prompt = spans[f"{kind}:0"].context if f"{kind}:0" in spans else None
    n, correct = len(item["choices"]), correct_options(item["choices"], item["gold"])
    scores = logliks(spans, kind, n)
    if scores is None:
        return result(item, spans, values={}, choice=choose_option(None, correct), prompt=prompt)
    scores = [scores[option] for _, option in order]
    choice = choose_option(scores, correct)
    prediction = " | ".join(ascii_uppercase[i] for i in choice.predicted_indices)
    shown = {"option_scores": scores, "choice": choice, "prediction": prediction, "prompt": prompt}
    if kind == "uncond":
        values = choice.outcome("accuracy_uncond") | {"margin": margin(scores, correct)}
        return result(item, spans, values=values, **shown)
    probability = probabilities(scores)
    values = choice.outcome() | {"confidence": probability.max(), "margin": margin(scores, correct)}
    values |= _order_metrics(spans, order, correct)
    if len(choice.predicted_indices) == 1:
        values["chosen_position"] = choice.predicted_indices[0]
    if correct:
        truth = np.isin(np.arange(n), correct) / len(correct)
        values["probability"] = probability[correct].sum()
        values["brier"] = ((probability - truth) ** 2).sum()
        values["gold_position"] = min(item["gold"])
    return result(item, spans, values=values, **shown)


def reordered(item: Item, order: list[int]) -> dict:
    """Return the item with its options in the order of their letters."""
    choices = [item["choices"][i] for i in order]
    return item | {"choices": choices, "gold": sorted(order.index(i) for i in item["gold"] if i in order)}


def _parse_choice(role: str) -> Role | None:
    """Parse the role of an option's letter, "uncond" without the question; None for a skipped item."""
    parsed = None if skipped_reason(role) is not None else Role.parse(role)
    return parsed if parsed and parsed.kind in ("choice", "uncond") else None


def _order_metrics(spans: dict, order: list[tuple[str, int]], correct: list[int]) -> dict[str, float]:
    """Return the values of order sensitivity; {} if there is one order only, or an order could not be scored."""
    rotations = sorted({role.rotation for name in spans if (role := _parse_choice(name))})
    if len(rotations) < 2:
        return {}
    rotation_logliks = [[spans[str(Role("choice", option, r))].loglik for _, option in order] for r in rotations]
    if any(loglik is None for logliks_by_letter in rotation_logliks for loglik in logliks_by_letter):
        return {}
    chosen = [best_indices(logliks_by_letter) for logliks_by_letter in rotation_logliks]
    values = {"same_in_every_order": all(len(indices) == 1 and indices == chosen[0] for indices in chosen)}
    if correct:
        is_correct = [set(indices) <= set(correct) for indices in chosen]
        values |= {"accuracy_orders": sum(is_correct) / len(is_correct), "correct_in_every_order": all(is_correct)}
    return values
