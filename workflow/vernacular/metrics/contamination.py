"""Signals of contamination in stored log-probabilities; never a verdict on an item or a dataset.

Min-K% is the mean log-probability of the least probable tokens of a text (Shi et al. 2023, arXiv 2310.16789): a text
from the training data has fewer surprising tokens. It is a weak signal: on WikiMIA (32 words, Pythia-2.8b), its AUROC
is 0.617, that of the mean log-probability 0.614, and datasets that separate members by date are separated as well by
their words alone (SoK, arXiv 2406.17975). Only the probability of an entire text qualifies, without a prompt before it.

Min-K%++ (Zhang et al. 2024, arXiv 2404.02936) is the mean of the lowest z-scores of the tokens, z = (ln p - μ) / σ,
with mean μ and standard deviation σ of ln p under the model's distribution of the next token (AUROC there: 0.640).
"""

import heapq
import math
from collections.abc import Sequence

from vernacular.metrics.metric import Metric
from vernacular.metrics.order import DIFFERENCE
from vernacular.metrics.spans import Span
from vernacular.types import Score

SHARE = 0.2  # of the tokens
NAME, NAME_PLUS_PLUS = "min_20", "min_20_plus_plus"

MIN_K = Metric(
    NAME,
    "nats",
    None,
    "surprisal",
    about="Min-20%: mean log-probability of the least probable fifth of a text's tokens (Shi et al. 2023); "
    "a weak signal of contamination, no verdict",
)

MIN_K_PLUS_PLUS = Metric(
    NAME_PLUS_PLUS,
    "score",
    None,
    "surprisal",
    about="Min-20%++: mean of the lowest fifth of the z-scores of a text's tokens, by mean and standard deviation of "
    "the log-probability under the distribution of the next token (Zhang et al. 2024); a weak signal of contamination, "
    "no verdict",
)
SIGNALS = [MIN_K, MIN_K_PLUS_PLUS]  # of a text
_NAMES = {NAME, NAME_PLUS_PLUS, DIFFERENCE}


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
    """Return {"min_20": …} of an entire text; {} if it was not scored, or a log-probability is infinite.

    "min_20_plus_plus" is added where the evaluation has asked for the statistics that it needs.
    """
    if span is None or span.loglik is None or not math.isfinite(span.loglik):
        return {}
    values = {NAME: min_k(span.logprobs)}
    if (scores := z_scores(span.score)) is not None:
        values[NAME_PLUS_PLUS] = min_k(scores)
    return values


def z_scores(score: Score) -> list[float] | None:
    """Return (ln p - μ) / σ of each scored token; None if μ and σ are not stored, or a σ is 0 (all tokens are equal).

    >>> score = {"logprobs": [None, math.log(0.7)], "logprob_mean": [None, -0.940448], "logprob_sd": [None, 0.891728]}
    >>> [round(value, 5) for value in z_scores(score)]
    [0.65465]
    """
    if score.get("logprob_mean") is None or score.get("logprob_sd") is None:
        return None
    columns = (score[name] for name in ("logprobs", "logprob_mean", "logprob_sd"))
    tokens = [values for values in zip(*columns, strict=True) if None not in values]
    if any(deviation == 0 for _, _, deviation in tokens):
        return None
    return [(logprob - mean) / deviation for logprob, mean, deviation in tokens]


def without_signals(values: dict[str, float]) -> dict[str, float]:
    """Return per-item values without signals, for masked models: pseudo-log-likelihoods do not show memorization."""
    return {name: value for name, value in values.items() if name not in _NAMES}
