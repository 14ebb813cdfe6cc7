"""lm_eval_generation: generated texts for tasks of lm-evaluation-harness; see `lm_eval`."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    styles=("default", "chat"),
    options={"gen_kwargs": dict} | MULTITURN,
    tool="lm_eval",
)
