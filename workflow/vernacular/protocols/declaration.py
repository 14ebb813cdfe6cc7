"""What a protocol is: the declaration in the `__init__.py` of its package, from which everything else is read.

A protocol is a package beside this module: `__init__.py` declares it as PROTOCOL, `requests.py` turns items into
requests, and `metrics.py` turns outputs into per-item results. Neither imports the other. Nothing else names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Protocol:
    """How a task can be evaluated.

    Attributes:
        generates: The model writes a text; otherwise spans are scored.
        causal_only: A masked model cannot be evaluated.
        few_shot: Solved examples can stand before the item, in the language's own prompt lines.
        styles: Names of the prompt styles; the first is the default.
        tool_styles: Those of them that are another tool's prompts and do not use the language's prompt lines.
        options: What the user may set in `evaluations:`: a type, or a tuple of the values allowed.
        own_wording: A source that provides its own prompt text (lm-eval) can be evaluated so.
        majority: What the majority baseline counts: "label", "position" of the correct option, or None.
        external: How results from elsewhere are judged: as "options", a "word", a "text", or None where they cannot be.
        letters: The prediction may be an option's letter.
        by_length: External scores are also normalized by the length of the option, which is what was scored.
        drawn: Kinds of the roles whose tokens the report draws; of several, the last if it was scored.
    """

    generates: bool = False
    causal_only: bool = False
    few_shot: bool = False
    styles: tuple[str, ...] = ("default",)
    tool_styles: tuple[str, ...] = ()
    options: Mapping[str, type | tuple] = field(default_factory=dict)
    own_wording: bool = False
    majority: str | None = None
    external: str | None = None
    letters: bool = False
    by_length: bool = False
    drawn: tuple[str, ...] = ()


PLL = {"pll": ("original", "within_word_l2r")}  # masked models: Salazar et al. 2020, or Kauf & Ivanova 2023
