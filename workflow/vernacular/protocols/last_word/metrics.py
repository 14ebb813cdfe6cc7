"""last_word (Calame): surprisal of a text's last word, over all of its subword tokens."""

import numpy as np

from vernacular.metrics.bits import bits_metrics, sizes
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, result
from vernacular.types import Item, Result


def perplexity(surprisals: np.ndarray) -> np.ndarray:
    """Compute exp of the mean surprisal of words (not of tokens); (n,) or (resamples, n), in nats.

    >>> float(perplexity(np.log([2.0, 8.0])))  # the geometric mean of 2 and 8
    4.0
    """
    with np.errstate(over="ignore"):  # above 709 nats per word: infinite
        return np.exp(surprisals.mean(axis=-1))


METRICS = [
    Metric("surprisal", "nats", False, "surprisal", headline=True, about="surprisal of the last word"),
    Metric("surprisal_max", "nats", False, "surprisal",
           about="largest surprisal among the word's subword tokens (Simil-Eval's metric of Calame)"),
    Metric("surprisal_corrected", "nats", False, "surprisal",
           about="surprisal with the beginning-of-word correction (Pimentel & Meister 2024)"),
    Metric("greedy", "share", True, "surprisal", proportion=True,
           about="each subword token of the word is the most probable one (LAMBADA's accuracy, lm-eval's acc)"),
    Metric("perplexity", "score", False, "surprisal", corpus=perplexity, needs=("surprisal",),
           about="exp of the mean surprisal of the last word (lm-eval's perplexity of LAMBADA)"),
    Metric("coverage", "share", True, "surprisal", proportion=True, about="share of items that could be scored"),
    *bits_metrics("answer_", masked=False),
]  # fmt: skip


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return the row of an item, with values in nats."""
    word = spans.get("word")
    is_scored = word is not None and word.loglik is not None
    values = {"coverage": float(is_scored)}
    if is_scored:
        values |= {
            "surprisal": -word.loglik,
            "surprisal_max": -min(word.logprobs),
            "surprisal_corrected": corrected_surprisal(word),
            "greedy": float(all(word.score["is_greedy"])) if word.score.get("is_greedy") else None,
            **sizes(word, "answer_"),
        }
    return result(item, spans, values=values, prompt=word.context if word else None)


def corrected_surprisal(word: Span) -> float | None:
    """Compute the surprisal (nats) of the complete word, given that a word begins; None without the extra.

    Pimentel & Meister (2024), Oh & Schuler (2024): a leading space implies that the preceding word has ended, so -(sum
    of log-probabilities + ln P(a word begins | word) - ln P(a word begins | context)).
    """
    word_end_logprobs = word.score.get("word_end_logprobs")
    if not word_end_logprobs or word_end_logprobs[0] is None or word_end_logprobs[-1] is None:
        return None
    return -(word.loglik + word_end_logprobs[-1] - word_end_logprobs[0])
