"""cloze: log-probabilities of a sentence with one gap, filled with each candidate."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    options={"legacy": bool, **PLL},  # legacy: also score as in the scripts of the Serbian cloze task
    majority="position",
    external="options",
    drawn=("whole",),
)
