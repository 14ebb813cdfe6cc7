"""entities_bits: bits of the correct list of named entities given the sentence, as those of a reference translation."""

from vernacular.protocols.translation_bits.metrics import per_item, reference_metrics

METRICS = reference_metrics("answer")
__all__ = ["METRICS", "per_item"]
