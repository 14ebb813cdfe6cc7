"""last_word (Calame): the surprisal of a text's last word, over all of its sub-tokens."""

import numpy as np

from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, asked, result
from vernacular.types import Item, Request, Result, Score


def perplexity(surprisals: np.ndarray) -> np.ndarray:
    """exp of the mean surprisal of whole words (not of tokens); (n,) or (resamples, n) nats.

    >>> float(perplexity(np.log([2.0, 8.0])))  # the geometric mean of 2 and 8
    4.0
    """
    with np.errstate(over="ignore"):  # beyond 709 nats a word: infinite
        return np.exp(surprisals.mean(axis=-1))


METRICS = [
    Metric("surprisal", "nats", False, "surprisal", headline=True, about="surprisal of the last word"),
    Metric("surprisal_max", "nats", False, "surprisal",
           about="largest surprisal among the word's sub-tokens (Simil-Eval's number for Calame)"),
    Metric("surprisal_corrected", "nats", False, "surprisal",
           about="surprisal with the beginning-of-word correction (Pimentel & Meister 2024)"),
    Metric("greedy", "share", True, "surprisal", proportion=True,
           about="each sub-token of the word was the likeliest one (LAMBADA's accuracy, lm-eval's acc)"),
    Metric("perplexity", "score", False, "surprisal", corpus=perplexity, needs=("surprisal",), vectorised=True,
           about="exp of the mean surprisal of the last word (lm-eval's perplexity of LAMBADA)"),
    Metric("coverage", "share", True, "surprisal", proportion=True, about="share of items that could be scored"),
]  # fmt: skip


def per_item(items: list[Item], requests: list[Request], scores: list[Score]) -> list[Result]:
    """A row per item; values in nats."""
    rows = []
    for item, spans in asked(items, requests, scores):
        word = spans.get("word")
        scored = word is not None and word.loglik is not None
        values = {"coverage": float(scored)}
        if scored:
            values |= {
                "surprisal": -word.loglik,
                "surprisal_max": -min(word.logprobs),
                "surprisal_corrected": corrected(word),
                "greedy": float(all(word.score["greedy"])) if word.score.get("greedy") else None,
            }
        rows.append(result(item, spans, values=values, prompt=word.before if word else None))
    return rows


def corrected(word: Span) -> float | None:
    """Nats: surprisal of the word *ended*, given that a word begins (Pimentel & Meister 2024; Oh & Schuler 2024).

    A sub-token that opens a word says with its leading blank that the word before it has ended. That probability
    belongs to the word before: it is added after the word, and taken from the word where it was counted:
    -(sum of log-probabilities + ln P(a word begins | word) - ln P(a word begins | context)).
    None where the scores hold no `word_end`.
    """
    ends = word.score.get("word_end")
    if not ends or ends[0] is None or ends[-1] is None:
        return None
    return -(word.loglik + ends[-1] - ends[0])
