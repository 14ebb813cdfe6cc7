"""Rows of the requests file: a request is built here and nowhere else, so that its id always means its content.

The blank before a scored text belongs to the text: `"Answer:" + " A"` is scored from the blank on, because tokenizers
glue a blank to the word that follows it. A context handed to these functions therefore never ends in a blank.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

from vernacular.core.fingerprint import fingerprint
from vernacular.types import Item, skipped_role


@dataclass(frozen=True)
class Setting:
    """What all requests of one evaluation share."""

    layout: str  # the task's `prompt` key: question, passage, story, …
    language: str
    seed: int
    style: str
    options: dict = field(default_factory=dict)  # the protocol's own, see build.OPTIONS
    labels: dict = field(default_factory=dict)  # prompt lines of the language; {} where the protocol needs none
    demonstrations: tuple[str, ...] = ()  # the few-shot block, cut up
    turns: tuple[dict, ...] = ()  # the few-shot block as chat turns

    @cached_property
    def prefix(self) -> str:
        """The few-shot block: one string, however many rows hold it."""
        return "".join(self.demonstrations)


def scored(
    item: Item,
    role: str,
    before: str,
    span: str,
    after: str = "",
    *,
    extras=(),
    setting: Setting | None = None,
    user: str | None = None,
) -> dict:
    """A request for the log-probability of `span`, read after the few-shot block and `before`, and followed by `after`.

    `setting` gives the few-shot block; without it there is none. `user` is the last chat turn, where chat makes sense.
    """
    prefix = setting.prefix if setting else ""
    start = len(prefix) + len(before)
    return _row(
        item,
        role,
        kind="score",
        prefix=prefix,
        text=before + span + after,
        span_start=start,
        span_end=start + len(span),
        extras=list(extras) or None,
        turns=None if user is None else [*(setting.turns if setting else ()), turn("user", user)],
        demonstrations=list(setting.demonstrations) if setting and setting.demonstrations else None,
    )


def spanned(item: Item, role: str, text: str, start: int, *, setting: Setting) -> dict:
    """A request for the log-probability of few-shot block and `text`, read as one string, from character `start` on."""
    return _row(
        item,
        role,
        kind="score",
        prefix=setting.prefix,
        text=text,
        span_start=start,
        span_end=len(setting.prefix) + len(text),
        demonstrations=list(setting.demonstrations) or None,
    )


def generated(
    item: Item,
    text: str,
    *,
    setting: Setting,
    turns: list[dict] | None,
    stop=(),
    max_new_tokens: int | None = None,
    longest_answer: str | None = None,
    decoding: dict | None = None,
) -> dict:
    """A request for a text that continues the few-shot block and `text`."""
    return _row(
        item,
        "answer",
        kind="generate",
        prefix=setting.prefix,
        text=text,
        turns=turns,
        demonstrations=list(setting.demonstrations) or None,
        stop=list(stop),
        max_new_tokens=max_new_tokens,
        longest_answer=longest_answer,
        decoding=decoding,
    )


def unasked(item: Item, reason: str) -> dict:
    """A row with nothing to score, so that an item that cannot be asked is still counted, and its reason shown."""
    return _row(item, skipped_role(reason), kind="score", prefix="", text="-", span_start=1, span_end=1)


def turn(role: str, content: str) -> dict:
    return {"role": role, "content": content}


def pll_extra(setting: Setting, default: str = "original") -> list[str]:
    """The extra that says how a masked model takes its pseudo-log-likelihood; a causal model does not read it."""
    return [f"pll:{setting.options.get('pll', default)}"]


def _row(item: Item, role: str, **content) -> dict:
    names = ("kind", "prefix", "text", "span_start", "span_end", "extras", "turns", "demonstrations", "stop",
             "max_new_tokens", "longest_answer", "decoding")  # fmt: skip
    content = {name: content.get(name) for name in names}
    return {"request_id": fingerprint(content)[:32], "item_id": item["item_id"], "role": role, **content}


GAP = re.compile(r"_{2,}")
MASK = re.compile(r"\[MASK\]|<mask>|\[mask\]|<extra_id_0>|<\|mask\|>")
_UNSPACED = {"zh", "yue", "ja", "th", "lo", "km", "my", "bo"}  # written without blanks between words
_CLOSING = ".,;:!?…"
_VOWELS = set("aeiouyáéíóúàèìòùâêôãõüаеиоуыэюяёіїє")


def continue_with(context: str, text: str, language: str) -> tuple[str, str]:
    """(context, continuation): the continuation opens with the one blank between them, where the language has blanks.

    >>> continue_with("A casa é ", "grande.", "gl")
    ('A casa é', ' grande.')
    """
    blank = "" if language in _UNSPACED else " "
    context = context.rstrip()
    return context, (blank if context else "") + text.lstrip()


def fill(text: str, gap: re.Match, word: str, *, capital: bool) -> tuple[str, str, str]:
    """(before, word, after) of `text` with `word` in its `gap`; the blank before the gap belongs to the word.

    Closing punctuation that `word` brings along and the text repeats is left out. With `capital` a word that opens a
    sentence gets a capital, for every candidate alike.

    >>> text = "Ide u __."
    >>> fill(text, GAP.search(text), "školu.", capital=True)
    ('Ide u', ' školu', '.')
    """
    before, after, word = text[: gap.start()], text[gap.end() :], word.strip()
    if after[:1] in _CLOSING and word.endswith(after[:1]):
        word = word.removesuffix(after[:1]).rstrip() or word
    if capital and word and _opens_sentence(before):
        word = word[0].title() + word[1:]  # title, not upper: Georgian has no capitals at the start of a sentence
    if before.endswith(" "):
        before, word = before[:-1], " " + word
    return before, word, after


def _opens_sentence(before: str) -> bool:
    """True after nothing, or after a sentence end that is neither an ordinal ("19.") nor a short form ("npr.")."""
    before = before.rstrip().rstrip("\"'«“„¿¡([—–-").rstrip()
    if not before or before[-1] in "!?…؟":
        return True
    last = before.split()[-1].rstrip(".").lower()
    return before.endswith(".") and any(letter in _VOWELS for letter in last)


def one(pattern: re.Pattern, text: str) -> re.Match | None:
    """The only match of `pattern` in `text`, or None where there is none or more than one."""
    found = list(pattern.finditer(text))
    return found[0] if len(found) == 1 else None
