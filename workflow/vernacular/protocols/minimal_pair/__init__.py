"""minimal_pair: which of two texts is more probable."""

from vernacular.protocols.declaration import FIRST_TOKEN, MIN_K_PLUS_PLUS, PLL, Protocol

PROTOCOL = Protocol(
    options={**PLL, **MIN_K_PLUS_PLUS},
    note=FIRST_TOKEN,
    external="options",
    by_length=True,
    displayed_roles=("choice",),
)
