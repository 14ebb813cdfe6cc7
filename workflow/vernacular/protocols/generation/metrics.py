"""generation: the written answer against the options, by similarity and by text.

Per similarity metric m of the config: how similar the answer is to all options (`m_mean`), to the best right and the
best wrong one (`m_correct`, `m_wrong`), the difference (`m_margin`), and whether the most similar option is a right one
(`m_accuracy`; any right option counts, a tie with a wrong one does not). Items without options have `m_correct` alone,
the similarity to their target. Beside these what readers expect: exact match, chrF, token F1.

An empty answer is similar to nothing, so its similarities are missing and the item is flagged; but it chose no option
and equals none, so it counts as wrong. A generation that failed counts as nothing at all.

Beside Simil-Eval's report: its "global mean" is `m_mean`, but with 0.0 for empty answers; its "mean with correct
options" pools all right options where `m_correct` takes the nearest of each item; its accuracy asks for the last right
option it happened to visit, `m_accuracy` for any. Its BERTScore against "all options" is the larger of
`bertscore_correct` and `bertscore_wrong`. For items with one right answer, and none empty, the two agree.
"""

import unicodedata
from collections import Counter

from sacrebleu.metrics import CHRF

from vernacular.metrics.choice import Choice, choose, correct_options, margin
from vernacular.metrics.metric import Metric
from vernacular.metrics.similarity.answers import Answer, given
from vernacular.protocols.verbatim import metrics as verbatim
from vernacular.types import Generation, Item, Request, Result

SIMILARITIES = {"cosine": "cosine", "moverscore": "score", "bertscore": "score"}  # and their units


def _of(name: str, unit: str) -> list[Metric]:
    return [
        Metric(f"{name}_accuracy", "share", True, "similarity", proportion=True, headline=True,
               about=f"the option most similar to the answer by {name} is a right one"),
        Metric(f"{name}_mean", unit, None, "similarity", about=f"{name} of the answer and each option, averaged"),
        Metric(f"{name}_correct", unit, True, "similarity", about=f"{name} of the answer and the nearest right option"),
        Metric(f"{name}_wrong", unit, False, "similarity", about=f"{name} of the answer and the nearest wrong option"),
        Metric(f"{name}_margin", unit, True, "similarity", about=f"{name}_correct minus {name}_wrong"),
    ]  # fmt: skip


METRICS = [
    *(metric for name, unit in SIMILARITIES.items() for metric in _of(name, unit)),
    Metric("exact_match", "share", True, "similarity", proportion=True, headline=True,
           about="the answer is a right one but for case, punctuation and blanks (after SQuAD, Rajpurkar et al. 2016)"),
    *verbatim.METRICS,
    Metric("token_f1", "score", True, "similarity",
           about="words shared with the nearest right answer, 0 to 1 (SQuAD, Rajpurkar et al. 2016)"),
    Metric("chrf", "score", True, "similarity",
           about="character n-grams shared with the nearest right answer, 0 to 100 (sacrebleu, Popović 2015)"),
]  # fmt: skip

_CHRF = CHRF()


def per_item(
    items: list[Item], requests: list[Request], generations: list[Generation], similarities: list[dict]
) -> list[Result]:
    """Rows per TASK_RESULTS, one per item that was asked; `similarities` may hold any of the metrics, or none.

    The choice shown is that of the first metric in the order of SIMILARITIES; of an item without options, whether the
    answer matches its target.
    """
    answers, raw = given(requests, generations), {row["item_id"]: row["raw"] for row in generations}
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
        "options": list(item["choices"]),
        "gold": list(item["gold"]),
        "option_scores": scores,
        "prediction": answer.text,
        "predicted": choice.predicted if choice else None,
        "correct": correct,
        "tie": choice.tie if choice else None,
        "values": values,
        "flag": "; ".join(flag for flag in flags if flag) or None,
    }


def _choice(scores: list[float | None], right: list[int]) -> Choice:
    """The most similar option; an answer similar to none chose none, which is wrong where a right one is known."""
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
            "wrong": [s for i, s in known.items() if i not in right],
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
    """The texts that are right: the right options, or the target where there are no options."""
    if item["choices"]:
        return [item["choices"][i] for i in right]
    return [item["target"]] if item["target"] else []


def _matched(item: Item, values: dict[str, float]) -> bool | None:
    """Of an item without options: does the answer match? None where that is not known."""
    return None if item["choices"] or "exact_match" not in values else values["exact_match"] == 1.0


def compared_part(item: Item, answer: str) -> str:
    """The part of an answer that is compared with the references as text.

    Where a sentence's last word is asked for (no options, a target of one word; CALAME, Lopes et al. 2024), the model
    may go on after it, so the first word counts.
    """
    if item["choices"] or len(item["target"].split()) != 1:
        return answer
    return next((word for word in answer.split() if normalised(word)), "")


def textual(answer: str, references: list[str]) -> dict[str, float]:
    """exact_match (0 or 1), token_f1 (0 to 1), chrf (0 to 100): each of the reference that is nearest by it.

    >>> textual("Unha  mazá!", ["a casa", "unha mazá"])["exact_match"]
    1.0
    """
    return {
        "exact_match": float(any(matches(answer, reference) for reference in references)),
        "token_f1": max(token_f1(answer, reference) for reference in references),
        "chrf": _CHRF.sentence_score(answer, references).score,
    }


def matches(answer: str, reference: str) -> bool:
    """Equal after `normalised`; texts of nothing but punctuation are compared as they are."""
    one, other = normalised(answer), normalised(reference)
    return one == other if one else answer.strip() == reference.strip()


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of the normalised words, as SQuAD's evaluation counts them.

    >>> token_f1("a mazá vermella", "unha mazá")  # 1 of 3 and 1 of 2
    0.4
    """
    one, other = normalised(answer).split(), normalised(reference).split()
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other)) if shared else 0.0


def normalised(text: str) -> str:
    """Compatibility forms united (NFKC), case folded, punctuation dropped, blanks made single.

    SQuAD's normalisation, less its English articles, over Unicode's punctuation.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c for c in folded if unicodedata.category(c)[0] != "P").split())
