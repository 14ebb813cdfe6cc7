"""entities_bits: a request for the log-probability of each correct answer, with the prompt of entities."""

from vernacular.protocols.entities.requests import answer_requests as requests
from vernacular.protocols.entities.requests import few_shot_example

__all__ = ["few_shot_example", "requests"]
