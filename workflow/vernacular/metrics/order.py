"""Canonical-order test of a dataset (Oren et al. 2023, arXiv 2310.17623); a signal, never a verdict.

If the order of a dataset's items is arbitrary, a model that has not seen the dataset assigns the published order no
higher probability than any other. The items are split into S shards of consecutive items. With d the log-likelihood of
a shard's items in published order, minus the mean over shuffled orders of the same items,

    t = mean(d) / sd(d) · √S

has Student's distribution with S - 1 degrees of freedom, and the test is one-sided. The standard deviation is that of
a sample (S - 1); with that of a population, as in the authors' code, t is √(S / (S - 1)) times as large.

The test assumes that the order carries no meaning: items that are sorted by passage, length, topic or label are more
probable in that order for any model. A high p-value does not show that the dataset was not seen.
"""

import math
from statistics import fmean

import numpy as np
from scipy.special import stdtr

from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span
from vernacular.types import Role

ROLE = "order"  # of the requests: order:0 is the published order, order:1, order:2, … are shuffled
DIFFERENCE = "order_difference"
_NOISE = 1e-6  # difference, relative to the log-likelihood, that float32 does not resolve


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


_LIMITS = (
    "a signal of contamination, no verdict: an order that carries meaning (sorted by passage, length or topic) is more "
    "probable for any model, and a high p-value does not show that the dataset was not seen"
)
ORDER_METRICS = [
    Metric(DIFFERENCE, "nats", None, "surprisal", of_dataset=True,
           about="log-likelihood of the items in published order minus that in shuffled orders, mean over shards"),
    Metric("order_t", "score", None, "surprisal", corpus=order_t, needs=(DIFFERENCE,), vectorized=True, of_dataset=True,
           about="Student's t of these differences over shards (Oren et al. 2023)"),
    Metric("order_p", "score", None, "surprisal", corpus=order_p, needs=(DIFFERENCE,), vectorized=True, of_dataset=True,
           about=f"one-sided p-value of the published order (Oren et al. 2023); {_LIMITS}"),
]  # fmt: skip
