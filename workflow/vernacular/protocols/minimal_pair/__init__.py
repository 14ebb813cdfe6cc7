"""minimal_pair: which of two texts is more probable."""

from vernacular.protocols.declaration import FIRST_TOKEN, PLL, Protocol

PROTOCOL = Protocol(
    options=PLL,
    note=FIRST_TOKEN,
    external="options",
    by_length=True,
    displayed_roles=("choice",),
)
