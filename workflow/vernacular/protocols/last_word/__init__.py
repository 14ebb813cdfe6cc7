"""last_word: the surprisal of the word that ends a text."""

from vernacular.protocols.declaration import Protocol

PROTOCOL = Protocol(
    causal_only=True,
    options={"bow_correction": bool},  # the beginning-of-word correction (Pimentel & Meister 2024)
    own_wording=True,
    external="word",
    drawn=("word",),
)
