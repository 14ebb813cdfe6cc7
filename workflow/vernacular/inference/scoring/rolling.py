"""Windows of a text that is longer than the model's context, as lm-eval scores it (`get_rolling_token_windows`).

Each token is predicted once. The first window begins with the text; each later one contains the tokens that follow the
windows before it, and before them as many earlier tokens as fit: `overlap` + 1 of them, more in the last window. In
lm-eval, the overlap is 0 (its `context_len` is `overlap` + 1). Only the first window begins with BOS.

A masked model reads its special tokens around each window, and scores each token in one window.
"""

from dataclasses import replace

import numpy as np

from vernacular.inference.model.tokenization import TextModel
from vernacular.inference.scoring.prepare import PreparedRequest, option, reads, tokenizer_limit_flag

EXTRA = "rolling"


def split_into_windows(
    loaded: TextModel, requests: list[PreparedRequest]
) -> tuple[list[PreparedRequest], np.ndarray, int]:
    """Return (the requests, those of long texts replaced by their windows; the number of the first part of each
    request; number of texts that were split). A setting that is not possible is an error in the request's flags, which
    has no part: -1.
    """
    parts, first_parts, n_split = [], [], 0
    for request in requests:
        length = window_length(loaded, request)
        if length is None or reads(loaded, request) <= length:
            first_parts.append(len(parts))
            parts.append(request)
            continue
        overlap, size = (
            option(request, "overlap") or 0,
            length - request.lead * (loaded.kind == "masked") - request.tail,
        )
        if overlap >= size:
            message = f"expected an overlap of less than {size} tokens, the length of a window, got {overlap}"
            request.flags.append(f"error: {message}")
            first_parts.append(-1)
            continue
        first_parts.append(len(parts))
        parts += (
            windows(request, length, overlap) if loaded.kind == "causal" else masked_windows(request, size, overlap)
        )
        n_split += 1
        if loaded.tokenizer_limit and length == loaded.max_length:
            request.flags.append(tokenizer_limit_flag(length))
    return parts, np.array(first_parts, np.int64), n_split


def window_length(loaded: TextModel, request: PreparedRequest) -> int | None:
    """Return the maximum number of tokens to read at a time; None if the text is not read in windows, or unlimited."""
    if EXTRA not in request.extras:
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
