"""target_word: the metrics of Grew-TSE's evaluator for any number of forms, of which the first is correct.

Values per item are in nats, metrics in bits, as in Grew-TSE. "Wrong" is the mean over the incorrect forms. Metrics
without suffix are those of the form in its sentence (token), those with `_sentence` of the complete sentence.
Differences from Grew-TSE are listed in `interop/grew_tse.py`.
"""

import math

import numpy as np

from vernacular.metrics.choice import choose, correct_options, margin
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import asked, logliks, result
from vernacular.types import Item, Request, Result, Score

TOP_K = 100  # of `topk_entropy` in the scores


def bits(nats: np.ndarray) -> np.ndarray:
    """Return the mean over items (…, n) of values in nats, in bits."""
    return nats.mean(-1) / math.log(2)


def average_surprisal_difference(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Compute ASD in bits: mean surprisal of incorrect forms minus that of correct forms (both in nats)."""
    return bits(wrong) - bits(right)


def normalised_difference(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Compute (U - G) / G of mean surprisals, a ratio.

    >>> float(normalised_difference(np.array([2.0, 4.0]), np.array([5.0, 4.0])))
    0.5
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return (wrong.mean(-1) - right.mean(-1)) / right.mean(-1)


def _metrics(suffix: str, level: str) -> list[Metric]:
    right, wrong = f"surprisal_correct{suffix}", f"surprisal_incorrect{suffix}"
    pair = {"needs": (right, wrong), "vectorised": True}
    return [
        Metric(f"accuracy{suffix}", "share", True, "surprisal", proportion=True, headline=not suffix,
               about=f"the correct form is more probable than all others ({level})"),
        Metric(f"asd{suffix}", "bits", True, "surprisal", corpus=average_surprisal_difference, **pair,
               about=f"average surprisal difference, incorrect minus correct forms ({level}; Grew-TSE)"),
        Metric(f"asd_normalised{suffix}", "ratio", True, "surprisal", corpus=normalised_difference, **pair,
               about=f"(incorrect - correct) / correct of mean surprisals ({level}; Grew-TSE)"),
        Metric(right, "bits", False, "surprisal", corpus=bits, needs=(right,), vectorised=True,
               about=f"mean surprisal of correct forms ({level})"),
        Metric(wrong, "bits", None, "surprisal", corpus=bits, needs=(wrong,), vectorised=True,
               about=f"mean surprisal of incorrect forms ({level})"),
    ]  # fmt: skip


METRICS = [
    *_metrics("", "token"),
    Metric("probability", "share", True, "surprisal", about="mean probability of correct forms"),
    Metric("entropy", "bits", None, "surprisal", corpus=bits, needs=("entropy",), vectorised=True,
           about="entropy over the vocabulary at the form's first token"),
    Metric("certainty", "share", None, "surprisal",
           about=f"1 - H / ln {TOP_K}, H the entropy of the {TOP_K} most probable tokens (Grew-TSE divides by ln |V|)"),
    *_metrics("_sentence", "sentence"),
]  # fmt: skip


def per_item(items: list[Item], requests: list[Request], scores: list[Score]) -> list[Result]:
    """Return a row per item; `option_scores`: log-likelihoods (nats) of forms, or of sentences without form scores."""
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
        f"surprisal_correct{suffix}": -max(logprob[i] for i in right),
        f"surprisal_incorrect{suffix}": sum(wrong) / len(wrong),
        f"margin{suffix}": margin(logprob, right),
    }


def _entropies(score: dict) -> dict[str, float | None]:
    """Return entropies (nats) at the form's first token, and the certainty from the top-k entropy; None if missing."""
    full, top = ((score.get(name) or [None])[0] for name in ("entropy", "topk_entropy"))
    return {"entropy": full, "topk_entropy": top, "certainty": None if top is None else 1 - top / math.log(TOP_K)}
