"""target_word: the measures of Grew-TSE's evaluator, for any number of forms, the first right, with its faults mended.

Per item everything is in nats; the metrics are shown in bits, as there. "Wrong" is the mean over the wrong forms. The
measures without suffix are those of the form in its sentence (token-level), `_sentence` those of the whole sentence.
"""

import math

import numpy as np

from vernacular.metrics.choice import choose, correct_options, margin
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import asked, logliks, result
from vernacular.types import Item, Request, Result, Score

TOP_K = 100  # of `topk_entropy` in the scores


def bits(nats: np.ndarray) -> np.ndarray:
    """Mean over items (…, n) of a value in nats, in bits."""
    return nats.mean(-1) / math.log(2)


def average_surprisal_difference(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """ASD in bits: mean surprisal of wrong forms minus that of right forms (nats in)."""
    return bits(wrong) - bits(right)


def normalised_difference(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """(U - G) / G of mean surprisals, a ratio without unit.

    >>> float(normalised_difference(np.array([2.0, 4.0]), np.array([5.0, 4.0])))
    0.5
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return (wrong.mean(-1) - right.mean(-1)) / right.mean(-1)


def _metrics(suffix: str, level: str) -> list[Metric]:
    right, wrong = f"surprisal_right{suffix}", f"surprisal_wrong{suffix}"
    pair = {"needs": (right, wrong), "vectorised": True}
    return [
        Metric(f"accuracy{suffix}", "share", True, "surprisal", proportion=True, headline=not suffix,
               about=f"the right form is likelier than every other ({level})"),
        Metric(f"asd{suffix}", "bits", True, "surprisal", corpus=average_surprisal_difference, **pair,
               about=f"average surprisal difference, wrong minus right forms ({level}; Grew-TSE)"),
        Metric(f"asd_normalised{suffix}", "ratio", True, "surprisal", corpus=normalised_difference, **pair,
               about=f"(wrong - right) / right of mean surprisals ({level}; Grew-TSE)"),
        Metric(right, "bits", False, "surprisal", corpus=bits, needs=(right,), vectorised=True,
               about=f"mean surprisal of right forms ({level})"),
        Metric(wrong, "bits", None, "surprisal", corpus=bits, needs=(wrong,), vectorised=True,
               about=f"mean surprisal of wrong forms ({level})"),
    ]  # fmt: skip


METRICS = [
    *_metrics("", "token-level"),
    Metric("probability", "share", True, "surprisal", about="mean probability of right forms"),
    Metric("entropy", "bits", None, "surprisal", corpus=bits, needs=("entropy",), vectorised=True,
           about="entropy of the whole vocabulary at the form's first token"),
    Metric("certainty", "share", None, "surprisal",
           about=f"1 - H / ln {TOP_K}, H the entropy of the {TOP_K} likeliest tokens (Grew-TSE divides by ln |V|)"),
    *_metrics("_sentence", "sentence-level"),
]  # fmt: skip


def per_item(items: list[Item], requests: list[Request], scores: list[Score]) -> list[Result]:
    """A row per item; `option_scores` are log-likelihoods (nats) of forms, of sentences where forms were not asked."""
    rows = []
    for item, spans in asked(items, requests, scores):
        n, right = len(item["choices"]), correct_options(item["choices"], item["gold"])
        token, sentence = logliks(spans, "token", n), logliks(spans, "sentence", n)
        values = _level(token, right, "") | _level(sentence, right, "_sentence")
        for level, logprobs in (("token", token), ("sentence", sentence)):
            values |= {f"loglik_{level}:{i}": logprob for i, logprob in enumerate(logprobs or ())}
        if token and right:
            first = max(right, key=lambda i, token=token: token[i])
            values["probability"] = math.exp(token[first])
            values |= _entropies(spans[f"token:{first}"].score)
        shown = token or sentence
        rows.append(
            result(
                item,
                spans,
                values=values,
                option_scores=shown,
                choice=choose(shown, right),
                prompt=item["context"],
            )
        )
    return rows


def _level(logprob: list[float] | None, right: list[int], suffix: str) -> dict[str, float]:
    values = choose(logprob, right).outcome(f"accuracy{suffix}")
    wrong = [-score for i, score in enumerate(logprob or ()) if i not in right]
    if not right or not wrong:
        return values
    return values | {
        f"surprisal_right{suffix}": -max(logprob[i] for i in right),
        f"surprisal_wrong{suffix}": sum(wrong) / len(wrong),
        f"margin{suffix}": margin(logprob, right),
    }


def _entropies(score: dict) -> dict[str, float | None]:
    """Entropies (nats) at the first token of the form, and the certainty made of the second; None where not asked."""
    full, top = ((score.get(name) or [None])[0] for name in ("entropy", "topk_entropy"))
    return {"entropy": full, "topk_entropy": top, "certainty": None if top is None else 1 - top / math.log(TOP_K)}
