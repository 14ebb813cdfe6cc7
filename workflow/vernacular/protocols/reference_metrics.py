"""Bits of the correct text given the item: of protocols with `reference_of`, such as translation_bits."""

from dataclasses import replace

from vernacular.metrics.bits import bits_metrics, sizes
from vernacular.metrics.spans import items_with_spans, result
from vernacular.types import Item, Request, Result, Score

METRICS = [
    replace(metric, headline=metric.name == "answer_bits_per_byte") for metric in bits_metrics("answer_", masked=False)
]


def per_item(items: list[Item], requests: list[Request], scores: list[Score]) -> list[Result]:
    """Return a row per item with the bits of its reference and the lengths by which they are divided."""
    rows = []
    for item, spans in items_with_spans(items, requests, scores):
        reference = spans.get("reference")
        prompt = reference.context if reference else None
        if values := sizes(reference, "answer_"):
            values["surprisal_byte"] = -reference.loglik / values["answer_bytes"]
        rows.append(result(item, spans, values=values, prompt=prompt))
    return rows
