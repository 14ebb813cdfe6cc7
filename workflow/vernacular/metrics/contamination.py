"""Signals of contamination in stored log-probabilities; never a verdict on an item or a dataset.

Min-K% is the mean log-probability of the least probable tokens of a text (Shi et al. 2023, arXiv 2310.16789): a text
from the training data has fewer surprising tokens. It is a weak signal: on WikiMIA (32 words, Pythia-2.8b), its AUROC
is 0.617, that of the mean log-probability 0.614, and datasets that separate members by date are separated as well by
their words alone (SoK, arXiv 2406.17975). Only the probability of an entire text qualifies, without a prompt before it.

Min-K%++ (Zhang et al. 2024, arXiv 2404.02936) is the mean of the lowest z-scores of the tokens, z = (ln p - μ) / σ,
with mean μ and standard deviation σ of ln p under the model's distribution of the next token (AUROC there: 0.640).

The canonical-order test concerns a dataset (Oren et al. 2023, arXiv 2310.17623). If the order of a dataset's items is
arbitrary, a model that has not seen the dataset assigns the published order no higher probability than any other. The
items are split into S shards of consecutive items. With d the log-likelihood of a shard's items in published order,
minus the mean over shuffled orders of the same items,

    t = mean(d) / sd(d) · √S

has Student's distribution with S - 1 degrees of freedom, and the test is one-sided. The standard deviation is that of a
sample (S - 1); with that of a population, as in the authors' code, t is √(S / (S - 1)) times as large.

The test assumes that the order carries no meaning: items that are sorted by passage, length, topic or label are more
probable in that order for any model. A high p-value does not show that the dataset was not seen.
"""

import heapq
import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from scipy.special import stdtr

from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span
from vernacular.types import Role, Score

ROLE = "order"  # of the requests: order:0 is the published order, order:1, order:2, … are shuffled
DIFFERENCE = "order_difference"
_NOISE = 1e-6  # difference, relative to the log-likelihood, that float32 does not resolve
_LIMITS = (
    "a signal of contamination, no verdict: an order that carries meaning (sorted by passage, length or topic) is more "
    "probable for any model, and a high p-value does not show that the dataset was not seen"
)
SHARE = 0.2  # of the tokens
NAME, NAME_PLUS_PLUS = "min_20", "min_20_plus_plus"
SIGNALS = [  # of a text
    Metric(NAME, "nats", None, "surprisal",
           about="Min-20%: mean log-probability of the least probable fifth of a text's tokens (Shi et al. 2023); "
           "a weak signal of contamination, no verdict"),
    Metric(NAME_PLUS_PLUS, "score", None, "surprisal",
           about="Min-20%++: mean of the lowest fifth of the z-scores of a text's tokens, by mean and standard "
           "deviation of the log-probability under the distribution of the next token (Zhang et al. 2024); a weak "
           "signal of contamination, no verdict"),
]  # fmt: skip
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


def order_t(differences: np.ndarray) -> np.ndarray:
    """Return Student's t of differences, (…, shards) to (…); NaN if all are equal, or with one shard.

    >>> differences = np.array([1.2, 0.3, -0.4, 0.9, 0.5])
    >>> round(float(order_t(differences)), 4), round(float(order_p(differences)), 4)
    (1.8257, 0.071)
    """
    n = differences.shape[-1]
    if n < 2:
        return np.full(differences.shape[:-1], np.nan)
    deviation = np.where(np.ptp(differences, axis=-1) > 0, differences.std(axis=-1, ddof=1), np.nan)
    return differences.mean(axis=-1) / deviation * math.sqrt(n)


def order_p(differences: np.ndarray) -> np.ndarray:
    """Return the one-sided p-value of `order_t`, (…, shards) to (…)."""
    return stdtr(differences.shape[-1] - 1, -order_t(differences))


def order_difference(spans: dict[str, Span]) -> float | None:
    """Return d of a shard, in nats, from its spans by role; None if one of them was not scored.

    A difference that float32 does not resolve is 0: the order has no effect.
    """
    logliks = {Role.parse(role).index: span.loglik for role, span in spans.items()}
    if 0 not in logliks or len(logliks) < 2 or not all(x is not None and math.isfinite(x) for x in logliks.values()):
        return None
    published = logliks.pop(0)
    difference = published - fmean(logliks.values())
    return difference if abs(difference) > _NOISE * abs(published) else 0.0


def order_flag(spans: dict[str, Span]) -> str | None:
    """Return a flag if the model was given a shard's orders, but one of them could not be scored; else None."""
    reasons = [
        span.flag for span in spans.values() if span.loglik is None and "not applicable" not in (span.flag or "")
    ]
    return f"order test: {reasons[0]}" if reasons else None


ORDER_METRICS = [
    Metric(DIFFERENCE, "nats", None, "surprisal", of_dataset=True,
           about="log-likelihood of the items in published order minus that in shuffled orders, mean over shards"),
    Metric("order_t", "score", None, "surprisal", corpus=order_t, needs=(DIFFERENCE,), of_dataset=True,
           about="Student's t of these differences over shards (Oren et al. 2023)"),
    Metric("order_p", "score", None, "surprisal", corpus=order_p, needs=(DIFFERENCE,), of_dataset=True,
           about=f"one-sided p-value of the published order (Oren et al. 2023); {_LIMITS}"),
]  # fmt: skip
