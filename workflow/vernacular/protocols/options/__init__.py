"""options: log-probability of each option's text after the question."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    causal_only=True,
    few_shot=True,
    styles=("default", "english"),
    options=MULTITURN,
    majority="position",
    external="options",
    by_length=True,
    displayed_roles=("choice",),
)
