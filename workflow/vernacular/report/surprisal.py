"""Token surprisal of scored spans, packed: how many characters each token takes, and hundredths of nats.

The text itself is not repeated per model: the page cuts the request's own text by these lengths.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.report.rows import values_of

UNSCORED = -1  # nothing stood before the token, so it has no probability


def packed(scores: pa.Table, roles: set[str], span_of: Callable[[str, str], tuple[str, int] | None]) -> dict:
    """item_id -> [[role, skip, lengths, hundredths], …] for the rows of a scores table whose role is in `roles`.

    `span_of(item_id, role)` gives the span's text and where it starts in the request. `lengths` are in characters
    (code points); 0 where a token shares its character with the one before. `skip` is how many characters of the span
    come before the first token, or the text the tokens cover where a chat template made it another than the span's.
    Rows without tokens are left out: their flag says why.
    """
    table = scores.filter(pc.is_in(scores["role"], value_set=pa.array(sorted(roles), pa.string())))
    if not table.num_rows:
        return {}
    offsets, logprobs = table["offsets"].combine_chunks(), table["logprobs"].combine_chunks()
    at, at_logprobs = offsets.offsets.to_numpy(), logprobs.offsets.to_numpy()
    # (T, 2) characters of every token of the file, one row after another
    edges = offsets.values.flatten().to_numpy(zero_copy_only=False).reshape(-1, 2) if len(offsets.values) else None
    if edges is None:
        return {}
    ends = edges[:, 1].astype(int)
    lengths = np.diff(ends, prepend=0)
    filled = at[:-1][np.diff(at) > 0]
    lengths[filled] = ends[filled] - edges[filled, 0]
    lengths = np.maximum(lengths, 0).tolist()
    nats = logprobs.values.to_numpy(zero_copy_only=False).astype(float)
    hundredths = np.where(np.isfinite(nats), np.round(-100 * np.nan_to_num(nats)), UNSCORED).astype(int)
    hundredths = np.where(np.isfinite(nats), np.maximum(hundredths, 0), UNSCORED).tolist()
    found: dict[str, list] = {}
    items, of_roles, texts = (values_of(table[name]) for name in ("item_id", "role", "rendered"))
    begins, firsts, lasts = edges[:, 0].tolist(), at[:-1].tolist(), at[1:].tolist()
    from_, upto = at_logprobs[:-1].tolist(), at_logprobs[1:].tolist()
    for row, (item, role, rendered, first, last) in enumerate(zip(items, of_roles, texts, firsts, lasts, strict=True)):
        span = span_of(item, role)
        if first == last or span is None or upto[row] - from_[row] != last - first:
            continue
        skip = _skip(span, rendered, begins[first], ends[first:last])
        found.setdefault(item, []).append([role, skip, lengths[first:last], hundredths[from_[row] : upto[row]]])
    return found


def _skip(span: tuple[str, int], rendered: str | None, first: int, ends: np.ndarray) -> int | str:
    text, start = span
    if rendered is None:
        return first - start if first >= start else 0  # a token that straddles the start is drawn from the start on
    covered = rendered[first : int(ends.max())]
    return len(text) - len(covered) if text.endswith(covered) else covered
