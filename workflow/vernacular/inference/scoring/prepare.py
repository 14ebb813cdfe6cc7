"""Request rows as token paths: chat template, BOS, span, and truncation of a text that is too long."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core.errors import counted
from vernacular.inference.model import rendering
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.tokenization import CannotAlign, Encoded, encode, span_tokens, with_bos
from vernacular.protocols.schema import CHARACTERS_PER_TOKEN
from vernacular.types import Request


@dataclass
class Prepared:
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


def prepare(loaded: LoadedModel, row: Request) -> Prepared:
    """Return the token path of one row of kind "score"; a failure of the row is recorded in its flags.

    Raises ModelError if the model's chat template or BOS policy cannot be applied.
    """

    def attempt(row: Request) -> tuple[Prepared, bool]:
        found = _tokenized(loaded, row)
        return found, found.failed or _excess(loaded, found) <= 0

    found, n_dropped = rendering.fit_to_length(row, attempt)
    if n_dropped:
        found.flags.append(rendering.dropped_flag(n_dropped))
        if found.rendered is None:
            shift = len("".join(row["few_shot_examples"][:n_dropped]))
            found.offsets = [(a + shift, b + shift) for a, b in found.offsets]
    if not found.failed and (too_many := _excess(loaded, found)) > 0:
        _cut(loaded, found, too_many)
    if found.ids and max(found.ids) >= loaded.n_embeddings:
        found.flags.append("error: a token is outside the model's vocabulary")
        found.stop = found.first
    found.span = found.ids[found.first : found.stop]
    unknown = loaded.tokenizer.unk_token_id
    if unknown is not None and unknown in found.span:
        found.flags.append("unknown token: part of the scored text is not in the vocabulary")
    return found


def _tokenized(loaded: LoadedModel, row: Request) -> Prepared:
    """Tokenize a row and locate its span, whatever the number of tokens."""
    text, start, end, rendered = _text(loaded, row)
    found = Prepared(row["request_id"], extras=frozenset(row["extras"] or ()), rendered=rendered)
    if row["span_start"] >= row["span_end"] or start >= end:
        found.flags.append("empty")
        return found
    try:
        encoded = encode(loaded, text, specials=rendered is None)
    except CannotAlign as error:
        found.flags.append(f"error: the tokenizer provides no offsets, and {error}")
        return found
    _locate(loaded, found, encoded, text, start, end)
    return found


def _text(loaded: LoadedModel, row: Request) -> tuple[str, int, int, str | None]:
    """Return (full text, span start, span end, the text again if a chat template was applied, else None)."""
    text = row["prefix"] + row["text"]
    if rendering.uses_chat(loaded, row["messages"], row["kind"]):
        text, start = rendering.render_continuation(loaded, row["messages"], text[row["span_start"] : row["span_end"]])
        return text, start, len(text), text
    return text, row["span_start"], row["span_end"], None


def _locate(loaded, found: Prepared, encoded: Encoded, text: str, start: int, end: int) -> None:
    """Apply the BOS policy and find the span's tokens."""
    span, straddles = span_tokens(text, encoded.offsets, start, end)
    before = len(encoded.ids)
    from_start = bool(span) and span.start == encoded.lead
    encoded = with_bos(loaded, encoded, templated=found.rendered is not None, scored_from_start=from_start)
    moved = len(encoded.ids) - before
    found.first, found.stop = span.start + moved, span.stop + moved
    found.lead = encoded.lead
    if loaded.kind == "causal":
        found.ids = encoded.ids[: found.stop]
    else:
        found.ids, found.words = encoded.ids, encoded.words
        found.tail = encoded.tail
    found.offsets = encoded.offsets[found.first : found.stop]
    if straddles:
        found.flags.append("boundary")
    if not span:
        found.first = found.stop = 0
        found.flags.append("empty")
    elif loaded.kind == "causal" and found.stop == 1 and "word_end_logprobs" not in found.extras:
        found.stop = found.first
        found.flags.append("error: no token precedes the only token, so it cannot be predicted")


def _excess(loaded: LoadedModel, found: Prepared) -> int:
    """Return the number of tokens to read beyond the model's maximum length; at most 0 if the text fits.

    A causal model does not read the last token, unless the distribution after it is scored.
    """
    if loaded.max_length is None:
        return 0
    last_is_read = loaded.kind == "masked" or "word_end_logprobs" in found.extras
    return len(found.ids) - (not last_is_read) - loaded.max_length


def _cut(loaded: LoadedModel, found: Prepared, too_many: int) -> None:
    """Truncate `too_many` tokens: from the text's left, then (masked models) from its right.

    Special tokens and the span are retained, and one context token if a causal model has no special token before the
    text: the span's first token is predicted from it.
    """
    left = max(0, found.first - found.lead - (loaded.kind == "causal" and not found.lead))
    right = max(0, len(found.ids) - found.tail - found.stop)
    if too_many > left + right:
        size = found.stop - found.first
        found.flags.append(f"error: expected a span of at most {loaded.max_length} tokens, got {size}")
        found.stop = found.first
        return
    from_left = min(left, too_many)
    if from_right := too_many - from_left:
        edge = len(found.ids) - found.tail
        found.ids = found.ids[: edge - from_right] + found.ids[edge:]
        found.words = found.words[: edge - from_right] + found.words[edge:]
    found.ids = found.ids[: found.lead] + found.ids[found.lead + from_left :]
    found.words = found.words[: found.lead] + found.words[found.lead + from_left :]
    found.first, found.stop = found.first - from_left, found.stop - from_left
    found.flags.append(f"truncated: {counted(too_many, 'token')} dropped")


# Measured: scoring a portion of this size takes about 400 MB.
PORTION = 100_000_000  # characters
_OWN = 2_500  # memory of a request in addition to its text, in characters


def portions(requests: pa.Table, *, masked: bool = False) -> list[np.ndarray]:
    """Return the row indices of each portion, ascending; `masked`: a text is read once per token of its span.

    The split depends only on the requests, so that a resumed run makes the same one.
    """
    prefix, text = _lengths(requests["prefix"]), _lengths(requests["text"])
    sizes = prefix + text
    if masked:
        spans = [pc.fill_null(requests[name], 0).to_numpy() for name in ("span_end", "span_start")]
        sizes = sizes * np.maximum(1, (spans[0] - spans[1]) / CHARACTERS_PER_TOKEN)
    sizes = sizes + _OWN
    if sizes.sum() <= PORTION:
        return [np.arange(requests.num_rows)]
    shown = pa.table({"prefix": prefix, "text": requests["text"]})
    order = pc.sort_indices(shown, [("prefix", "descending"), ("text", "ascending")]).to_numpy()
    so_far = np.cumsum(sizes[order])
    edges = [0]
    while edges[-1] < len(order):
        edges.append(_edge(shown, order, so_far, edges[-1]))
    return [np.sort(order[low:high]) for low, high in itertools.pairwise(edges)]


def _edge(shown: pa.Table, order: np.ndarray, so_far: np.ndarray, low: int) -> int:
    """Return the end of the portion that begins at `low`: up to PORTION, or all of one text that is larger."""

    def cuts(edge: int) -> bool:
        return edge < len(order) and all(
            column[int(order[edge - 1])] == column[int(order[edge])] for column in shown.columns
        )

    before = so_far[low - 1] if low else 0
    most = max(low + 1, int(np.searchsorted(so_far, before + PORTION, side="right")))
    edge = most
    while edge > low and cuts(edge):
        edge -= 1
    if edge > low:
        return edge
    while cuts(most):
        most += 1
    return most


def together(parts: list[pa.Table], rows: list[np.ndarray]) -> pa.Table:
    """Concatenate the scores of all portions, in the order of the requests."""
    whole = pa.concat_tables(parts)
    return whole if len(parts) == 1 else whole.take(np.argsort(np.concatenate(rows)))


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    """Return the characters of each text; a dictionary-encoded text is measured once."""
    found = [np.zeros(0, int)]
    for chunk in column.chunks:
        coded = pa.types.is_dictionary(chunk.type)
        lengths = pc.utf8_length(chunk.dictionary).take(chunk.indices) if coded else pc.utf8_length(chunk)
        found.append(lengths.to_numpy(zero_copy_only=False))
    return np.concatenate(found)
