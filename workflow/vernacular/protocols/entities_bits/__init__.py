"""entities_bits: probability of the correct list of named entities given the sentence."""

from vernacular.protocols.declaration import MULTITURN, Protocol

PROTOCOL = Protocol(
    reference_of="entities",
    causal_only=True,
    structured=True,
    few_shot=True,
    styles=("default", "english"),
    lines=("entities",),
    options=MULTITURN,
    displayed_roles=("reference",),
    note="No text is generated: the values also rank base models that list no entity.",
)
