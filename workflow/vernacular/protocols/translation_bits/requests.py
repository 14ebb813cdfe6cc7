"""translation_bits: a request for the log-probability of each reference translation, with the prompt of translation."""

from vernacular.protocols.translation.requests import few_shot_example
from vernacular.protocols.translation.requests import reference_requests as requests

__all__ = ["few_shot_example", "requests"]
