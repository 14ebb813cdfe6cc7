"""entities: named entities of a sentence, listed by type in a generated JSON object."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    generates=True,
    causal_only=True,
    structured=True,
    few_shot=True,
    styles=("default", "english"),
    lines=("entities",),
    options={"gen_kwargs": dict} | MULTITURN,
    note="A model without examples does not know the form of the answer: use some (shots: 8).",
)
