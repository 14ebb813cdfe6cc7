"""lm_eval_generation: generated texts for tasks of lm-evaluation-harness; see `lm_eval`."""

from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(generates=True, causal_only=True, tool="lm_eval")
