"""Request rows as token paths: chat template, BOS, span, and truncation of a text that is too long."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core.errors import format_count
from vernacular.inference.model import rendering
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.tokenization import AlignmentError, Encoded, encode, span_tokens, with_bos
from vernacular.protocols.schema import CHARACTERS_PER_TOKEN
from vernacular.types import Request


@dataclass
class PreparedRequest:
    """A request ready to be scored: tokens `ids[first:stop]`, each given all tokens before it."""

    request_id: str
    ids: list[int] = field(default_factory=list)  # up to the span's end for a causal model, all for a masked one
    offsets: list = field(default_factory=list)  # of the span's tokens
    words: list = field(default_factory=list)  # index of the word of each of `ids` (masked models)
    span: list[int] = field(default_factory=list)  # ids[first:stop], set last
    first: int = 0
    stop: int = 0  # stop == first: nothing to score
    lead: int = 0  # special tokens before the text
    tail: int = 0  # special tokens after it (masked models)
    extras: frozenset[str] = frozenset()
    rendered: str | None = None
    flags: list[str] = field(default_factory=list)

    @property
    def flag(self) -> str | None:
        return "; ".join(self.flags) or None

    @property
    def failed(self) -> bool:
        """Whether there is nothing to score, for the reason in the flag."""
        return self.stop == self.first


def prepare(loaded: LoadedModel, row: Request) -> PreparedRequest:
    """Return the token path of one row of kind "score"; a failure of the row is recorded in its flags.

    Raises ModelError if the model's chat template or BOS policy cannot be applied.
    """

    def attempt(row: Request) -> tuple[PreparedRequest, bool]:
        request = _tokenized(loaded, row)
        return request, request.failed or _excess(loaded, request) <= 0

    request, n_dropped = rendering.fit_to_length(row, attempt)
    if n_dropped:
        request.flags.append(rendering.dropped_flag(n_dropped))
        if request.rendered is None:
            shift = len("".join(row["few_shot_examples"][:n_dropped]))
            request.offsets = [(a + shift, b + shift) for a, b in request.offsets]
    if not request.failed and (n_excess := _excess(loaded, request)) > 0 and not is_rolling(loaded, request):
        _truncate(loaded, request, n_excess)
    if request.ids and max(request.ids) >= loaded.n_embeddings:
        request.flags.append("error: a token is outside the model's vocabulary")
        request.stop = request.first
    request.span = request.ids[request.first : request.stop]
    unknown = loaded.tokenizer.unk_token_id
    if unknown is not None and unknown in request.span:
        request.flags.append("unknown token: part of the scored text is not in the vocabulary")
    return request


def _tokenized(loaded: LoadedModel, row: Request) -> PreparedRequest:
    """Tokenize a row and locate its span, whatever the number of tokens."""
    text, start, end, rendered = _full_text(loaded, row)
    request = PreparedRequest(row["request_id"], extras=frozenset(row["extras"] or ()), rendered=rendered)
    if row["span_start"] >= row["span_end"] or start >= end:
        request.flags.append("empty")
        return request
    try:
        encoded = encode(loaded, text, add_special_tokens=rendered is None)
    except AlignmentError as error:
        request.flags.append(f"error: the tokenizer provides no offsets, and {error}")
        return request
    _locate_span(loaded, request, encoded, text, start, end)
    return request


def _full_text(loaded: LoadedModel, row: Request) -> tuple[str, int, int, str | None]:
    """Return (full text, span start, span end, the text again if a chat template was applied, else None)."""
    text = row["prefix"] + row["text"]
    if rendering.uses_chat(loaded, row["messages"], row["kind"]):
        text, start = rendering.render_continuation(loaded, row["messages"], text[row["span_start"] : row["span_end"]])
        return text, start, len(text), text
    return text, row["span_start"], row["span_end"], None


def _locate_span(loaded, request: PreparedRequest, encoded: Encoded, text: str, start: int, end: int) -> None:
    """Apply the BOS policy and find the span's tokens."""
    span, crosses_edge = span_tokens(text, encoded.offsets, start, end)
    n_tokens = len(encoded.ids)
    scored_from_start = bool(span) and span.start == encoded.lead
    encoded = with_bos(loaded, encoded, templated=request.rendered is not None, scored_from_start=scored_from_start)
    shift = len(encoded.ids) - n_tokens
    request.first, request.stop = span.start + shift, span.stop + shift
    request.lead = encoded.lead
    if loaded.kind == "causal":
        request.ids = encoded.ids[: request.stop]
    else:
        request.ids, request.words = encoded.ids, encoded.words
        request.tail = encoded.tail
    request.offsets = encoded.offsets[request.first : request.stop]
    if "rolling" in request.extras and encoded.lead and loaded.kind == "causal" and shift == 0:
        # as lm-eval: the tokenizer's own BOS is part of the text, and predicted from another one
        request.ids, request.offsets = [request.ids[0], *request.ids], [(0, 0), *request.offsets]
        request.stop += 1
    if crosses_edge:
        request.flags.append("boundary")
    if not span:
        request.first = request.stop = 0
        request.flags.append("empty")
    elif loaded.kind == "causal" and request.stop == 1 and "word_end_logprobs" not in request.extras:
        request.stop = request.first
        request.flags.append("error: no token precedes the only token, so it cannot be predicted")


def _excess(loaded: LoadedModel, request: PreparedRequest) -> int:
    """Return the number of tokens to read beyond the model's maximum length; at most 0 if the text fits.

    A causal model does not read the last token, unless the distribution after it is scored.
    """
    if loaded.max_length is None:
        return 0
    last_is_read = loaded.kind == "masked" or "word_end_logprobs" in request.extras
    return len(request.ids) - (not last_is_read) - loaded.max_length


def is_rolling(loaded: LoadedModel, request: PreparedRequest) -> bool:
    """Return whether a text that is too long is scored in windows (`rolling.py`) instead of truncated."""
    return loaded.kind == "causal" and "rolling" in request.extras and _excess(loaded, request) > 0


def _truncate(loaded: LoadedModel, request: PreparedRequest, n_excess: int) -> None:
    """Truncate `n_excess` tokens: from the text's left, then (masked models) from its right.

    Special tokens and the span are retained, and one context token if a causal model has no special token before the
    text: the span's first token is predicted from it.
    """
    left = max(0, request.first - request.lead - (loaded.kind == "causal" and not request.lead))
    right = max(0, len(request.ids) - request.tail - request.stop)
    if n_excess > left + right:
        size = request.stop - request.first
        request.flags.append(f"error: expected a span of at most {loaded.max_length} tokens, got {size}")
        request.stop = request.first
        return
    from_left = min(left, n_excess)
    if from_right := n_excess - from_left:
        edge = len(request.ids) - request.tail
        request.ids = request.ids[: edge - from_right] + request.ids[edge:]
        request.words = request.words[: edge - from_right] + request.words[edge:]
    request.ids = request.ids[: request.lead] + request.ids[request.lead + from_left :]
    request.words = request.words[: request.lead] + request.words[request.lead + from_left :]
    request.first, request.stop = request.first - from_left, request.stop - from_left
    request.flags.append(f"truncated: {format_count(n_excess, 'token')} dropped")


# Measured: scoring a chunk of this size takes about 400 MB.
CHUNK_CHARACTERS = 100_000_000  # characters
_OWN = 2_500  # memory of a request in addition to its text, in characters


def split_into_chunks(requests: pa.Table, *, masked: bool = False) -> list[np.ndarray]:
    """Return the row indices of each chunk, ascending; `masked`: a text is read once per token of its span.

    The split depends only on the requests, so that a resumed run makes the same one.
    """
    prefix, text = _lengths(requests["prefix"]), _lengths(requests["text"])
    sizes = prefix + text
    if masked:
        spans = [pc.fill_null(requests[name], 0).to_numpy() for name in ("span_end", "span_start")]
        sizes = sizes * np.maximum(1, (spans[0] - spans[1]) / CHARACTERS_PER_TOKEN)
    sizes = sizes + _OWN
    if sizes.sum() <= CHUNK_CHARACTERS:
        return [np.arange(requests.num_rows)]
    texts = pa.table({"prefix": prefix, "text": requests["text"]})
    order = pc.sort_indices(texts, [("prefix", "descending"), ("text", "ascending")]).to_numpy()
    cumulative_sizes = np.cumsum(sizes[order])
    edges = [0]
    while edges[-1] < len(order):
        edges.append(_chunk_end(texts, order, cumulative_sizes, edges[-1]))
    return [np.sort(order[low:high]) for low, high in itertools.pairwise(edges)]


def _chunk_end(texts: pa.Table, order: np.ndarray, cumulative_sizes: np.ndarray, low: int) -> int:
    """Return the end of the chunk that begins at `low`: up to CHUNK_CHARACTERS, or all of one text that is larger."""

    def splits_equal_texts(edge: int) -> bool:
        return edge < len(order) and all(
            column[int(order[edge - 1])] == column[int(order[edge])] for column in texts.columns
        )

    previous_size = cumulative_sizes[low - 1] if low else 0
    end = max(low + 1, int(np.searchsorted(cumulative_sizes, previous_size + CHUNK_CHARACTERS, side="right")))
    edge = end
    while edge > low and splits_equal_texts(edge):
        edge -= 1
    if edge > low:
        return edge
    while splits_equal_texts(end):
        end += 1
    return end


def merge_chunks(parts: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
    """Concatenate the scores of all chunks, in the order of the requests."""
    table = pa.concat_tables(parts)
    return table if len(parts) == 1 else table.take(np.argsort(np.concatenate(rows)))


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    """Return the characters of each text; a dictionary-encoded text is measured once."""
    lengths = [np.zeros(0, int)]
    for chunk in column.chunks:
        is_dictionary = pa.types.is_dictionary(chunk.type)
        chunk_lengths = pc.utf8_length(chunk.dictionary).take(chunk.indices) if is_dictionary else pc.utf8_length(chunk)
        lengths.append(chunk_lengths.to_numpy(zero_copy_only=False))
    return np.concatenate(lengths)
