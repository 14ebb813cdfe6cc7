"""Bits of the correct text given the item: of protocols with `reference_of`, such as translation_bits."""

from dataclasses import replace

from vernacular.metrics.bits import bits_metrics, sizes
from vernacular.metrics.spans import Span, result
from vernacular.types import Item, Result

METRICS = [
    replace(metric, headline=metric.name == "answer_bits_per_byte") for metric in bits_metrics("answer_", masked=False)
]


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return the row of an item with the bits of its reference and the lengths by which they are divided."""
    reference = spans.get("reference")
    prompt = reference.context if reference else None
    if values := sizes(reference, "answer_"):
        values["surprisal_byte"] = -reference.loglik / values["answer_bytes"]
    return result(item, spans, values=values, prompt=prompt)
