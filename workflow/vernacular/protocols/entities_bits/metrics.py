"""entities_bits: bits of the correct list of named entities given the sentence, as those of a reference translation."""

from dataclasses import replace

from vernacular.protocols.translation_bits.metrics import METRICS as TRANSLATION_METRICS
from vernacular.protocols.translation_bits.metrics import per_item

METRICS = [replace(each, about=each.about.replace("reference translation", "answer")) for each in TRANSLATION_METRICS]
__all__ = ["METRICS", "per_item"]
