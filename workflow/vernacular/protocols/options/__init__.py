"""options: log-probability of each option's text after the question."""

from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(
    causal_only=True,
    few_shot=True,
    styles=("default", "english"),
    majority="position",
    external="options",
    by_length=True,
    displayed_roles=("choice",),
)
