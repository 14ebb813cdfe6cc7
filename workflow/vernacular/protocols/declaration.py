"""The declaration of a protocol, in the `__init__.py` of its package.

A protocol is a package in this directory: `__init__.py` declares it as PROTOCOL; `requests.py` converts an item to
requests (`requests`, and `few_shot_example`); `metrics.py` lists METRICS and converts the spans of an item, or its
generated output, to a result (`result_of`). Neither imports the other, and no other module names the protocol. One with
`reference_of` has the `reference_requests` of that protocol, and `reference_metrics.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Protocol:
    """A method of evaluation."""

    generates: bool = False  # whether the model generates text; otherwise, spans are scored
    causal_only: bool = False  # whether masked models cannot be evaluated
    chat_only: bool = False  # whether prompts are chats, so that models need a chat template
    structured: bool = False  # whether answers are data, not prose, so that no judge reads them and no word is counted
    similarity: bool = False  # whether responses are compared with the options by similarity
    few_shot: bool = False  # whether few-shot examples can precede the item, with the prompt lines of the language
    styles: tuple[str, ...] = ("default",)  # of the prompts; the first is the default
    tool_styles: tuple[str, ...] = ()  # of another tool, without the prompt lines of the language
    lines: tuple[str, ...] = ()  # that prompts need in addition to those of every language and variant
    options: Mapping[str, type | tuple] = field(default_factory=dict)  # in `evaluations:`: type, or allowed values
    options_of_all_items: tuple[str, ...] = ()  # that need the entire dataset, and therefore no limit
    dependent_options: Mapping[str, str] = field(default_factory=dict)  # without effect unless another one is set
    tool: str | None = None  # whose own code builds the requests and computes the metrics, in its environment
    signature_options: Mapping[str, object] = field(default_factory=dict)  # on which all values depend, with defaults
    majority: str | None = None  # what the majority baseline counts: "label" or "position" of the correct option
    reference_of: str | None = None  # the protocol whose references are scored, after its prompts
    external: str | None = None  # how external results are scored: as "options", "word" or "text"; None: not at all
    letters: bool = False  # whether an external prediction may be an option's letter
    label_spans: bool = False  # whether spans are labels, which the distribution of the next token scores
    by_length: bool = False  # whether external scores are also normalized by the length of the option
    displayed_roles: tuple[str, ...] = ()  # kinds of roles whose tokens the report displays: the last that was scored
    note: str = ""  # what readers of the values must know


# Of protocols that score a text from its first token
FIRST_TOKEN = (
    "Before the first word stands the model's BOS token, if it has one, as in lm-evaluation-harness. minicons and "
    "Simil-Eval add none, so that many models do not score the first token (bos: never). Sums and decisions depend on "
    "it: see docs/reproduce.md."
)
MULTITURN = {"fewshot_as_multiturn": bool}  # False: few-shot examples are in the user's turn, as plain text
# causal models: Zhang et al. 2024, from statistics that are not stored else
MIN_K_PLUS_PLUS = {"min_k_plus_plus": bool}
PLL = {"pll_variant": ("original", "within_word_l2r")}  # masked models: Salazar et al. 2020, or Kauf & Ivanova 2023
