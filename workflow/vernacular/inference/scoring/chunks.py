"""Chunks of an evaluation's requests: those of one chunk are in memory at a time."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.protocols.schema import CHARACTERS_PER_TOKEN

# Measured: a chunk of short texts takes about 70 MB; one is computed while another is prepared.
CHUNK_CHARACTERS = 32_000_000  # characters
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
    """Concatenate the scores of all chunks, in the order of the requests; `parts` is emptied.

    The columns are copied one after the other, because two copies of all of them would be the most that a job needs.
    """
    if len(parts) == 1:
        return parts.pop()
    order, columns = np.argsort(np.concatenate(rows)), {}
    for name in parts[0].column_names:
        chunks = [chunk for part in parts for chunk in part[name].chunks]
        columns[name] = pa.chunked_array(chunks, parts[0][name].type).take(order)
        parts[:] = [part.drop_columns(name) for part in parts]
    parts.clear()
    return pa.table(columns)


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    """Return the characters of each text; a dictionary-encoded text is measured once."""
    lengths = [np.zeros(0, int)]
    for chunk in column.chunks:
        is_dictionary = pa.types.is_dictionary(chunk.type)
        chunk_lengths = pc.utf8_length(chunk.dictionary).take(chunk.indices) if is_dictionary else pc.utf8_length(chunk)
        lengths.append(chunk_lengths.to_numpy(zero_copy_only=False))
    return np.concatenate(lengths)


def distinct_rows(requests: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return (first row of each distinct request, ascending; for each row, the number of its request)."""
    numbers = requests["request_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return np.unique(numbers, return_index=True)[1], numbers
