"""Windows of a text that is longer than the model's context, as lm-eval scores it (`get_rolling_token_windows`).

Each token is predicted once. The first window begins with the text; each later one contains the tokens that follow the
windows before it, and before them as many earlier tokens as fit, at least one.
"""

from dataclasses import replace

from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring.prepare import PreparedRequest, is_rolling


def split_text(loaded: LoadedModel, request: PreparedRequest) -> list[PreparedRequest]:
    """Return the windows of a rolling text that is too long; of any other, the request itself."""
    return windows(request, loaded.max_length) if is_rolling(loaded, request) else [request]


def windows(request: PreparedRequest, max_length: int) -> list[PreparedRequest]:
    """Split a request whose span is the entire text; the parts have its ID.

    >>> import numpy as np
    >>> text = PreparedRequest("r", ids=np.array([9, 1, 2, 3, 4, 5]), first=1, stop=6)
    >>> [(part.ids.tolist(), part.first) for part in windows(text, 2)]
    [([9, 1, 2], 1), ([2, 3, 4], 1), ([3, 4, 5], 2)]
    """
    ids, first = request.ids, request.first
    end = min(len(ids), first + max_length)
    bounds = [(0, first, end)]  # start of the window, of its predicted tokens, and their end
    while end < len(ids):
        start, end = end, min(len(ids), end + max_length)
        bounds.append((end - max_length - 1, start, end))
    return [
        replace(request, ids=ids[low:high], first=start - low, stop=high - low, span=ids[start:high])
        for low, start, high in bounds
    ]
