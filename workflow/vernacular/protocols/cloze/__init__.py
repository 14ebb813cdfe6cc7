"""cloze: a sentence with one gap, filled with each candidate and scored."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options={"legacy": bool, **PLL},  # legacy: score also as the scripts of the Serbian cloze task do
    majority="position",
    external="options",
    drawn=("whole",),
)
