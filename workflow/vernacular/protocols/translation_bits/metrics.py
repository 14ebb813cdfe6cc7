"""translation_bits: bits of the reference translation given the source text."""

from dataclasses import replace

from vernacular.metrics.bits import bits_metrics, sizes
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import items_with_spans, result
from vernacular.types import Item, Request, Result, Score


def reference_metrics(noun: str) -> list[Metric]:
    """Return the metrics of a reference, which `noun` names."""
    return [
        replace(
            metric,
            headline=metric.name == "answer_bits_per_byte",
            about=metric.about.replace("correct text", noun),
        )
        for metric in bits_metrics("answer_", masked=False)
    ]


METRICS = reference_metrics("reference translation")


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
