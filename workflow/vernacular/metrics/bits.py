"""Bits per byte and per character of scored texts: values of different tokenizers can be compared.

For texts with total log-likelihood LL (nats), B UTF-8 bytes and C code points, summed over the items first:

    bits per byte      -LL / (ln 2 · B)
    bits per character -LL / (ln 2 · C)
    bits               -LL / (ln 2 · items)

Bytes are unfair across scripts: between languages, compare bits per item of parallel items. The values have a prefix:

    ""               the probability of a text: nothing precedes it
    "answer_"        the probability of a text given a prompt: an option, a last word, a continuation
    "pseudo_"        the pseudo-log-likelihood of a masked model (Salazar et al. 2020), or of an encoder-decoder that
                     fills in the words of a text, which is not a probability
    "pseudo_answer_" the same, of a part of a text given the rest of it
"""

import math

import numpy as np

from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, text_lengths

_UNITS = {"byte": "bytes", "character": "characters"}
_PSEUDO = "pseudo_"
_NAMES = ("bits", *_UNITS.values())
PREFIXES = {"": "the text", "answer_": "the correct text given its prompt"}


def scored_text(span: Span) -> str:
    """Return the characters to which the span's log-likelihood belongs; "" if nothing was scored.

    It is the span with its outer whitespace, and with what a normalizer removed or composed at its ends: whatever the
    offsets of the tokens include. It begins later if the first token was not scored, because no token precedes it, and
    it includes all of a token that crosses an edge.
    """
    logprobs = (span.score or {}).get("logprobs") or []
    n_unscored = next((i for i, value in enumerate(logprobs) if value is not None), len(logprobs))
    return span_text(span, n_unscored)[0] if n_unscored < len(logprobs) else ""


def span_text(span: Span, first: int = 0) -> tuple[str, int]:
    """Return (the characters of the span from its token `first` on, their position in the text that was sent)."""
    score, request = span.score, span.request
    offsets = score["offsets"][first:]
    start, end = offsets[0][0], max(last for _, last in offsets)
    text, low, high = request["prefix"] + request["text"], request["span_start"], request["span_end"]
    if score["rendered"] is not None:  # the prompt, and the span without leading whitespace, which is its end
        n_span, text = len(text[low:high].lstrip()), score["rendered"]
        low, high = len(text) - n_span, len(text)
    # all tokens of the span are scored, so that a character without one belongs to its neighbor
    start, end = start if first else min(start, low), max(end, high)
    return text[start:end], start


def is_conditional(span: Span) -> bool:
    """Return whether text precedes the span, so that its probability depends on a prompt."""
    return span.score["rendered"] is not None or span.request["span_start"] > 0


def sizes(span: Span | None, prefix: str) -> dict[str, float]:
    """Return {prefix + "bits": …, prefix + "bytes": …, prefix + "characters": …}; {} if the span is not scored."""
    if span is None or span.loglik is None or not (text := scored_text(span)):
        return {}
    lengths = text_lengths(text)
    values = (-span.loglik / math.log(2), lengths["byte"], lengths["char"])
    return {prefix + name: float(value) for name, value in zip(_NAMES, values, strict=True)}


def best_span(spans: dict[str, Span], role: str, scores: list[float] | None, correct: list[int]) -> Span | None:
    """Return the span of the most probable correct text; None if the scores or the correct texts are unknown.

    `scores`: log-likelihood of each of the roles "{role}:0", "{role}:1", …
    """
    return spans.get(f"{role}:{max(correct, key=lambda i: scores[i])}") if scores and correct else None


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Compute the ratio of sums over the last axis, (…, n) to (…).

    >>> bits = np.array([8.0, 30.0]) / np.log(2)
    >>> float(ratio(bits, np.array([10.0, 100.0])).round(6)), float((bits / [10, 100]).mean().round(6))  # not the mean
    (0.498386, 0.793482)
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return numerator.sum(-1) / denominator.sum(-1)


def bits_metrics(*prefixes: str, masked: bool = True) -> list[Metric]:
    """Return the metrics of `sizes`, for spans with these prefixes; `masked`: the protocol supports masked models."""
    names = [(prefix, PREFIXES[prefix]) for prefix in prefixes]
    if masked:
        names += [
            (_PSEUDO + prefix, f"{text}, by pseudo-log-likelihood (masked models, infilling)") for prefix, text in names
        ]
    return [metric for prefix, text in names for metric in _metrics(prefix, text)]


def _metrics(prefix: str, text: str) -> list[Metric]:
    bits = f"{prefix}bits"
    return [
        *(
            Metric(f"{bits}_per_{unit}", "bits", False, "surprisal", corpus=ratio, needs=(bits, prefix + length),
                   about=f"bits per {unit} of {text}: sum of bits / sum of {length}")
            for unit, length in _UNITS.items()
        ),
        Metric(bits, "bits", False, "surprisal",
               about=f"mean bits per item of {text}; between languages, comparable for parallel items only"),
    ]  # fmt: skip


def as_pseudo(values: dict[str, float], prefixes=tuple(PREFIXES)) -> dict[str, float]:
    """Return per-item values of a masked model: those of `sizes` are renamed, because they are no probabilities.

    `prefixes`: of the renamed ones; of an encoder-decoder, only those of texts without a prompt.

    >>> as_pseudo({"accuracy": 1.0, "answer_bits": 3.0})
    {'accuracy': 1.0, 'pseudo_answer_bits': 3.0}
    """
    renamed = {prefix + name for prefix in prefixes for name in _NAMES}
    return {_PSEUDO + name if name in renamed else name: value for name, value in values.items()}
