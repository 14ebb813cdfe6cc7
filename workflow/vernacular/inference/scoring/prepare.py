"""Request rows as token paths: chat template, BOS, span, and truncation or windows of a text that is too long.

In windows, each token is predicted once, as in lm-eval (`get_rolling_token_windows`). The first window begins with the
text; each later one contains the tokens that follow the windows before it, and before them as many earlier tokens as
fit: `overlap` + 1 of them, more in the last window. In lm-eval, the overlap is 0 (its `context_len` is `overlap` + 1).
Only the first window begins with BOS. A masked model reads its special tokens around each window.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
import pyarrow as pa

from vernacular.core.errors import format_count
from vernacular.core.languages import UNSPACED, script_of
from vernacular.core.words import splits_words, words_between_spaces
from vernacular.inference.model import rendering
from vernacular.inference.model.batch_tokenization import encode_all
from vernacular.inference.model.tokenization import (
    SPECIAL,
    AlignmentError,
    Encoded,
    Rendered,
    TextModel,
    control_token_flag,
    encode,
    span_tokens,
    with_bos,
)
from vernacular.inference.schema import iter_rows
from vernacular.types import CHAT, Request

_NONE = np.zeros(0, np.int32)
_NO_OFFSETS = np.zeros((0, 2), np.int32)


@dataclass(slots=True, weakref_slot=True)
class PreparedRequest:
    """A request ready to be scored: tokens `ids[first:stop]`, each given all tokens before it. Arrays are int32."""

    request_id: str
    ids: np.ndarray = field(default_factory=lambda: _NONE)  # up to the span's end; masked, filled in: all
    offsets: np.ndarray = field(default_factory=lambda: _NO_OFFSETS)  # [size, 2], of the span's tokens
    words: np.ndarray = field(default_factory=lambda: _NONE)  # index of the word of each of `ids` (masked models)
    rest: np.ndarray = field(default_factory=lambda: _NONE)  # tokens after `ids`, if a model's positions depend on them
    span: np.ndarray = field(default_factory=lambda: _NONE)  # ids[first:stop], set last
    first: int = 0
    stop: int = 0  # stop == first: nothing to score
    lead: int = 0  # special tokens before the text
    tail: int = 0  # special tokens after it (masked models), or after the prompt of an encoder
    start: tuple[int, ...] = ()  # what a decoder reads before the span
    fills_in: bool = False  # whether an encoder-decoder fills in the words of a text, because there is no prompt
    extras: frozenset[str] = frozenset()
    rendered: str | None = None
    adds_special_tokens: bool = True  # whether the tokenizer adds some to the text
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # flags of a text that is scored nevertheless

    @property
    def flag(self) -> str | None:
        return "; ".join(self.flags + self.notes) or None

    @property
    def has_prompt(self) -> bool:
        """Whether an encoder reads `ids[:first]`, and a decoder, after `start`, the rest."""
        return bool(self.start) and not self.fills_in

    @property
    def failed(self) -> bool:
        """Whether there is nothing to score, for the reason in the flag."""
        return self.stop == self.first


def prepare(loaded: TextModel, row: Request) -> PreparedRequest:
    """Return the token path of a row of kind "score", or its failure as a flag; raise ModelError for a template."""

    def attempt(row: Request) -> tuple[PreparedRequest, bool]:
        request = _tokenized(loaded, row)
        return request, request.failed or is_rolling(request) or _excess(loaded, request) <= 0

    request, n_dropped = rendering.fit_to_length(row, attempt)
    if n_dropped:
        request.flags.append(rendering.dropped_flag(n_dropped))
        if request.rendered is None:
            request.offsets = request.offsets + len("".join(row["few_shot_examples"][:n_dropped]))
    if not request.failed and not is_rolling(request) and (n_excess := _excess(loaded, request)) > 0:
        _truncate(loaded, request, n_excess)
    if loaded.tokenizer_limit and any(flag.startswith("truncated") for flag in request.flags):
        request.flags.append(tokenizer_limit_flag(loaded.max_length))
    return _finish(loaded, request, loaded.tokenizer.unk_token_id)


def tokenizer_limit_flag(limit: int) -> str:
    """Return the flag of a text that is cut, or scored in windows, at the limit of the tokenizer."""
    return f"tokenizer limit: {limit} tokens (model_max_length), fewer than the model reads"


def prepare_all(loaded: TextModel, requests: pa.Table) -> Iterator[PreparedRequest]:
    """Yield the same as `prepare` of each row of `requests`, in any order; shared texts are tokenized once."""
    sources: dict[bool, list[tuple]] = {False: [], True: []}  # by whether the tokenizer adds special tokens
    for index, row in enumerate(_rows(loaded, requests)):
        request, *source = _begin(loaded, row)
        if request.flags:
            yield request
        else:
            sources[request.adds_special_tokens].append((index, request, *source))
    unknown_id = loaded.tokenizer.unk_token_id
    for adds_special_tokens, entries in sources.items():
        texts, spans = [text for _, _, text, *_ in entries], [span for *_, span in entries]
        targets = dict(encode_all(loaded, spans, **_TARGET)) if loaded.start_ids else {}
        for number, encoded in encode_all(loaded, texts, add_special_tokens=adds_special_tokens):
            index, request, text, start, end, _ = entries[number]
            _locate_span(loaded, request, encoded, text, start, end, targets.get(number))
            if not request.failed and not is_rolling(request) and _excess(loaded, request) > 0:
                yield prepare(loaded, requests.slice(index, 1).to_pylist()[0])  # drops few-shot examples
            else:
                yield _finish(loaded, request, unknown_id)


def pack(requests: list[PreparedRequest], *names: str) -> None:
    """Make the arrays `names` of all requests parts of one: thousands of small blocks would leave holes in memory."""
    for name in names if requests else ():
        arrays = [getattr(request, name) for request in requests]
        parts = np.split(np.concatenate(arrays), np.cumsum([len(array) for array in arrays[:-1]], dtype=np.int64))
        for request, part in zip(requests, parts, strict=True):
            setattr(request, name, part)


def _rows(loaded: TextModel, requests: pa.Table) -> Iterator[dict]:
    """Yield the columns of each row that tokenization needs; the chat turns only if a template is applied."""
    names = ["request_id", "kind", "prefix", "text", "span_start", "span_end", "extras"]
    columns = [_values(requests[name]) for name in names]
    extras = (row for row in columns[-1] if row and CHAT in row)
    uses_messages = rendering.uses_chat(loaded, [{}], "score", next(extras, None))
    messages = (row["messages"] for row in iter_rows(requests.select(["messages"]))) if uses_messages else repeat(None)
    for *values, turns in zip(*columns, messages, strict=False):
        yield {**dict(zip(names, values, strict=True)), "messages": turns}


def _values(column: pa.ChunkedArray) -> list:
    """Return the values of a column; equal values of a dictionary-encoded one are the same object."""
    values = []
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            distinct = chunk.dictionary.to_pylist()
            values += [None if index is None else distinct[index] for index in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _begin(loaded: TextModel, row: Request) -> tuple[PreparedRequest, str, int, int, str]:
    """Return (request without tokens, text, span start, span end, "").

    The text is the full one, or the prompt of an encoder, whose decoder has the last text.
    """
    text, start, end = row["prefix"] + row["text"], row["span_start"], row["span_end"]
    is_empty, rendered = start >= end, None
    flag, span = None, ""
    chat = rendering.uses_chat(loaded, row["messages"], row["kind"], row["extras"])
    own_texts = rendering.own_texts(row, chat=chat)
    control = control_token_flag(loaded, own_texts)
    if chat:
        text, start, flag = rendering.render_continuation(loaded, row, text[start:end])
        end, rendered = len(text), text
        text = Rendered.of(loaded.tokenizer, text, own_texts)
    request = PreparedRequest(row["request_id"], extras=frozenset(row["extras"] or ()), rendered=rendered, flags=[])
    request.adds_special_tokens = rendering.adds_special_tokens(loaded, row, rendered)
    if is_empty or start >= end:
        request.flags.append("empty")
    elif loaded.kind != "causal" and "causal_only" in request.extras:
        request.flags.append("not applicable: requires a causal model")
    elif loaded.kind == "seq2seq":
        start = _begin_target(loaded, request, text, start)
        if request.has_prompt:
            span = text[start:end]
            text = text[:start] if chat else text[:start].rstrip()
    request.notes += filter(None, (flag, control))
    return request, text, start, end, span


def _tokenized(loaded: TextModel, row: Request) -> PreparedRequest:
    """Tokenize a row and locate its span, whatever the number of tokens."""
    request, text, start, end, span = _begin(loaded, row)
    if not request.flags:
        target = None
        try:
            encoded = encode(loaded, text, add_special_tokens=request.adds_special_tokens)
            target = encode(loaded, span, **_TARGET) if loaded.start_ids else None
        except AlignmentError as error:
            encoded = error
        _locate_span(loaded, request, encoded, text, start, end, target)
    return request


_TARGET = {"add_special_tokens": False, "is_target": True}  # how the text of a decoder is tokenized


def _begin_target(loaded: TextModel, request: PreparedRequest, text: str, start: int) -> int:
    """Set what a decoder reads before a span, and whether it fills in the words; return where the span begins.

    Except in tasks of lm-eval, whitespace before a span is not part of it: what a decoder writes begins with a letter.
    """
    as_lm_eval = loaded.as_lm_eval or not request.extras.isdisjoint({"truncate_left", "score_bos"})
    request.start = loaded.start_ids
    if not as_lm_eval and text[:start].strip():
        return start + len(text[start:]) - len(text[start:].lstrip())
    if not as_lm_eval and loaded.sentinel_id is not None:
        request.fills_in, request.start = True, (*loaded.start_ids[:1], loaded.sentinel_id)
    elif not as_lm_eval or is_rolling(request):
        request.flags.append(
            f"not applicable: {'requires a causal model' if as_lm_eval else 'the model does not fill in words'}"
        )
    return start


def _finish(loaded: TextModel, request: PreparedRequest, unknown_id: int | None) -> PreparedRequest:
    """Set the span of a request that fits the model, and flag what its tokens show."""
    if len(request.ids) and request.ids.max() >= loaded.n_embeddings:
        request.flags.append("error: a token is outside the model's vocabulary")
        request.stop = request.first
    request.span = request.ids[request.first : request.stop].copy()
    if len(request.span) and request.span.max() >= loaded.n_outputs:
        request.flags.append("error: a token is one that the model cannot predict")
        request.stop, request.span = request.first, request.span[:0]
    n = (loaded.target_length or math.inf) + 1 - len(request.start)
    if request.has_prompt and len(request.span) > n:
        request.flags.append(f"error: expected a span of at most {n} tokens, got {len(request.span)}")
        request.stop, request.span = request.first, request.span[:0]
    if unknown_id is not None and (request.span == unknown_id).any():
        request.flags.append("unknown token: part of the scored text is not in the vocabulary")
    return request


def _locate_span(loaded, request: PreparedRequest, encoded, text: str, start: int, end: int, target=None) -> None:
    """Apply the BOS policy and find the span's tokens, or flag the error.

    `encoded`, `target` (those that a decoder predicts): Encoded, or the AlignmentError of a tokenizer without offsets.
    """
    if error := next((each for each in (encoded, target) if isinstance(each, AlignmentError)), None):
        request.flags.append(f"error: the tokenizer provides no offsets, and {error}")
        return
    if request.has_prompt:
        if not start:  # as lm-eval
            encoded = Encoded.of([loaded.eos_id if loaded.bos_id is None else loaded.bos_id], [None], [None])
        request.ids, request.offsets = np.concatenate([encoded.ids, target.ids]), target.offsets + start
        request.first, request.stop = len(encoded), len(request.ids)
        request.lead, request.tail = encoded.lead % len(encoded), encoded.tail
        request.flags += [] if len(target) else ["empty"]
        return
    span, crosses_edge = span_tokens(text, encoded.offsets, start, end)
    n_tokens = len(encoded)
    scored_from_start = bool(span) and span.start == encoded.lead
    encoded = with_bos(loaded, encoded, templated=request.rendered is not None, scored_from_start=scored_from_start)
    shift = len(encoded) - n_tokens
    request.first, request.stop = span.start + shift, span.stop + shift
    request.lead = encoded.lead
    if loaded.kind == "causal":
        request.ids = encoded.ids[: request.stop]
        if loaded.lengths.varies:
            request.rest = encoded.ids[request.stop :].copy()
    else:
        request.ids, request.words = encoded.ids, encoded.words
        if not splits_words(loaded.tokenizer):
            words = words_between_spaces(text)[encoded.offsets[:, 0]]
            request.words = np.where(encoded.words == SPECIAL, SPECIAL, words)
        within_words = request.fills_in or "pll:within_word_l2r" in request.extras
        if within_words and script_of([text[start:end]]) in UNSPACED:  # to most tokenizers, a sentence is a word
            is_span = np.isin(np.arange(len(encoded)), span)
            request.words = np.where(is_span, request.words, SPECIAL)
        request.tail = encoded.tail
    request.offsets = encoded.offsets[request.first : request.stop].copy()  # a view would hold those of the whole text
    if "score_bos" in request.extras and encoded.lead and loaded.kind == "causal" and not shift:
        # as lm-eval: the tokenizer's own BOS is part of the text, and predicted from another one
        request.ids = np.concatenate([request.ids[:1], request.ids])
        request.offsets = np.concatenate([np.zeros((1, 2), np.int32), request.offsets])
        request.stop += 1
    if crosses_edge:
        request.flags.append("boundary")
    if not span:
        request.first = request.stop = 0
        request.flags.append("empty")
    elif loaded.kind == "causal" and request.stop == 1 and "word_end_logprobs" not in request.extras:
        request.stop = request.first
        request.flags.append("error: no token precedes the only token, so it cannot be predicted")


def _excess(loaded: TextModel, request: PreparedRequest) -> int:
    """Return the number of tokens to read beyond the model's maximum length; at most 0 if the text fits."""
    return 0 if loaded.max_length is None else reads(loaded, request) - loaded.max_length


def reads(loaded: TextModel, request: PreparedRequest) -> int:
    """Return the number of tokens that the model reads, its encoder if it has one.

    A causal model does not read the last token, which it predicts.
    """
    if request.has_prompt:
        return request.first
    last_is_read = loaded.kind != "causal" or "word_end_logprobs" in request.extras
    return len(request.ids) - (not last_is_read)


def is_rolling(request: PreparedRequest) -> bool:
    """Return whether a text that is too long is scored in windows instead of truncated."""
    return "rolling" in request.extras


def option(request: PreparedRequest, name: str) -> int | None:
    """Return the number in the extra "{name}:{number}" of a request; None if it has none."""
    values = (extra.partition(":")[2] for extra in request.extras if extra.startswith(f"{name}:"))
    return next(map(int, values), None)


def _truncate(loaded: TextModel, request: PreparedRequest, n_excess: int) -> None:
    """Truncate `n_excess` tokens, from the left, then (masked models) from the right, of what is not needed.

    Special tokens and the span are retained, and the token from which the first of the span is predicted; with
    "truncate_left" in its extras, special tokens are not, as in lm-eval.
    """
    request.lead = 0 if "truncate_left" in request.extras else request.lead
    kept = request.tail if request.has_prompt else loaded.kind == "causal" and not request.lead
    left = max(0, request.first - request.lead - kept)
    right = max(0, len(request.ids) - request.tail - request.stop)
    if n_excess > left + right:
        size = request.stop - request.first
        request.flags.append(f"error: expected a span of at most {loaded.max_length} tokens, got {size}")
        request.stop = request.first
        return
    from_left = min(left, n_excess)
    if from_right := n_excess - from_left:
        edge = len(request.ids) - request.tail
        request.ids = np.delete(request.ids, np.s_[edge - from_right : edge])
        request.words = np.delete(request.words, np.s_[edge - from_right : edge])
    request.ids = np.delete(request.ids, np.s_[request.lead : request.lead + from_left])
    request.words = np.delete(request.words, np.s_[request.lead : request.lead + from_left])
    request.first, request.stop = request.first - from_left, request.stop - from_left
    request.flags.append(f"truncated: {format_count(n_excess, 'token')} dropped")


def split_into_windows(
    loaded: TextModel, requests: list[PreparedRequest]
) -> tuple[list[PreparedRequest], np.ndarray, int]:
    """Return (requests, long texts as windows; number of each request's first part; number of split texts).

    A setting that is not possible is an error in the request's flags, which has no part: -1.
    """
    parts, first_parts, n_split = [], [], 0
    for request in requests:
        length = window_length(loaded, request)
        if length is None or reads(loaded, request) <= length:
            first_parts.append(len(parts))
            parts.append(request)
            continue
        overlap = option(request, "overlap") or 0
        size = length - request.lead * (loaded.kind != "causal") - request.tail
        if overlap >= size:
            message = f"expected an overlap of less than {size} tokens, the length of a window, got {overlap}"
            request.flags.append(f"error: {message}")
            first_parts.append(-1)
            continue
        first_parts.append(len(parts))
        is_causal = loaded.kind == "causal"
        parts += windows(request, length, overlap) if is_causal else masked_windows(request, size, overlap)
        n_split += 1
        if loaded.tokenizer_limit and length == loaded.max_length:
            request.flags.append(tokenizer_limit_flag(length))
    return parts, np.array(first_parts, np.int64), n_split


def window_length(loaded: TextModel, request: PreparedRequest) -> int | None:
    """Return the maximum number of tokens to read at a time; None if the text is not read in windows, or unlimited."""
    if not is_rolling(request):
        return None
    limits = [limit for limit in (loaded.max_length, option(request, "window")) if limit is not None]
    return min(limits) if limits else None


def windows(request: PreparedRequest, max_length: int, overlap: int = 0) -> list[PreparedRequest]:
    """Split a request whose span is the entire text; the parts have the IDs `{request_id}#{number}`.

    >>> text = PreparedRequest("r", ids=np.array([9, 1, 2, 3, 4, 5]), first=1, stop=6)
    >>> [(part.ids.tolist(), part.first) for part in windows(text, 2)]
    [([9, 1, 2], 1), ([2, 3, 4], 1), ([3, 4, 5], 2)]
    >>> [(part.ids.tolist(), part.first) for part in windows(text, 3, overlap=1)]
    [([9, 1, 2, 3], 1), ([2, 3, 4, 5], 2)]
    """
    ids, first = request.ids, request.first
    end = min(len(ids), max(first, 1) + max_length)
    bounds = [(0, first, end)]  # start of the window, of its predicted tokens, and their end
    while end < len(ids):
        start, end = end, min(len(ids), end + max_length - overlap)
        bounds.append((end - max_length - 1, start, end))
    return [
        _part(request, number, ids=ids[low:high], first=start - low, stop=high - low)
        for number, (low, start, high) in enumerate(bounds)
    ]


def masked_windows(request: PreparedRequest, size: int, overlap: int = 0) -> list[PreparedRequest]:
    """Split a request to a masked model into windows of `size` tokens between the special tokens.

    >>> text = PreparedRequest("r", ids=np.array([7, 1, 2, 3, 4, 5, 8]), words=np.arange(7), first=1, stop=6, lead=1)
    >>> text.tail = 1
    >>> [(part.ids.tolist(), part.first, part.stop) for part in masked_windows(text, 3, overlap=1)]
    [([7, 1, 2, 3, 8], 1, 4), ([7, 3, 4, 5, 8], 2, 4)]
    """
    edge, lead = len(request.ids) - request.tail, request.lead
    end = min(request.stop, lead + size)
    bounds = [(lead, request.first, end)]
    while end < request.stop:
        start, end = end, min(request.stop, end + size - overlap)
        bounds.append((end - size, start, end))
    parts = []
    for number, (low, start, high) in enumerate(bounds):
        kept = np.r_[0:lead, low:high, edge : len(request.ids)]
        part = _part(request, number, ids=request.ids[kept], first=start - low + lead, stop=high - low + lead)
        part.words = request.words[kept]
        parts.append(part)
    return parts


def _part(request: PreparedRequest, number: int, *, ids: np.ndarray, first: int, stop: int) -> PreparedRequest:
    part = replace(request, request_id=f"{request.request_id}#{number}", ids=ids, first=first, stop=stop, flags=[])
    part.rest = ids[:0]
    part.span = ids[first:stop].copy()
    return part
