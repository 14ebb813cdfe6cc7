"""generation: generated responses, compared with the options."""

from vernacular.protocols.declaration import MULTITURN, Protocol
from vernacular.types import SIMIL_EVAL_STYLES

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    similarity=True,
    few_shot=True,
    styles=("default", "open", "english", "english-open", *SIMIL_EVAL_STYLES),
    tool_styles=SIMIL_EVAL_STYLES,
    options={"gen_kwargs": dict, "repeats": int, "pass_at": int} | MULTITURN,
    dependent_options={"pass_at": "repeats"},
    majority="position",
    external="text",
)
