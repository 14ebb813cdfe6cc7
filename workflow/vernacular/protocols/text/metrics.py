"""text: bits per byte and per character, and perplexities, of plain texts.

With LL the log-likelihood of all texts (nats), and W, B and N their words, UTF-8 bytes and tokens:

    word perplexity  exp(-LL / W)
    byte perplexity  exp(-LL / B) = 2 ^ bits per byte
    token perplexity exp(-LL / N), which depends on the tokenizer: not comparable between models

These are the values of lm-eval's `loglikelihood_rolling` (arXiv 2405.14782, appendix A.3.2) for a model whose tokenizer
adds no BOS, and with `style: lm_eval` for others. lm-eval counts one more word for whitespace at each end of a text,
which items do not have.
"""

import unicodedata
from dataclasses import replace

import numpy as np

from vernacular.metrics import contamination
from vernacular.metrics.bits import bits_metrics, ratio, sizes
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, result
from vernacular.types import Item, Result


def perplexity(bits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Compute 2 to the power of bits per unit of length, (n,) or (resamples, n).

    >>> bits = np.array([8.0]) / np.log(2)
    >>> [round(float(perplexity(bits, np.array([n]))), 6) for n in (10, 2, 3)]  # bytes, words and tokens of a text
    [2.225541, 54.59815, 14.391916]
    """
    with np.errstate(over="ignore"):  # above 1,024 bits per unit: infinite
        return np.exp2(ratio(bits, lengths))


_PERPLEXITIES = {
    "word_perplexity": ("words", "exp of the surprisal per word (separated by whitespace)"),
    "byte_perplexity": ("bytes", "exp of the surprisal per UTF-8 byte: 2 ^ bits per byte"),
    "token_perplexity": ("tokens", "exp of the surprisal per token: not comparable between tokenizers"),
}


def _metrics() -> list[Metric]:
    metrics = []
    for metric in bits_metrics(""):
        metrics.append(replace(metric, headline=metric.name.endswith("bits_per_byte")))
    for pseudo in ("", "pseudo_"):
        for name, (length, about) in _PERPLEXITIES.items():
            of_masked = ", by pseudo-log-likelihood (masked models)" if pseudo else ""
            needs = (f"{pseudo}bits", f"{pseudo}{length}" if length == "bytes" else length)
            metrics.append(
                Metric(f"{pseudo}{name}", "score", False, "surprisal", corpus=perplexity, needs=needs,
                       about=about + of_masked)
            )  # fmt: skip
    return metrics


METRICS = [*_metrics(), *contamination.SIGNALS, *contamination.ORDER_METRICS]


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return a text's row: bits, the lengths by which they are divided; of a shard's first text, the order test."""
    orders = {role: spans.pop(role) for role in [*spans] if role.startswith(f"{contamination.ROLE}:")}  # of a shard
    span = spans.get("text")
    values = sizes(span, "")
    if values:
        values["surprisal_byte"] = -span.loglik / values["bytes"]
        values |= {"words": len(item["context"].split()), "tokens": len(span.logprobs)}
        values |= contamination.signals(span)
    values[contamination.DIFFERENCE] = contamination.order_difference(orders)
    is_composed = unicodedata.is_normalized("NFC", item["context"])
    flags = [None if is_composed else "not NFC: characters and bytes are those of decomposed text"]
    flag = "; ".join(filter(None, [*flags, contamination.order_flag(orders)])) or None
    return result(item, spans, values=values, prompt=item["context"], flag=flag)
