"""The outputs of an evaluation's requests, one per token query, and their rows in a scores file."""

import numpy as np
import pyarrow as pa

from vernacular.inference.model.tokenization import TextModel
from vernacular.inference.scoring.head import DTYPES, EXTRAS, TokenScores
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.trie import ranges


class Outputs:
    """A slot per token query of each request, in the order of the requests and of their tokens."""

    def __init__(self, request_ids: list[str], sizes: list[int], extras: frozenset[str]):
        self.request_ids = request_ids
        self.sizes = np.array(sizes, np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.requests = np.repeat(np.arange(len(sizes), dtype=np.int32), self.sizes)  # number of each slot's request
        names = ["logprobs", "is_greedy", *(name for extra in sorted(extras) for name in EXTRAS[extra])]
        self.values = {name: np.zeros(len(self.requests), DTYPES.get(name, np.float32)) for name in names}
        self.done = np.zeros(len(self.requests), np.bool_)

    def slots(self, numbers: np.ndarray) -> np.ndarray:
        """Return the slots of some requests, in the order of `numbers`."""
        return ranges(self.starts[numbers], self.sizes[numbers])

    def put(self, slots: np.ndarray, scores: TokenScores, indices: np.ndarray) -> None:
        """Store the outputs at `indices` in `slots`."""
        for name, values in self.values.items():
            values[slots] = getattr(scores, name)[indices]
        self.done[slots] = True

    def requests_with_nan(self) -> np.ndarray:
        """Return the numbers of the requests with an output that is NaN, ascending."""
        is_nan = np.zeros(len(self.done), np.bool_)
        for values in self.values.values():
            is_nan |= np.isnan(values)
        return np.unique(self.requests[is_nan & self.done])


def score_columns(
    loaded: TextModel, requests: list[PreparedRequest], outputs: Outputs, numbers: np.ndarray
) -> dict[str, pa.Array]:
    """Return the columns of SCORES after `role`, with a row per request.

    `numbers`: the number of each request in `outputs`; -1: it has no outputs, and only its text and flags are known.
    """
    lists = _Lists(requests, outputs, numbers, skips_first=loaded.kind == "causal")
    valid = [request for request, number in zip(requests, numbers, strict=True) if number >= 0]
    ids, indices = np.unique(np.concatenate([_NO_IDS, *(r.span for r in valid)]), return_inverse=True)
    names = pa.array(loaded.tokenizer.convert_ids_to_tokens(ids.tolist()), pa.string())
    offsets = np.concatenate([np.zeros((0, 2), np.int32), *(request.offsets for request in valid)])
    return {
        "tokens": lists.array(names.take(pa.array(indices))),
        "offsets": lists.array(pa.FixedSizeListArray.from_arrays(pa.array(offsets.ravel()), 2)),
        "logprobs": lists.outputs("logprobs", pa.float32()),
        "is_greedy": lists.outputs("is_greedy", pa.bool_()),
        "entropy": lists.outputs("entropy", pa.float32(), extra="entropy"),
        "topk_entropy": lists.outputs("topk_entropy", pa.float32(), extra="entropy"),
        "rank": lists.outputs("rank", pa.int32(), extra="rank"),
        "top_tokens": _names(loaded, lists.outputs("top_id", pa.int32(), extra="top_token")),
        "word_end_logprobs": lists.outputs("word_end_logprobs", pa.float32(), extra="word_end_logprobs", n_more=1),
        "logprob_mean": lists.outputs("logprob_mean", pa.float32(), extra="logprob_moments"),
        "logprob_sd": lists.outputs("logprob_sd", pa.float32(), extra="logprob_moments"),
        "n_prompt_tokens": pa.array([r.first for r in requests], pa.int32(), mask=numbers < 0),
        "rendered": pa.array([request.rendered for request in requests], pa.string()),
        "flags": pa.array([request.flag for request in requests], pa.string()),
    }


_NO_IDS = np.zeros(0, np.int32)


def _names(loaded: TextModel, lists: pa.ListArray) -> pa.ListArray:
    """Return lists of tokens from lists of their IDs."""
    ids = lists.values.dictionary_encode()
    names = pa.array(loaded.tokenizer.convert_ids_to_tokens(ids.dictionary.to_pylist()), pa.string())
    return pa.ListArray.from_arrays(lists.offsets, names.take(ids.indices), mask=lists.is_null())


class _Lists:
    """List columns with a value per token of the span of each request, null for requests without outputs."""

    def __init__(self, requests: list[PreparedRequest], outputs: Outputs, numbers: np.ndarray, *, skips_first: bool):
        self.requests, self.stored = requests, outputs
        self.valid = numbers >= 0
        self.sizes = np.array([len(request.span) for request in requests], np.int64)
        # causal models: the first token of a text has no predecessor, and therefore no output
        self.skips = np.array([skips_first and request.first == 0 for request in requests], np.bool_)
        self.starts = np.zeros(len(requests), np.int64)
        self.starts[self.valid] = outputs.starts[numbers[self.valid]]
        self.starts -= self.skips

    def array(self, values: pa.Array) -> pa.ListArray:
        """Return lists of the values of all valid requests, one after the other."""
        return self._array(values, self.valid, self.sizes)

    def outputs(self, name: str, dtype: pa.DataType, *, extra: str | None = None, n_more: int = 0) -> pa.ListArray:
        """Return lists of outputs, with `n_more` after the last token, of the requests with an extra (None: of all)."""
        has_extra = np.array([extra is None or extra in request.extras for request in self.requests], np.bool_)
        valid, sizes = self.valid & has_extra, self.sizes + n_more
        indices = ranges(self.starts[valid], sizes[valid])
        if name not in self.stored.values:  # not computed for this kind of model
            return self._array(pa.nulls(len(indices), dtype), valid, sizes)
        is_null = np.zeros(len(indices), np.bool_)
        is_null[(np.cumsum(sizes[valid]) - sizes[valid])[self.skips[valid]]] = True
        return self._array(pa.array(self.stored.values[name][indices], dtype, mask=is_null), valid, sizes)

    def _array(self, values: pa.Array, valid: np.ndarray, sizes: np.ndarray) -> pa.ListArray:
        edges = np.concatenate([np.zeros(1, np.int32), np.cumsum(np.where(valid, sizes, 0), dtype=np.int32)])
        return pa.ListArray.from_arrays(pa.array(edges), values, mask=pa.array(~valid))
