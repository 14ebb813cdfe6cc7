"""letters: log-probability of each option's letter after the question (PalmX 2025)."""

from vernacular.protocols.declaration import MULTITURN, Protocol
from vernacular.types import OPTIONS_ONLY

PROTOCOL = Protocol(
    causal_only=True,
    few_shot=True,
    styles=("default", "english", OPTIONS_ONLY, f"english-{OPTIONS_ONLY}"),
    options={"option_rotations": int} | MULTITURN,  # number of rotations of the options
    majority="position",
    external="options",
    letters=True,
    label_spans=True,
    displayed_roles=("choice", "uncond"),
)
