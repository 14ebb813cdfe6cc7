"""minimal_pair: which of two texts is more probable."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options=PLL,
    external="options",
    by_length=True,
    displayed_roles=("choice",),
)
