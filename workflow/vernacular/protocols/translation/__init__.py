"""translation: generated translations, compared with a reference translation."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    few_shot=True,
    styles=("default", "english"),
    options={"gen_kwargs": dict} | MULTITURN,
)
