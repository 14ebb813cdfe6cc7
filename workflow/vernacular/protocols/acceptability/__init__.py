"""acceptability (CoLA): surprisals of acceptable and unacceptable sentences."""

from vernacular.protocols.declaration import FIRST_TOKEN, MIN_K_PLUS_PLUS, PLL, Protocol

PROTOCOL = Protocol(
    options={**PLL, **MIN_K_PLUS_PLUS}, note=FIRST_TOKEN, majority="label", displayed_roles=("sentence",)
)
