"""lm_eval: log-likelihoods for tasks of lm-evaluation-harness, whose own code writes the prompts and the metrics."""

from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(causal_only=True, tool="lm_eval", displayed_roles=("text", "choice"))
