"""Rows of the requests file; all requests are built here, so that equal IDs imply equal content.

The space before a scored text belongs to the text: `"Answer:" + " A"` is scored from the space on, because tokenizers
join a space with the following word. A context passed to these functions therefore never ends in whitespace.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property

from vernacular.core.fingerprint import fingerprint
from vernacular.core.languages import is_unspaced
from vernacular.types import Item, Request, Role, skipped_reason, skipped_role


@dataclass(frozen=True)
class RequestSettings:
    """Settings shared by all requests of one evaluation."""

    item_type: str  # the task's `item_type` key: question, passage, story, …
    language: str
    seed: int
    style: str
    options: dict = field(default_factory=dict)  # the protocol's options, see registry.OPTIONS
    labels: dict = field(default_factory=dict)  # prompt lines of the language; {} if the protocol uses none
    few_shot_examples: tuple[str, ...] = ()  # the few-shot prefix, split into examples
    messages: tuple[dict, ...] = ()  # the few-shot prefix as chat turns

    @cached_property
    def prefix(self) -> str:
        """The few-shot prefix: one string object, shared by all rows."""
        return "".join(self.few_shot_examples)


def score_request(
    item: Item,
    role: str,
    context: str,
    span: str,
    suffix: str = "",
    *,
    extras=(),
    settings: RequestSettings | None = None,
    user: str | None = None,
) -> dict:
    """Return a request for the log-probability of `span` after prefix and `context`, before `suffix`.

    `settings` provides the few-shot prefix; None: no prefix. `user` is the last chat turn, if chat is applicable.
    """
    prefix = settings.prefix if settings else ""
    start = len(prefix) + len(context)
    return _row(
        item,
        role,
        kind="score",
        prefix=prefix,
        text=context + span + suffix,
        span_start=start,
        span_end=start + len(span),
        extras=list(extras) or None,
        messages=None if user is None else chat_turns(settings, user) if settings else [turn("user", user)],
        few_shot_examples=list(settings.few_shot_examples) if settings and settings.few_shot_examples else None,
    )


def generation_requests(
    item: Item,
    text: str,
    *,
    settings: RequestSettings,
    messages: list[dict] | None,
    stop=(),
    max_new_tokens: int | None = None,
    longest_target: str | None = None,
    decoding: dict | None = None,
    extras=(),
) -> list[dict]:
    """Return requests to continue prefix and `text`, one per sample: roles "response", "response:0@1", …"""
    rows = []
    for sample in range(settings.options.get("repeats", 1)):
        kwargs = settings.options.get("gen_kwargs", {}) | ({"sample": sample} if sample else {})
        row = _row(
            item,
            str(Role("response", 0 if sample else None, sample)),
            kind="generate",
            prefix=settings.prefix,
            text=text,
            messages=messages,
            few_shot_examples=list(settings.few_shot_examples) or None,
            stop=list(stop),
            max_new_tokens=max_new_tokens,
            longest_target=longest_target,
            decoding=decoding,
            extras=list(extras) or None,
            gen_kwargs=(kwargs | ({"seed": settings.seed} if settings.seed else {})) if kwargs else None,
        )
        rows.append(row)
    return rows


def chat_turns(settings: RequestSettings, user: str) -> list[dict]:
    """Return the few-shot examples and a user's turn as chat turns, or as one turn with the plain prefix."""
    if settings.options.get("fewshot_as_multiturn", True):
        return [*settings.messages, turn("user", user)]
    return [turn("user", settings.prefix + user)]


def external_request(item: Item, role: str, **content) -> dict:
    """Return a request whose text another tool has written; `content` are columns of REQUESTS."""
    return _row(item, role, **content)


def has_alternatives(item: Item) -> bool:
    """Return whether an item has at least two different choices, and none that is empty."""
    texts = set(map(str.strip, item["choices"]))
    return len(texts) >= 2 and "" not in texts


def skipped_request(item: Item, reason: str) -> dict:
    """Return a row with an empty span, so that a skipped item is counted, and its reason reported."""
    return _row(item, skipped_role(reason), kind="score", prefix="", text="-", span_start=1, span_end=1)


def turn(role: str, content: str) -> dict:
    return {"role": role, "content": content}


def pll_extra(settings: RequestSettings, default: str = "original") -> list[str]:
    """Return the statistic that selects a masked model's pseudo-log-likelihood; causal models ignore it."""
    return [f"pll:{settings.options.get('pll_variant', default)}"]


def moments_extra(settings: RequestSettings) -> list[str]:
    """Return the statistic that Min-K%++ of an entire text needs, where the evaluation asks for it."""
    return ["logprob_moments"] if settings.options.get("min_k_plus_plus") else []


def _row(item: Item, role: str, **content) -> dict:
    names = ("kind", "prefix", "text", "span_start", "span_end", "extras", "messages", "few_shot_examples", "stop",
             "max_new_tokens", "longest_target", "decoding")  # fmt: skip
    kwargs = content.get("gen_kwargs")
    content = {name: content.get(name) for name in names}
    hashed = content | ({"gen_kwargs": kwargs} if kwargs else {})  # without any, an ID is as before there were any
    ids = {"request_id": fingerprint(hashed)[:32], "item_id": item["item_id"], "role": role}
    return ids | content | {"gen_kwargs": kwargs}


_PLACEHOLDER = re.compile(r"\{\{[^{}\n]{1,60}\}\}|\{[A-Za-z_][\w.]*\}")
_MIN_QUERY = 20  # characters of a text that is found again in the examples only if it is the same


def warnings_of(items: list[Item], rows: list[Request]) -> list[str]:
    """Return what is suspicious in the prompts of an evaluation, one sentence each: a fault of task or data.

    A placeholder was not filled if no field of the item has it; of other tools, if it is in half of the items.
    """
    item_by_id = {item["item_id"]: item for item in items}
    texts: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}  # sentence -> items
    placeholders: dict[str, dict[str, bool]] = {}  # placeholder -> {item: whether its own text has it}
    for row in rows:
        name = row["item_id"]
        if skipped_reason(row["role"]) is not None or name not in item_by_id:
            continue
        item = item_by_id[name]
        texts.setdefault(name, []).append(row["text"])
        own = "\n".join([item["context"], item["question"], item["target"] or "", *item["choices"]])
        for placeholder in _PLACEHOLDER.findall(row["text"]):
            placeholders.setdefault(placeholder, {})[name] = placeholder in own
        query = item["question"] or item["context"]
        if len(query) >= _MIN_QUERY and query in row["prefix"]:
            found.setdefault("are also one of their few-shot examples", []).append(name)
        if any(not choice.strip() for choice in item["choices"]):
            found.setdefault("have an empty option", []).append(name)
        if not row["text"].strip() or (row["kind"] == "generate" and not (row["prefix"] + row["text"]).strip()):
            found.setdefault("have an empty prompt", []).append(name)
    for placeholder, names in placeholders.items():
        foreign = [name for name, is_own in names.items() if not is_own]
        foreign = foreign or (list(names) if len(names) > 1 and 2 * len(names) >= len(texts) else [])
        if foreign:
            found[f"contain the placeholder {placeholder}, which was not filled"] = foreign
    groups: dict[tuple, list[str]] = {}
    for name, parts in texts.items():
        groups.setdefault(tuple(parts), []).append(name)
    if repeated := [name for names in groups.values() if len(names) > 1 for name in names]:
        found["have the same prompt as another item"] = repeated
    return [
        f"{len(distinct)} of {len(texts)} items {sentence} (first: {', '.join(list(distinct)[:3])})"
        for sentence, names in found.items()
        if (distinct := dict.fromkeys(names))
    ]


GAP = re.compile(r"_{2,}")
MASK = re.compile(r"\[MASK\]|<mask>|\[mask\]|<extra_id_0>|<\|mask\|>")
_CLOSING = ".,;:!?…؟،؛۔।॥။።፣։。，、；：！？"
_VOWELS = set("aeiouyáéíóúàèìòùâêôãõüăāąåæęėēěīįıőōøœůűūųаеиоуыэюяёіїєαεηιουωάέήίόύώϊϋΐΰ")


def continue_with(context: str, text: str, language: str) -> tuple[str, str]:
    """Return (context, continuation); the continuation begins with one space, if the language uses spaces.

    >>> continue_with("A casa é ", "grande.", "gl")
    ('A casa é', ' grande.')
    """
    space = "" if is_unspaced(language) else " "
    context = context.rstrip()
    return context, (space if context else "") + text.lstrip()


def fill(text: str, gap: re.Match, word: str, *, capitalize: bool) -> tuple[str, str, str]:
    """Return (left, word, right) of `text` with `word` in its `gap`; the space before the gap belongs to the word.

    Closing punctuation of `word` that the text repeats is removed. With `capitalize`, a word at the beginning of a
    sentence is capitalized, whatever the candidate.

    >>> text = "Ide u __."
    >>> fill(text, GAP.search(text), "školu.", capitalize=True)
    ('Ide u', ' školu', '.')
    """
    left, right, word = text[: gap.start()], text[gap.end() :], word.strip()
    if right[:1] in _CLOSING and word.endswith(right[:1]):
        word = word.removesuffix(right[:1]).rstrip() or word
    if capitalize and word and _opens_sentence(left):
        is_dotted = word[0] == "i" and not {"ı", "İ"}.isdisjoint(text + word)  # Turkish, Azerbaijani
        # title, not upper: Georgian has no capitals at the start of a sentence
        word = ("İ" if is_dotted else word[0].title()) + word[1:]
    if left.endswith(" "):
        left, word = left[:-1], " " + word
    return left, word, right


def _opens_sentence(left: str) -> bool:
    """Return whether `left` is empty or ends a sentence; an ordinal ("19.") or abbreviation ("npr.") does not."""
    left = left.rstrip().rstrip("\"'«“„¿¡([—–-").rstrip()
    if not left or left[-1] in "!?…؟։":
        return True
    last_word = left.split()[-1].rstrip(".").lower()
    return left.endswith(".") and any(letter in _VOWELS for letter in last_word)


def single_match(pattern: re.Pattern, text: str) -> re.Match | None:
    """Return the only match of `pattern` in `text`; None if there is none or more than one."""
    matches = list(pattern.finditer(text))
    return matches[0] if len(matches) == 1 else None
