"""Signals of contamination in stored log-probabilities; never a verdict on an item or a dataset.

Min-K% is the mean log-probability of the least probable tokens of a text (Shi et al. 2023, arXiv 2310.16789): a text
from the training data has fewer surprising tokens. It is a weak signal: on WikiMIA (32 words, Pythia-2.8b), its AUROC
is 0.617, that of the mean log-probability 0.614, and datasets that separate members by date are separated as well by
their words alone (SoK, arXiv 2406.17975). Only the probability of an entire text qualifies, without a prompt before it.
"""

import heapq
import math
from collections.abc import Sequence

from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span

SHARE = 0.2  # of the tokens
NAME = "min_20"

MIN_K = Metric(
    NAME,
    "nats",
    None,
    "surprisal",
    about="Min-20%: mean log-probability of the least probable fifth of a text's tokens (Shi et al. 2023); "
    "a weak signal of contamination, no verdict",
)


def min_k(logprobs: Sequence[float], share: float = SHARE) -> float | None:
    """Return the mean of the lowest `share` of the values, at least of one; None if there are none.

    >>> logprobs = [-0.1, -2.0, -0.5, -4.0, -1.2, -0.3, -3.0, -0.2, -0.7, -0.05]
    >>> [round(min_k(logprobs, share), 6) for share in (0.2, 0.5, 1)]
    [-3.5, -2.18, -1.205]
    """
    if not logprobs:
        return None
    lowest = heapq.nsmallest(max(1, int(len(logprobs) * share)), logprobs)
    return math.fsum(lowest) / len(lowest)


def signals(span: Span | None) -> dict[str, float]:
    """Return {"min_20": …} of an entire text; {} if it was not scored, or a log-probability is infinite."""
    if span is None or span.loglik is None or not math.isfinite(span.loglik):
        return {}
    return {NAME: min_k(span.logprobs)}


def without_signals(values: dict[str, float]) -> dict[str, float]:
    """Return per-item values without signals, for masked models: pseudo-log-likelihoods do not show memorization."""
    return {name: value for name, value in values.items() if name != NAME}
