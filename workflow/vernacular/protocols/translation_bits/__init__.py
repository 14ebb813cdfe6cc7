"""translation_bits: probability of the reference translation given the source text."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    reference_of="translation",
    causal_only=True,
    few_shot=True,
    styles=("default", "english"),
    options=MULTITURN,
    displayed_roles=("reference",),
    note="No text is generated: the values also rank base models, which may not end a translation.",
)
