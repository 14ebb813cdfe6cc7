"""Shared types: evaluations, the rows exchanged between stages, and request roles.

Rows are dicts, as returned by `pyarrow.Table.to_pylist`; the TypedDicts define their keys. The Arrow schemas, which are
validated on every write, are in the `schema.py` of the stage that writes the rows.
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypedDict

DEFAULT_PROMPT, ALL_PROMPTS = "default", "all"  # all: the mean over several prompts, in tables
SETTING = ("task", "language", "protocol", "shots", "seed", "style", "prompt")  # the fields that identify an evaluation
SIMIL_EVAL_STYLES = ("simil-eval", "simil-eval-open")  # prompts and parser of Simil-Eval (Rodríguez et al. 2025)
OPTIONS_ONLY = "options-only"  # style, or its end: without context and question, without examples
CHAT = "chat"  # in `extras` of a request: chat turns that every model renders, in the way of lm-eval
_SKIPPED = "skipped: "


class Role(NamedTuple):
    """The role of a request's output: `kind`, `kind:index` or `kind:index@rotation`.

    >>> Role.parse("choice:2@1")
    Role(kind='choice', index=2, rotation=1)
    >>> str(Role("choice", 2)), str(Role("response"))
    ('choice:2', 'response')
    """

    kind: str  # "choice", "sentence", "response", …
    index: int | None = None  # of the choice or form; None where a request concerns the item itself
    rotation: int = 0  # of the order of the choices; 0 = the item's own order

    def __str__(self) -> str:
        index = "" if self.index is None else f":{self.index}"
        return f"{self.kind}{index}" + (f"@{self.rotation}" if self.rotation else "")

    @classmethod
    def parse(cls, text: str) -> "Role":
        """Parse a role written by `str`. Raises ValueError if index or rotation is not an integer."""
        kind, _, rest = text.partition(":")
        index, _, rotation = rest.partition("@")
        return cls(kind, int(index) if index else None, int(rotation) if rotation else 0)


def skipped_role(reason: str) -> str:
    """Return the role of a row for a skipped item, which is counted and reported with `reason`."""
    return _SKIPPED + reason


def skipped_reason(role: str) -> str | None:
    """Return why an item is skipped, from the role of its row; None for the role of a request.

    >>> skipped_reason(skipped_role("no context")), skipped_reason("choice:0")
    ('no context', None)
    """
    return role.removeprefix(_SKIPPED) if role.startswith(_SKIPPED) else None


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: task × language × protocol × shots × seed × style × prompt, with its protocol options."""

    task: str
    language: str
    protocol: str
    shots: int
    seed: int
    style: str
    data: str  # "hub", "samples", or "lm_eval" for a task of lm-eval
    limit: int | None
    options: tuple[tuple[str, object], ...] = ()  # protocol options that the user has set
    prompt: str = DEFAULT_PROMPT

    @property
    def id(self) -> str:
        """The ID, a file name: `belebele.gl.letters.5shot`, plus `.seed1`, `.open` and `.formal` if not the default."""
        parts = [self.task, self.language, self.protocol, f"{self.shots}shot"]
        parts += [f"seed{self.seed}"] if self.seed else []
        parts += [self.style] if self.style != "default" else []
        parts += [self.prompt] if self.prompt != DEFAULT_PROMPT else []
        return ".".join(parts)

    @property
    def items_stem(self) -> str:
        """The stem of the items file: `openbookqa.gl`, or `openbookqa.gl.limit50` if the items are limited."""
        if self.data != "lm_eval" or self.prompt == DEFAULT_PROMPT:
            return self.dataset
        return f"{self.dataset}.{self.prompt}"  # whose items contain texts of the prompt

    @property
    def dataset(self) -> str:
        """The data of the items, which all prompts share."""
        tool = ".lm_eval" if self.data == "lm_eval" else ""  # which may have a task of the same name
        return f"{self.task}.{self.language}{tool}" + (f".limit{self.limit}" if self.limit else "")


class Item(TypedDict):
    """One example of a task in one language (schema ITEMS, `data/schema.py`)."""

    item_id: str
    few_shot: bool
    context: str
    question: str
    choices: list[str]
    gold: list[int]
    target: str | None
    cluster_id: str | None
    category: str | None
    source_row: int
    repeats: str | None
    extra: dict[str, str] | None


def accepted_answers(item: Item) -> list[str]:
    """Return the texts that answer an item without options: those of an open question, or its target."""
    if listed := (item.get("extra") or {}).get("targets"):
        return json.loads(listed)
    return [] if item["target"] is None else [item["target"]]


def correct_answers(item: Item) -> list[str]:
    """Return the correct options, or the texts that answer an item without options, as far as they are known."""
    if item["choices"]:
        return [item["choices"][i] for i in item["gold"]]
    return [text for text in accepted_answers(item) if text]


def is_number(item: Item) -> bool:
    """Return whether an open question asks for a number, which is the last one of an output."""
    return bool((item.get("extra") or {}).get("number"))


def target_language(item: Item) -> str | None:
    """Return the language into which the text of an item is translated; None for other items."""
    return dict(item.get("extra") or ()).get("target_language")


# one spelling of what has several: spaces, apostrophes, commas (also of Arabic), points, minus signs; of TeX {,} and \,
_SPELLINGS = {" ": "\u00a0\u2007\u2008\u2009\u202f", "'": "’‘＇ʼ′´", ",": "،，", ".": "．", "-": "−－﹣‐‑‒–"}
_SPELLINGS |= {"": "\u061c\u200e\u200f\u2066\u2067\u2068\u2069"}  # marks of direction, which may follow a sign
_ONE_SPELLING = str.maketrans({char: one for one, chars in _SPELLINGS.items() for char in chars})
_NUMBER = re.compile(
    r"(?P<sign>(?<!\w)-)?(?P<whole>"
    r"[1-9]\d?(?:(?P<by2>[,٬])\d\d)(?:(?P=by2)\d\d)*(?P=by2)\d{3}(?!\d)"  # 12,34,567: lakhs and crores
    r"|[1-9]\d{0,2}(?:(?P<by3>[.,٬'_ ])\d{3})(?:(?P=by3)\d{3})*(?!\d)"
    r"|[1-9]\d{0,3}(?:,\d{4}){2,}(?!\d)"  # 1,2345,6789: myriads
    r"|\d+)(?:[.,٫](?P<decimals>\d+))?"
    r"(?:[eE](?P<power>[+-]?\d{1,2})(?!\w)"  # 1.5e3
    r"| ?[×x·*] ?10(?:(?:\^|\*\*)\{?(?P<power_of_ten>-?\d{1,2})\}?|(?P<raised>⁻?[⁰¹²³⁴-⁹]{1,2})))?"
)
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def last_number(text: str) -> str | None:
    """Return the last number of a text without separators of groups, in one spelling; None if there is none.

    Groups, separators and digits are those of CLDR's locales, of any language: models mix them. One kind of separator
    divides all groups; a single one before three digits does, too: 1.200 is 1200.

    >>> last_number("3 + 4 = 7."), last_number("$1,234.50"), last_number("١٢"), last_number("1.200"), last_number("x")
    ('7', '1234.5', '12', '1200', None)
    >>> last_number("0.125"), last_number("10-12"), last_number("= −3,50"), last_number("2 000 000")
    ('0.125', '12', '-3.5', '2000000')
    >>> last_number("COVID-19"), last_number("–5"), last_number("-0.0")
    ('19', '-5', '0')
    >>> last_number("1.5e3"), last_number("3 × 10⁸"), last_number("2,5 \\\\cdot 10^{-2}"), last_number("1_000")
    ('1500', '300000000', '0.025', '1000')
    >>> last_number("₹1,25,000"), last_number("١٢٬٣٤٥٫٥"), last_number("1’200"), last_number("En 2024 500 persoas")
    ('125000', '12345.5', '1200', '500')
    """
    text = re.sub(r"\\(?:cdot|times)\b", "·", text.replace("{,}", ",").replace("\\,", " "))
    text = re.sub(r"\d", lambda digit: str(int(digit[0])), text)
    for number in reversed([*_NUMBER.finditer(text.translate(_ONE_SPELLING))]):
        power = number["power"] or number["power_of_ten"] or (number["raised"] or "0").translate(_RAISED)
        value = Decimal(f"{re.sub(r'[^0-9]', '', number['whole'])}.{number['decimals'] or 0}E{power}")
        whole, _, decimals = f"{value:f}".partition(".")
        value = (whole.lstrip("0") or "0") + (f".{decimals}".rstrip("0") if decimals.strip("0") else "")
        return value if value == "0" else (number["sign"] or "") + value
    return None


class Request(TypedDict):
    """One unit of model work (schema REQUESTS, `protocols/schema.py`)."""

    request_id: str
    item_id: str
    role: str
    kind: str
    prefix: str
    text: str
    span_start: int | None
    span_end: int | None
    extras: list[str] | None
    messages: list[dict] | None
    few_shot_examples: list[str] | None
    stop: list[str] | None
    max_new_tokens: int | None
    longest_target: str | None
    decoding: dict | None
    gen_kwargs: dict | None


class Score(TypedDict):
    """The log-probabilities of a request's span (schema SCORES, `inference/schema.py`)."""

    request_id: str
    item_id: str
    role: str
    tokens: list[str]
    offsets: list[list[int]]
    logprobs: list[float | None]
    is_greedy: list[bool]
    entropy: list[float] | None
    topk_entropy: list[float] | None
    rank: list[int] | None
    top_tokens: list[str] | None
    word_end_logprobs: list[float] | None
    logprob_mean: list[float | None] | None
    logprob_sd: list[float | None] | None
    n_prompt_tokens: int
    rendered: str | None
    flags: str | None


class Generation(TypedDict):
    """A generated text (schema GENERATIONS, `inference/schema.py`)."""

    request_id: str
    item_id: str
    role: str
    raw_output: str | None
    output: str | None
    finish_reason: str | None
    n_tokens: int | None
    reasoning: str | None
    think_state: str | None
    n_reasoning_tokens: int | None
    think_budget: int | None
    n_prompt_tokens: int | None
    rendered: str | None
    flags: str | None


class Result(TypedDict):
    """The result of one model on one item (schema TASK_RESULTS, `metrics/schema.py`)."""

    item_id: str
    cluster_id: str | None
    category: str | None
    prompt: str
    choices: list[str]
    gold: list[int]
    option_scores: list[float] | None
    prediction: str | None
    predicted_indices: list[int] | None
    correct: bool | None
    tie: bool | None
    metrics: dict[str, float]
    flags: str | None
