"""lm_eval: log-likelihoods for tasks of lm-evaluation-harness, whose own code writes the prompts and the metrics."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    causal_only=True,
    styles=("default", "chat"),  # chat: prompts are rendered by the chat template of a model
    options=MULTITURN,
    tool="lm_eval",
    displayed_roles=("text", "choice"),
)
