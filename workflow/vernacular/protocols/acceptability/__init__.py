"""acceptability (CoLA): surprisals of acceptable and unacceptable sentences."""

from vernacular.protocols.declaration import FIRST_TOKEN, PLL, Protocol

PROTOCOL = Protocol(
    options=PLL,
    note=FIRST_TOKEN,
    majority="label",
    displayed_roles=("sentence",),
)
