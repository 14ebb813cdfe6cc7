"""The declaration of a protocol, in the `__init__.py` of its package.

A protocol is a package in this directory: `__init__.py` declares it as PROTOCOL, `requests.py` converts items to
requests, and `metrics.py` converts outputs to per-item results. Neither imports the other, and no other module names
the protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Protocol:
    """A method of evaluation.

    Attributes:
        generates: The model generates text; otherwise, spans are scored.
        causal_only: Masked models cannot be evaluated.
        chat_only: Prompts are chats; models without a chat template cannot be evaluated.
        structured: Answers are data, not prose: no judge reads them, and neither language nor words are counted.
        similarity: Responses are compared with the options by similarity.
        few_shot: Few-shot examples can precede the item, with the prompt lines of the language.
        styles: Names of the prompt styles; the first is the default.
        tool_styles: Styles with the prompts of another tool, which do not use the prompt lines of the language.
        lines: Prompt lines that prompts need in addition to those of every language and variant.
        options: Settings in `evaluations:`, each with a type or a tuple of the allowed values.
        options_of_all_items: Options that need the entire dataset, and therefore no limit.
        dependent_options: Options without effect unless another one is set.
        tool: The tool whose own code builds the requests and computes the metrics, in its environment; None: no other.
        signature_options: Options on which all values depend, with defaults; in the signature, with the BOS policy.
        majority: The value that the majority baseline counts: "label", "position" of the correct option, or None.
        external: How external results are scored: as "options", a "word" or a "text"; None: not supported.
        letters: An external prediction may be an option's letter.
        label_spans: The spans are labels, usually of one token, which the distribution of the next token scores.
        by_length: External scores are also normalized by the length of the option, which is what was scored.
        displayed_roles: Kinds of the roles whose tokens the report displays; of several, the last one that was scored.
        note: What readers of the values must know, shown in the report.
    """

    generates: bool = False
    causal_only: bool = False
    chat_only: bool = False
    structured: bool = False
    similarity: bool = False
    few_shot: bool = False
    styles: tuple[str, ...] = ("default",)
    tool_styles: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    options: Mapping[str, type | tuple] = field(default_factory=dict)
    options_of_all_items: tuple[str, ...] = ()
    dependent_options: Mapping[str, str] = field(default_factory=dict)
    tool: str | None = None
    signature_options: Mapping[str, object] = field(default_factory=dict)
    majority: str | None = None
    external: str | None = None
    letters: bool = False
    label_spans: bool = False
    by_length: bool = False
    displayed_roles: tuple[str, ...] = ()
    note: str = ""


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
