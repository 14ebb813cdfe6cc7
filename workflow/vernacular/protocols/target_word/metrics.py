"""target_word: the metrics of Grew-TSE's evaluator for any number of forms, of which the first is correct.

Values per item are in nats, metrics in bits, as in Grew-TSE. "Incorrect" is the mean over the incorrect forms. Metrics
without suffix are those of the form in its sentence (token), those with `_sentence` of the complete sentence.
Differences from Grew-TSE are listed in `workflow/exports/grew_tse.txt`.
"""

import math

import numpy as np

from vernacular.metrics.bits import best_span, bits_metrics, sizes
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, choose_option, correct_options, logliks, margin, result
from vernacular.types import Item, Result

TOP_K = 100  # of `topk_entropy` in the scores


def bits(nats: np.ndarray) -> np.ndarray:
    """Return the mean over items (…, n) of values in nats, in bits."""
    return nats.mean(-1) / math.log(2)


def _difference(correct: np.ndarray, incorrect: np.ndarray) -> np.ndarray:
    return bits(incorrect) - bits(correct)


def normalized_difference(correct: np.ndarray, incorrect: np.ndarray) -> np.ndarray:
    """Compute (U - G) / G of mean surprisals, a ratio.

    >>> float(normalized_difference(np.array([2.0, 4.0]), np.array([5.0, 4.0])))
    0.5
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return (incorrect.mean(-1) - correct.mean(-1)) / correct.mean(-1)


def _metrics(suffix: str, level: str) -> list[Metric]:
    correct, incorrect = f"surprisal_correct{suffix}", f"surprisal_incorrect{suffix}"
    pair = {"needs": (correct, incorrect)}
    return [
        Metric(f"accuracy{suffix}", "share", True, "surprisal", proportion=True, headline=not suffix,
               about=f"the correct form is more probable than all others ({level})"),
        Metric(f"asd{suffix}", "bits", True, "surprisal", corpus=_difference, **pair,
               about=f"average surprisal difference, incorrect minus correct forms ({level}; Grew-TSE)"),
        Metric(f"asd_normalized{suffix}", "ratio", True, "surprisal", corpus=normalized_difference, **pair,
               about=f"(incorrect - correct) / correct of mean surprisals ({level}; Grew-TSE)"),
        Metric(correct, "bits", False, "surprisal", corpus=bits, needs=(correct,),
               about=f"mean surprisal of correct forms ({level})"),
        Metric(incorrect, "bits", None, "surprisal", corpus=bits, needs=(incorrect,),
               about=f"mean surprisal of incorrect forms ({level})"),
    ]  # fmt: skip


METRICS = [
    *_metrics("", "token"),
    Metric("probability", "share", True, "surprisal", about="mean probability of correct forms"),
    Metric("entropy", "bits", None, "surprisal", corpus=bits, needs=("entropy",),
           about="entropy over the vocabulary at the form's first token"),
    Metric("certainty", "share", None, "surprisal",
           about=f"1 - H / ln {TOP_K}, H the entropy of the {TOP_K} most probable tokens (Grew-TSE divides by ln |V|)"),
    *_metrics("_sentence", "sentence"),
    *bits_metrics("", "answer_"),
]  # fmt: skip


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return an item's row; `option_scores`: log-likelihoods (nats) of forms, or of sentences without form scores."""
    n, correct = len(item["choices"]), correct_options(item["choices"], item["gold"])
    token, sentence = logliks(spans, "token", n), logliks(spans, "sentence", n)
    values = _level_metrics(token, correct, "") | _level_metrics(sentence, correct, "_sentence")
    values |= sizes(best_span(spans, "token", token, correct), "answer_")
    values |= sizes(best_span(spans, "sentence", sentence, correct), "")
    for level, logliks_of_level in (("token", token), ("sentence", sentence)):
        values |= {f"loglik_{level}:{i}": loglik for i, loglik in enumerate(logliks_of_level or ())}
    if token and correct:
        best_form = max(correct, key=lambda i: token[i])
        values["probability"] = math.exp(token[best_form])
        score = spans[f"token:{best_form}"].score  # statistics (nats) at its first token
        entropy, topk_entropy = ((score.get(name) or [None])[0] for name in ("entropy", "topk_entropy"))
        certainty = None if topk_entropy is None else 1 - topk_entropy / math.log(TOP_K)
        values |= {"entropy": entropy, "topk_entropy": topk_entropy, "certainty": certainty}
    shown = {"option_scores": token or sentence, "choice": choose_option(token or sentence, correct)}
    return result(item, spans, values=values, prompt=item["context"], **shown)


def _level_metrics(scores: list[float] | None, correct: list[int], suffix: str) -> dict[str, float]:
    values = choose_option(scores, correct).outcome(f"accuracy{suffix}")
    incorrect_surprisals = [-score for i, score in enumerate(scores or ()) if i not in correct]
    if not correct or not incorrect_surprisals:
        return values
    return values | {
        f"surprisal_correct{suffix}": -max(scores[i] for i in correct),
        f"surprisal_incorrect{suffix}": sum(incorrect_surprisals) / len(incorrect_surprisals),
        f"margin{suffix}": margin(scores, correct),
    }
