"""acceptability (CoLA): surprisals of acceptable and unacceptable sentences."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options=PLL,
    majority="label",
    displayed_roles=("sentence",),
)
