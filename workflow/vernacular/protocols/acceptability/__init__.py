"""acceptability (CoLA): the surprisal of whole sentences, acceptable and not."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options=PLL,
    majority="label",
    drawn=("sentence",),
)
