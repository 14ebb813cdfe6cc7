"""A large evaluation in portions: as many requests as may be Python objects at once; the rest of it stays in Arrow.

Requests of equal text are in one portion, and those that begin alike are neighbours: a portion reads anew the few-shot
block and, at its edge, the context of an item that is cut, hundreds of tokens beside millions. What fits one portion is
one, in the order of its rows.
"""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.requests.schema import CHARACTERS_PER_TOKEN

# Measured: while a portion of this size is asked, it takes some 400 MB.
PORTION = 100_000_000  # characters
_OWN = 2_500  # what a request takes beside its text, in characters


def portions(requests: pa.Table, *, masked: bool = False) -> list[np.ndarray]:
    """The rows of each portion, ascending; `masked`: a text is read once for each token of its span.

    The cut follows from the requests alone, so that a resumed run makes the same one.
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
    """Where the portion ends that begins at `low`: as large as it may be, or all of one text that is larger."""

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
    """What was answered to each portion as one table, in the order of the requests."""
    whole = pa.concat_tables(parts)
    return whole if len(parts) == 1 else whole.take(np.argsort(np.concatenate(rows)))


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    """Characters of each text; a text that many rows share is counted once."""
    found = [np.zeros(0, int)]
    for chunk in column.chunks:
        coded = pa.types.is_dictionary(chunk.type)
        lengths = pc.utf8_length(chunk.dictionary).take(chunk.indices) if coded else pc.utf8_length(chunk)
        found.append(lengths.to_numpy(zero_copy_only=False))
    return np.concatenate(found)
