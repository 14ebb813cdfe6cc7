"""Reasoning before an answer: its markers, where it ends, whether a prompt asks for it, and how it is decoded.

Generated tokens are split by the IDs of markers, and each part is decoded alone: markers that are special tokens vanish
from a decoded text, and a marker that a model only quotes consists of other tokens. Where a marker has no ID of its
own, or a server returns texts, the text is split.

State of a response: "none" (the prompt asks for reasoning, and there is none), "closed", "reopened" (more than one
block; the answer follows the last), "unclosed" (no answer).
"""

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.core.model_record import EFFORT, SWITCHES
from vernacular.inference.model import rendering
from vernacular.inference.model.tokenization import AlignmentError, TextModel, decode_continuation

UNCLOSED = "unclosed"
UNCLOSED_FLAG = "unclosed reasoning"
_SHORT = [{"role": "user", "content": rendering.USER}]
_WINDOW = 64  # tokens in which the end of a marker is searched as text


@dataclass(frozen=True)
class Markers:
    """Texts around reasoning; of harmony (gpt-oss), parts of the headers of messages: the "final" one is the answer."""

    start: str | None
    end: str
    label: str = ""  # begins reasoning, and is no part of it
    source: str = "default"  # "setting", "template", "vocabulary" or "default"

    @property
    def is_harmony(self) -> bool:
        return self.end == "<|message|>"

    @property
    def texts(self) -> list[str]:
        """All that marks a part of a response; of harmony, also the ends of messages."""
        return [text for text in (self.start, self.end, *(_HARMONY_ENDS if self.is_harmony else ())) if text]


HARMONY = Markers("<|channel|>", "<|message|>")
_HARMONY_ENDS = ("<|end|>", "<|return|>", "<|start|>", "<|call|>")
_PAIRS = (
    Markers("<think>", "</think>"),
    Markers("[THINK]", "[/THINK]"),
    Markers("<|channel>", "<channel|>", "thought\n"),
    Markers("◁think▷", "◁/think▷"),
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),
    Markers("<reasoning>", "</reasoning>"),
)


def markers_of(loaded: TextModel) -> Markers | None:
    """Return the markers of a model: those of its setting, its template or its vocabulary; None: it does not reason."""
    return loaded.of_template("markers", lambda: _find_markers(loaded))


def _find_markers(loaded: TextModel) -> Markers | None:
    name, setting = loaded.record.name, loaded.record.think_end_token
    if setting == "none":
        return None
    if isinstance(setting, int):
        token = loaded.tokenizer.convert_ids_to_tokens(setting) if 0 <= setting < len(loaded.tokenizer) else None
        if token is None:
            raise ModelError(f"model {name}: think_end_token: the vocabulary has no token {setting}.")
        setting = token
    if setting not in (None, "auto"):
        known = next((pair for pair in (*_PAIRS, HARMONY) if setting == pair.end), None)
        start = setting.replace("/", "", 1) if "/" in setting else None
        return replace(known or Markers(start, setting), source="setting")
    template = rendering.template_of(loaded) if rendering.has_template(loaded) else ""
    if HARMONY.start in template and HARMONY.end in template:
        return replace(HARMONY, source="template")
    for source, has in (("template", template.__contains__), ("vocabulary", lambda end: id_of(loaded, end))):
        if pair := next((pair for pair in _PAIRS if has(pair.end)), None):
            return replace(pair, source=source)
    return _PAIRS[0]


def id_of(loaded: TextModel, text: str) -> int | None:
    """Return the ID of a marker that is a token of its own; None if it is not."""
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        return None
    if hasattr(tokenizer, "get_added_vocab"):
        return tokenizer.get_added_vocab().get(text)
    try:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    except AlignmentError:  # of a server
        return None
    return ids[0] if len(ids) == 1 else None


def is_open(markers: Markers, tail: str) -> bool | None:
    """Return whether the end of a prompt opens reasoning (True) or contains a closed block (False); None: neither."""
    start, end = tail.rfind(markers.start) if markers.start else -1, tail.rfind(markers.end)
    return None if markers.is_harmony or start == end == -1 else start > end


def tail_of(rendered: str, messages: list[dict]) -> str:
    """Return what a template writes after the last turn, whose own text may contain markers."""
    content = messages[-1]["content"].strip()
    _, found, tail = rendered.rpartition(content) if content else ("", "", "")
    return tail if found else ""


def opens_reasoning(loaded: TextModel, rendered: str, messages: list[dict]) -> bool:
    """Return whether a rendered prompt ends within reasoning, or a short one if the template changes its texts."""
    tail = tail_of(rendered, messages) or tail_of(rendering.render(loaded, _SHORT), _SHORT)
    markers = markers_of(loaded)
    return markers is not None and bool(is_open(markers, tail))


def thinks(loaded: TextModel) -> bool:
    """Return whether rendered prompts ask for reasoning: by their end, a setting, or the template's default.

    One that only mentions "</think>", to remove reasoning from earlier turns, does not.
    """

    def find() -> bool:
        markers, wanted = markers_of(loaded), loaded.record.enable_thinking
        if markers is None:
            return False
        if loaded.tokenizer is None:  # the server applies its template
            by_default = loaded.record.server.reasons_by_default if wanted is None else wanted
            return bool(by_default) or markers.source == "setting"
        if not rendering.has_template(loaded):
            return False
        rendered = rendering.render(loaded, _SHORT)
        opened = is_open(markers, tail_of(rendered, _SHORT))
        if opened is not None or wanted is not None:
            return wanted if opened is None else opened
        if switch := rendering.reasoning_switch(loaded):  # gpt-oss has none that turns it off
            off = rendering.template_arguments(loaded) | switch.get(False, {})
            short = rendering.with_system(loaded, _SHORT)
            return False not in switch or rendered != rendering.render_with(loaded, short, off)
        return markers.source == "setting" or (markers.source == "template" and markers.start != "<think>")

    return loaded.of_template("thinks", find)


START, END, FINAL, STOP = range(4)  # of a block, of a block and what precedes it, of harmony's header, of the answer
Event = tuple[int, int, int]  # kind, and where the marker begins and ends: indices of tokens, or of characters


@dataclass
class Position:
    """Where a response stands: within reasoning or in its answer, which is [start, stop)."""

    inside: bool = False
    start: int = 0
    stop: int | None = None  # None: the end of the response
    n_blocks: int = 0
    blocks: list[tuple[int, int | None]] = field(default_factory=list)  # [begin, end) of reasoning, without markers

    @property
    def state(self) -> str:
        if self.inside:
            return UNCLOSED
        return ("none", "closed")[self.n_blocks] if self.n_blocks < 2 else "reopened"


def follow(events: Iterable[Event], *, opened: bool) -> Position:
    """Return where a response stands after some markers; `opened`: the prompt opens reasoning.

    >>> follow([(END, 3, 4)], opened=True)  # three tokens and "</think>"
    Position(inside=False, start=4, stop=None, n_blocks=1, blocks=[(0, 3)])
    """
    position = Position(opened, n_blocks=int(opened))
    begin = 0 if opened else None  # of the block that is open
    for kind, before, after in events:
        if kind == START:
            position.n_blocks += not position.inside
            if begin is not None and position.inside:
                position.blocks.append((begin, before))
            position.inside, begin = True, after
        elif kind in (END, FINAL):
            if kind == END and not position.inside:  # what precedes an end is reasoning, wherever it begins
                position.n_blocks, begin = position.n_blocks + 1, position.start
            if begin is not None:
                position.blocks.append((begin, before))
            position.inside, position.start, position.stop, begin = False, after, None, None
        elif position.inside and begin is not None:  # a message of harmony ends, and another one follows
            position.blocks.append((begin, before))
            begin = None
        elif not position.inside and position.stop is None:
            position.stop = before
    if begin is not None:
        position.blocks.append((begin, None))
    return position


def _events(found: Iterable[tuple[str, int, int]], markers: Markers, length: int, text_of) -> Iterator[Event]:
    """Yield the events of markers that were found as (text, begin, end); `text_of(begin, end)` is what is between."""
    header = None  # where the header of a message begins, and the name of its channel
    for text, before, after in found:
        if not markers.is_harmony:
            yield (END if text == markers.end else START), before, after
        elif text == markers.start:
            header = before, after
        elif text == markers.end and header is not None:
            is_final = text_of(header[1], before).strip().startswith("final")
            yield (FINAL if is_final else START), header[0], after
            header = None
        elif text != markers.end:
            yield STOP, before, after
    if header is not None:
        yield START, header[0], length


def follow_text(text: str, markers: Markers, *, opened: bool) -> Position:
    """Return where a response stands that is known as a text."""
    pattern = "|".join(map(re.escape, markers.texts))
    found = ((match[0], *match.span()) for match in re.finditer(pattern, text))
    return follow(_events(found, markers, len(text), lambda a, b: text[a:b]), opened=opened)


@dataclass(frozen=True)
class Split:
    """A response in its parts."""

    answer: str  # after the reasoning; "" if that is unclosed
    reasoning: str | None
    state: str | None  # None: neither reasoning nor asked for it
    n_reasoning: int | None  # generated tokens before the answer; None: unknown
    n_answer: int | None
    by: str = "text"  # what it was split by: "ids", "text", or a field of a server's response

    def outcome(self) -> dict:
        """Return the fields of a generation, and for the metadata, what it was split by."""
        parts = {"reasoning": self.reasoning, "think_state": self.state, "n_reasoning_tokens": self.n_reasoning}
        return parts | {"split_by": self.by} if self.state else parts


class Reader:
    """Follows the tokens of one response to a rendered prompt, by the IDs of its markers, or by their texts."""

    def __init__(self, loaded: TextModel, prompt_ids: list[int], *, opened: bool, asks: bool):
        self.tokenizer, self.prompt_ids = loaded.tokenizer, prompt_ids
        self.markers, self.opened, self.asks = markers_of(loaded), opened, asks
        self.ids = loaded.of_template("marker ids", lambda: _marker_ids(loaded))  # {}: the text is split
        self.position, self.n_read, self.text = Position(opened), 0, ""

    def read(self, ids: list[int]) -> None:
        """Take in all tokens generated so far."""
        is_next, self.n_read = self.n_read == len(ids) - 1, len(ids)
        if self.ids:
            if not is_next or ids[-1] in self.ids:
                self.position = self._follow_ids(ids)
            return
        is_inside = is_next and self.position.inside
        if is_inside and self.markers.end not in decode_continuation(self.tokenizer, [], ids[-_WINDOW:]):
            return
        self.text = decode_continuation(self.tokenizer, self.prompt_ids, ids)
        self.position = follow_text(self.text, self.markers, opened=self.opened)

    def answer(self, ids: list[int], limit: int | None = None) -> str:
        """Return the text of the answer, of at most `limit` tokens; "" within reasoning."""
        if self.position.inside:
            return ""
        if self.ids or limit is not None:
            start, stop = self.span(ids)
            end = stop if limit is None else min(stop, start + limit)
            if self.ids:
                return self._part(ids, start, end)
        text = self.text if limit is None or end == stop else self._part(ids, 0, end)
        return text[self.position.start : self.position.stop]

    def span(self, ids: list[int]) -> tuple[int, int]:
        """Return the tokens [start, stop) of the answer."""
        start, stop = self.position.start, self.position.stop
        if not self.ids:  # characters
            start, stop = (
                position and bisect.bisect_left(range(len(ids)), position, key=lambda n: len(self._part(ids, 0, n)))
                for position in (start, stop)
            )
        return start, len(ids) if stop is None else stop

    def split(self, ids: list[int], *, budget: int = 0, limit: int | None = None) -> Split:
        """Return the parts of a response; reasoning of more than `budget` tokens (0: any) is unclosed.

        `limit` is the answer's: an engine that generates both in one pass has one limit for both.
        """
        self.read(ids)
        start, stop = self.span(ids)
        position, state, by = self.position, self.position.state, "ids" if self.ids else "text"
        if state == UNCLOSED or (budget and start > budget):
            n_reasoning = min(len(ids), budget or len(ids))
            return Split("", self._reasoning(ids[:n_reasoning]), UNCLOSED, n_reasoning, 0, by)
        if not position.n_blocks:
            state = "none" if self.asks else None
        stop = stop if limit is None else min(stop, start + limit)
        n_reasoning = (start if position.n_blocks else 0) if state else None
        return Split(self.answer(ids, limit), self._reasoning(ids), state, n_reasoning, stop - start, by)

    def _reasoning(self, ids: list[int]) -> str | None:
        if self.ids:
            blocks = self._follow_ids(ids).blocks
            return join_blocks((self._part(ids, begin, end) for begin, end in blocks), self.markers)
        text = decode_continuation(self.tokenizer, self.prompt_ids, ids)
        blocks = follow_text(text, self.markers, opened=self.opened).blocks
        return join_blocks((text[begin:end] for begin, end in blocks), self.markers)

    def _part(self, ids: list[int], start: int, stop: int | None) -> str:
        context = self.prompt_ids + ids[:start] if start else self.prompt_ids
        return decode_continuation(self.tokenizer, context, ids[start:stop])

    def _follow_ids(self, ids: list[int]) -> Position:
        found = ((self.ids[token], i, i + 1) for i, token in enumerate(ids) if token in self.ids)
        events = _events(found, self.markers, len(ids), lambda a, b: self._part(ids, a, b))
        return follow(events, opened=self.opened)


def _marker_ids(loaded: TextModel) -> dict[int, str]:
    """Return the markers by their IDs; {} unless all that are needed have one."""
    markers = markers_of(loaded)
    ids = {text: id_of(loaded, text) for text in markers.texts}
    needed = [markers.start, markers.end] if markers.start else [markers.end]
    return {} if None in map(ids.get, needed) else {i: text for text, i in ids.items() if i is not None}


def has_special_markers(loaded: TextModel) -> bool:
    """Return whether decoding removes the markers from a text, as special tokens."""
    ids = loaded.of_template("marker ids", lambda: _marker_ids(loaded))
    return any(not loaded.tokenizer.decode([token], skip_special_tokens=True) for token in ids)


def join_blocks(blocks: Iterable[str], markers: Markers) -> str | None:
    """Return the text of all blocks of reasoning, without the label of each; None without any."""
    texts = [text.lstrip().removeprefix(markers.label).strip() for text in blocks]
    return "\n\n".join(filter(None, texts)) or None


def split_text(text: str, markers: Markers, *, opened: bool, asks: bool) -> Split:
    """Return the parts of a response that is known as a text only.

    >>> split_text("<think>Un felino.</think>o gato", Markers("<think>", "</think>"), opened=False, asks=True)
    Split(answer='o gato', reasoning='Un felino.', state='closed', n_reasoning=None, n_answer=None, by='text')
    """
    position = follow_text(text, markers, opened=opened)
    state = position.state if position.n_blocks or asks else None
    answer = "" if position.inside else text[position.start : position.stop]
    return Split(answer, join_blocks((text[a:b] for a, b in position.blocks), markers), state, None, None)


_LISTED = 4  # decodings in the metadata: those of Simil-Eval differ by request


def describe(loaded: TextModel, prompts: Iterable, outcomes: Iterable[dict]) -> dict:
    """Return how prompts were rendered, and their responses split and decoded, for the metadata; {} if as ever."""
    rendered = [prompt for prompt in prompts if prompt.rendered is not None and prompt.error is None]
    outcomes = list(outcomes)
    states = {outcome.get("think_state") for outcome in outcomes} - {None}
    if not rendered or not (loaded.record.rendering or states):
        return {}
    asks, markers = any(p.think_tokens for p in rendered), markers_of(loaded)
    known = rendering.has_template(loaded)
    decodings = {str(p.decoding): {k: v for k, v in p.decoding.items() if v is not None} for p in rendered}
    budgets = sorted({prompt.think_tokens for prompt in rendered})
    described = {
        "asked_for": asks,
        "by_default": asks and _is_unset(loaded),
        "template": fingerprint(rendering.template_of(loaded))[:16] if known else None,
        "arguments": rendering.template_arguments(loaded) if known else server_arguments(loaded),
        "markers": markers and [markers.start, markers.end],
        "markers_from": markers and markers.source,
        "split_by": sorted({outcome["split_by"] for outcome in outcomes if outcome.get("split_by")}),
        "budgets": [budgets[0], budgets[-1]],
        "decoding": list(decodings.values())[:_LISTED],
        "notes": list(_notes(loaded, rendered, states, asks=asks)),
    }
    return {"reasoning": described}


def _is_unset(loaded: TextModel) -> bool:
    """Return whether a template could be asked for no reasoning, and no setting of the model decides it."""
    arguments = loaded.record.chat_template_args or {}
    if loaded.record.enable_thinking is not None or arguments.keys() & {*SWITCHES, EFFORT}:
        return False
    return loaded.tokenizer is None or (rendering.has_template(loaded) and False in rendering.reasoning_switch(loaded))


def _notes(loaded: TextModel, rendered: list, states: set, *, asks: bool) -> Iterator[str]:
    if asks and any(not prompt.decoding["temperature"] for prompt in rendered):
        yield "greedy decoding with reasoning, which model cards advise against; set gen_kwargs"
    if asks and (smallest := min(prompt.think_tokens for prompt in rendered)) < max(p.wanted_tokens for p in rendered):
        yield f"reasoning: some prompts leave room for {smallest} tokens only; see max_length"
    if UNCLOSED in states and not asks:
        end = markers_of(loaded).end
        yield f'the model reasons although no budget is set for it; set think_end_token: "{end}", or max_gen_toks'
    if loaded.record.system_instruction and rendering.has_template(loaded) and not rendering.takes_system(loaded):
        yield "system_instruction: in the first user turn, because the chat template has no system turns"


def server_arguments(loaded: TextModel) -> dict:
    """Return the arguments that a server passes to its template; it ignores those that the template does not have."""
    record = loaded.record
    names = () if record.enable_thinking is None else ("enable_thinking", "thinking")
    return (record.chat_template_args or {}) | dict.fromkeys(names, record.enable_thinking)


def template_fields(loaded: TextModel) -> dict:
    """Return the fields of a chat request with the arguments of the server's template."""
    return {"chat_template_kwargs": arguments} if (arguments := server_arguments(loaded)) else {}
