"""The endpoint `/generate` of SGLang: log-probabilities of the prompt, and of given tokens after it.

The entry at `logprob_start_len` is null, so that a span from index f is asked for from f - 1.
"""

from vernacular.inference.server.client import Client
from vernacular.inference.server.forms import (
    BOUNDARY,
    CONSISTENT,
    ECHO,
    LETTERS,
    AnswerError,
    TokenScore,
    ask,
    by_id,
    compare_length,
    count,
    elements,
    finite,
    listed,
    read,
)

_SAMPLING = {
    "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "repetition_penalty": 1.0, "max_new_tokens": 1,
}  # fmt: skip


class SGLang:
    """Requests to `/generate`, which is not below `/v1`; a span form and a label form."""

    name = "generate"

    def __init__(self, client: Client):
        self._client = client

    def _meta(self, ids: list[int], fields: dict, sampling: dict) -> dict:
        parameters = _SAMPLING | {name: value for name, value in sampling.items() if name in _SAMPLING}
        body = {"input_ids": ids, "sampling_params": parameters, "return_logprob": True, **fields}
        meta = read(ask(self._client, "/generate", body, root=True), "meta_info")
        if not isinstance(meta, dict):
            raise AnswerError(ECHO, f"{self.name}: the response contains no meta_info")
        counts = [count(meta.get(key)) for key in ("prompt_tokens", "completion_tokens", "cached_tokens")]
        self._client.count_tokens(*counts)
        compare_length(ids, counts[0], counts[2])
        return meta

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        """See `SpanForm.score`."""
        start = max(first - 1, 0)
        meta = self._meta(ids, {"logprob_start_len": start, "top_logprobs_num": 1}, sampling)
        entries, top = meta.get("input_token_logprobs"), meta.get("input_top_logprobs")
        if not isinstance(entries, list):
            raise AnswerError(ECHO, f"{self.name}: the response contains no log-probabilities of the prompt")
        if [read(entry, 1) for entry in entries] != ids[start:]:
            raise AnswerError(ECHO, f"{self.name}: the server scored other token IDs than those sent")
        values = [read(entry, 0) for entry in entries]
        if values[0] is not None or None in values[1:]:
            raise AnswerError(BOUNDARY, f"{self.name}: expected a null for the first token only")
        scores = [TokenScore(ids[0], None)] if first == 0 else []
        for index in range(1, len(values)):
            value, best = finite(values[index], self.name), read(top, index, 0, 0)
            best = None if best is None else max(value, finite(best, self.name))
            scores.append(TokenScore(ids[start + index], value, best))
        return scores

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        """See `SpanForm.generated`."""
        meta = self._meta(ids, {"logprob_start_len": -1, "top_logprobs_num": 1}, {**sampling, "max_new_tokens": n})
        entries = meta.get("output_token_logprobs")
        if not isinstance(entries, list) or not entries or any(type(read(entry, 1)) is not int for entry in entries):
            raise AnswerError(CONSISTENT, f"{self.name}: no log-probabilities of generated tokens are returned")
        return [TokenScore(entry[1], finite(read(entry, 0), self.name)) for entry in entries]

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        """See `LabelForm.label_scores`."""
        fields = {"token_ids_logprob": labels, "top_logprobs_num": 1, "logprob_start_len": -1}
        meta = self._meta(ids, fields, {})
        values = by_id(_pairs(read(meta, "output_token_ids_logprobs", 0)), self.name)
        if not set(labels) <= values.keys():
            raise AnswerError(LETTERS, f"{self.name}: the response lacks some of the requested tokens")
        best = read(meta, "output_top_logprobs", 0, 0, 0)
        best = max(values.values()) if best is None else finite(best, self.name)
        return [TokenScore(label, values[label], best) for label in labels]

    def listed(self, ids: list[int], n: int, k: int, **sampling) -> list[tuple]:
        """See `Completions.listed`."""
        fields = {"logprob_start_len": -1, "top_logprobs_num": k}
        meta = self._meta(ids, fields, {**sampling, "max_new_tokens": n})
        chosen, tops = meta.get("output_token_logprobs"), meta.get("output_top_logprobs")
        pairs = zip(elements(chosen), elements(tops), strict=False)
        return [(read(entry, 1), listed(_pairs(top), self.name)) for entry, top in pairs]


def _pairs(entries) -> list[tuple]:
    """Return (token, value) of each entry [value, token, text]."""
    return [(read(entry, 1), read(entry, 0)) for entry in elements(entries)]
