"""generation: comparison of the response with the options, by similarity and by text.

For each similarity metric m of the config: the mean similarity to all options (`m_mean`), the similarity to the most
similar correct and incorrect option (`m_correct`, `m_incorrect`), their difference (`m_margin`), and whether the most
similar option is correct (`m_accuracy`; any correct option counts, a tie with an incorrect one does not). Items without
options have `m_correct` only, the similarity to their target. In addition: exact match, chrF and token F1.

An empty response has no similarities and is flagged; it chooses no option and equals none, so it counts as incorrect. A
failed generation is excluded from all metrics.

Comparison with Simil-Eval's report: its "global mean" is `m_mean`, but with 0.0 for empty responses; its "mean with
correct options" pools all correct options, whereas `m_correct` uses the most similar one of each item; its accuracy
requires the correct option that is visited last, `m_accuracy` any correct option. Its BERTScore against "all options"
is the larger of `bertscore_correct` and `bertscore_incorrect`. With one correct answer per item and no empty
response, the two agree.
"""

import unicodedata
from collections import Counter

from sacrebleu.metrics import CHRF

from vernacular.metrics.choice import Choice, choose, correct_options, margin
from vernacular.metrics.metric import Metric
from vernacular.metrics.similarity.answers import Answer, given
from vernacular.protocols.verbatim import metrics as verbatim
from vernacular.types import Generation, Item, Request, Result

SIMILARITIES = {"cosine": "cosine", "moverscore": "score", "bertscore": "score"}  # metrics and their units


def _of(name: str, unit: str) -> list[Metric]:
    return [
        Metric(f"{name}_accuracy", "share", True, "similarity", proportion=True, headline=True,
               about=f"the option most similar to the response by {name} is correct"),
        Metric(f"{name}_mean", unit, None, "similarity", about=f"mean {name} of the response and each option"),
        Metric(f"{name}_correct", unit, True, "similarity",
               about=f"{name} of the response and the most similar correct option"),
        Metric(f"{name}_incorrect", unit, False, "similarity",
               about=f"{name} of the response and the most similar incorrect option"),
        Metric(f"{name}_margin", unit, True, "similarity", about=f"{name}_correct minus {name}_incorrect"),
    ]  # fmt: skip


METRICS = [
    *(metric for name, unit in SIMILARITIES.items() for metric in _of(name, unit)),
    Metric("exact_match", "share", True, "similarity", proportion=True, headline=True,
           about="correct response, ignoring case, punctuation and whitespace (after SQuAD, Rajpurkar et al. 2016)"),
    *verbatim.METRICS,
    Metric("token_f1", "score", True, "similarity",
           about="words shared with the most similar correct answer, 0 to 1 (SQuAD, Rajpurkar et al. 2016)"),
    Metric("chrf", "score", True, "similarity",
           about="character n-grams shared with the most similar correct answer, 0 to 100 (sacrebleu, Popović 2015)"),
]  # fmt: skip

_CHRF = CHRF()


def per_item(
    items: list[Item], requests: list[Request], generations: list[Generation], similarities: list[dict]
) -> list[Result]:
    """Return rows per TASK_RESULTS, one per item with a request; `similarities` may contain any of the metrics.

    The choice is that of the first metric in the order of SIMILARITIES; for an item without options, `correct` states
    whether the response matches its target.
    """
    answers, raw = given(requests, generations), {row["item_id"]: row["raw_output"] for row in generations}
    measured: dict[str, dict[str, list]] = {}
    for row in similarities:
        measured.setdefault(row["item_id"], {})[row["metric"]] = row["similarities"]
    asked = {request["item_id"]: request for request in requests}
    return [
        _row(
            item,
            asked[item["item_id"]],
            answers.get(item["item_id"], Answer(None, "error: no generation")),
            measured.get(item["item_id"], {}),
            raw.get(item["item_id"]),
        )
        for item in items
        if item["item_id"] in asked
    ]


def _row(item: Item, request: Request, answer: Answer, measured: dict[str, list], raw: str | None) -> dict:
    right = correct_options(item["choices"], item["gold"])
    values: dict[str, float] = {}
    flags = [answer.flag]
    shown: tuple[list | None, Choice | None] = (None, None)
    for name in SIMILARITIES:
        scores = measured.get(name)
        if scores is None or answer.text is None:
            continue
        if item["choices"]:
            choice = _choice(scores, right)
            values |= _of_options(name, scores, right, choice)
            shown = shown if shown[1] else (scores, choice)
        elif scores and scores[0] is not None:
            values[f"{name}_correct"] = scores[0]
        if answer.text.strip() and all(score is None for score in scores):
            flags.append(f"no {name}")
    references = _references(item, right)
    if answer.text is not None and references:
        values |= textual(compared_part(item, answer.text), references)
    if answer.text is not None:
        values |= verbatim.values(item, raw)
    scores, choice = shown
    correct = choice.correct if choice else _matched(item, values)
    return {
        "item_id": item["item_id"],
        "cluster_id": item["cluster_id"],
        "category": item["category"],
        "prompt": request["text"],
        "choices": list(item["choices"]),
        "gold": list(item["gold"]),
        "option_scores": scores,
        "prediction": answer.text,
        "predicted_indices": choice.predicted if choice else None,
        "correct": correct,
        "tie": choice.tie if choice else None,
        "metrics": values,
        "flags": "; ".join(flag for flag in flags if flag) or None,
    }


def _choice(scores: list[float | None], right: list[int]) -> Choice:
    """Choose the most similar option; without similarities none is chosen, which is incorrect if the gold is known."""
    if all(score is None for score in scores):
        return Choice([], False if right else None)
    return choose([float("-inf") if score is None else score for score in scores], right)


def _of_options(name: str, scores: list[float | None], right: list[int], choice: Choice) -> dict[str, float]:
    known = {i: score for i, score in enumerate(scores) if score is not None}
    values = {}
    if known:
        values[f"{name}_mean"] = sum(known.values()) / len(known)
    if right:
        sides = {
            "correct": [s for i, s in known.items() if i in right],
            "incorrect": [s for i, s in known.items() if i not in right],
        }
        values |= {f"{name}_{side}": max(found) for side, found in sides.items() if found}
        gap = margin(list(known.values()), [k for k, i in enumerate(known) if i in right])
        values |= {} if gap is None else {f"{name}_margin": gap}
    if choice.correct is not None:
        values[f"{name}_accuracy"] = float(choice.correct)
    if choice.tie:
        values[f"tie:{name}_accuracy"] = 1.0
    return values


def _references(item: Item, right: list[int]) -> list[str]:
    """Return the correct texts: the correct options, or the target if there are no options."""
    if item["choices"]:
        return [item["choices"][i] for i in right]
    return [item["target"]] if item["target"] else []


def _matched(item: Item, values: dict[str, float]) -> bool | None:
    """Return whether the response to an item without options matches its target; None if unknown."""
    return None if item["choices"] or "exact_match" not in values else values["exact_match"] == 1.0


def compared_part(item: Item, answer: str) -> str:
    """Return the part of a response that is compared with the references as text.

    If the last word of a sentence is requested (no options, a target of one word; CALAME, Lopes et al. 2024), it is the
    first word, because the model may continue after it.
    """
    if item["choices"] or len(item["target"].split()) != 1:
        return answer
    return next((word for word in answer.split() if normalised(word)), "")


def textual(answer: str, references: list[str]) -> dict[str, float]:
    """Compute exact_match (0 or 1), token_f1 (0 to 1) and chrf (0 to 100), each for its most similar reference.

    >>> textual("Unha  mazá!", ["a casa", "unha mazá"])["exact_match"]
    1.0
    """
    return {
        "exact_match": float(any(matches(answer, reference) for reference in references)),
        "token_f1": max(token_f1(answer, reference) for reference in references),
        "chrf": _CHRF.sentence_score(answer, references).score,
    }


def matches(answer: str, reference: str) -> bool:
    """Return whether texts are equal after `normalised`; texts that contain only punctuation are compared unchanged."""
    one, other = normalised(answer), normalised(reference)
    return one == other if one else answer.strip() == reference.strip()


def token_f1(answer: str, reference: str) -> float:
    """Compute the harmonic mean of precision and recall of the normalized words, as in SQuAD's evaluation.

    >>> token_f1("a mazá vermella", "unha mazá")  # 1 of 3 and 1 of 2
    0.4
    """
    one, other = normalised(answer).split(), normalised(reference).split()
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other)) if shared else 0.0


def normalised(text: str) -> str:
    """Apply NFKC and case folding, remove punctuation, and collapse whitespace.

    This is SQuAD's normalization with Unicode punctuation, without the removal of English articles.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c for c in folded if unicodedata.category(c)[0] != "P").split())
