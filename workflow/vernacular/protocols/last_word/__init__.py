"""last_word: surprisal of the last word of a text."""

from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(
    causal_only=True,
    options={"bow_correction": bool},  # the beginning-of-word correction (Pimentel & Meister 2024)
    external="word",
    displayed_roles=("word",),
)
