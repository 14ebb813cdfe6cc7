"""cloze: log-probabilities of a sentence with one gap, filled with each candidate."""

from vernacular.protocols.declaration import PLL, Protocol

PROTOCOL = Protocol(
    # score_unfilled_gap: also score as in the scripts of the Serbian cloze task
    options={"score_unfilled_gap": bool, **PLL},
    majority="position",
    external="options",
    displayed_roles=("filled",),
)
