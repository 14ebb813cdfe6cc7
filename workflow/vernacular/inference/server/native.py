"""Endpoints of servers beside OpenAI's: `/completion` of llama.cpp, and `/generate` of SGLang."""

from collections.abc import Iterable

from vernacular.inference.server.client import Client
from vernacular.inference.server.completions import Completion
from vernacular.inference.server.forms import (
    AnswerError,
    Check,
    LabelForm,
    LengthError,
    SpanForm,
    TokenScore,
    all_labels,
    ask,
    by_id,
    compare_length,
    count,
    elements,
    finite,
    listed,
    read,
    text_of,
)

_BIAS = 1e4
_FIRST_LIST, _GROWTH = 64, 16  # lengths of the lists: 64, 1024, 16384, …
_LETTERS_LIST = 1024
_LLAMA_SAMPLING = {
    "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "xtc_probability": 0.0, "mirostat": 0,
    "dynatemp_range": 0.0, "seed": 0, "stream": False, "return_tokens": True, "cache_prompt": True,
    "post_sampling_probs": False, "ignore_eos": False,
    "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
}  # fmt: skip


class LlamaCpp(SpanForm, LabelForm):
    """Requests to `/completion` of llama.cpp: log-probabilities of forced tokens, and generation from token IDs.

    The server returns none of a prompt, so the next token is forced with a large `logit_bias`; its value is from the
    logits before it. A token that ends inside a UTF-8 character has no entry: `whole_token` is forced then, and the
    list of the most probable ones is made longer, up to `vocabulary`, until it contains the wanted one.
    """

    name = "forcing"

    def __init__(self, client: Client, vocabulary: int, whole_token: int):
        self._client, self._vocabulary, self._whole_token = client, vocabulary, whole_token

    def complete(self, prompt: list[int], max_tokens: int, **changes) -> Completion:
        """Return the continuation of token IDs; a stop string that ends it is part of the text."""
        content = self._post(prompt, max_tokens, **changes)
        text, ids = content["content"], read(content, "tokens")
        reason, word = read(content, "stop_type"), text_of(read(content, "stopping_word") or "", "stop string")
        return Completion(
            text + word if reason == "word" and word else text,
            "length" if reason == "limit" else "stop",
            word if reason == "word" else None,
            count(content, "tokens_evaluated"),
            count(content, "tokens_predicted"),
            ids if isinstance(ids, list) else None,
            None,
            content,
        )

    def _post(self, prompt: list[int], n_predict: int, **fields) -> dict:
        fields = {"repeat_penalty" if name == "repetition_penalty" else name: v for name, v in fields.items()}
        body = {"prompt": prompt, "n_predict": n_predict, **_LLAMA_SAMPLING, **fields}
        content = ask(self._client, "/completion", body, root=True)
        text_of(read(content, "content"), "text")
        evaluated, predicted = (count(content, key) for key in ("tokens_evaluated", "tokens_predicted"))
        self._client.count_tokens(evaluated, predicted, count(content, "timings", "cache_n"))
        if evaluated is None:
            raise AnswerError(Check.ECHO, f"{self.name}: the response contains no number of the tokens that were read")
        compare_length(prompt, evaluated)
        if read(content, "truncated") is True:
            raise LengthError("the server truncated the prompt")
        return content

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        """One request per token, whose common prefix the server has in its cache."""
        scores = [TokenScore(ids[0], None)] if first == 0 else []
        return scores + [self._forced(ids[:index], ids[index], sampling) for index in range(max(first, 1), len(ids))]

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        """Up to the first token without an entry."""
        content = self._post(ids, n, n_probs=1, **sampling)
        scores = []
        for token, entry in self._entries(content):
            if read(entry, "id") != token:
                break
            scores.append(TokenScore(token, finite(read(entry, "logprob"), self.name)))
        if not scores:
            raise AnswerError(Check.CONSISTENT, f"{self.name}: no log-probabilities of generated tokens are returned")
        return scores

    def _forced(self, prefix: list[int], token: int, sampling: dict) -> TokenScore:
        content = self._post(prefix, 1, n_probs=1, logit_bias=[[token, _BIAS]], **sampling)
        if read(content, "tokens", 0) != token:
            raise AnswerError(Check.FORCING, f"{self.name}: token {token} was forced, and another one was returned")
        entry = read(content, "completion_probabilities", 0)
        if entry is None:
            [score] = self._listed(prefix, [token], _FIRST_LIST)
            return score
        if read(entry, "id") != token or read(entry, "logprob") is None:
            raise AnswerError(Check.FORCING, f"{self.name}: no log-probability of the forced token {token}")
        value = finite(read(entry, "logprob"), self.name)
        best = read(entry, "top_logprobs", 0, "logprob")
        return TokenScore(token, value, None if best is None else max(value, finite(best, self.name)))

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        """A label that is missing in the first list is forced."""
        values = self._list(ids, _LETTERS_LIST)
        best = max(values.values())
        seen = {label: TokenScore(label, values[label], best) for label in labels if label in values}
        return [seen.get(label) or self._forced(ids, label, {}) for label in labels]

    def _listed(self, prefix: list[int], tokens: Iterable[int], length: int) -> list[TokenScore]:
        """Return the scores of `tokens` from lists of growing length."""
        values: dict[int, float] = {}
        while not set(tokens) <= values.keys():
            if len(values) >= self._vocabulary or length > _GROWTH * self._vocabulary:
                raise AnswerError(Check.LETTERS, f"{self.name}: a token is not among all {len(values)} returned ones")
            values = self._list(prefix, min(length, self._vocabulary))
            length *= _GROWTH
        return [TokenScore(token, values[token], max(values.values())) for token in tokens]

    def _list(self, prefix: list[int], length: int) -> dict[int, float]:
        """Return the log-probabilities of the `length` most probable next tokens, by ID."""
        content = self._post(prefix, 1, n_probs=length, logit_bias=[[self._whole_token, _BIAS]])
        pairs = _pairs(read(content, "completion_probabilities", 0))
        if not pairs:
            raise AnswerError(Check.FORCING, f"{self.name}: the response contains no list of the most probable tokens")
        return by_id(pairs, self.name)

    def listed(self, ids: list[int], n: int, k: int, **sampling) -> list[tuple]:
        """See `Completions.listed`."""
        entries = self._entries(self._post(ids, n, n_probs=k, **sampling))
        return [(token, listed(_pairs(entry), self.name)) for token, entry in entries if read(entry, "id") == token]

    def _entries(self, content: dict) -> list[tuple]:
        """Return (generated token, its entry); entries of tokens after one without an entry are shifted."""
        entries = elements(read(content, "completion_probabilities"))
        return [pair for pair in zip(elements(read(content, "tokens")), entries, strict=False) if type(pair[0]) is int]


def _pairs(entry) -> list[tuple]:
    """Return (token, value) of each of the most probable tokens."""
    return [(read(top, "id"), read(top, "logprob")) for top in elements(read(entry, "top_logprobs"))]


_SGLANG_SAMPLING = {
    "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "repetition_penalty": 1.0, "max_new_tokens": 1,
}  # fmt: skip


class SGLang(SpanForm, LabelForm):
    """Requests to `/generate` of SGLang; the entry at `logprob_start_len` is null: spans are asked for one before."""

    name = "generate"

    def __init__(self, client: Client):
        self._client = client

    def _meta(self, ids: list[int], fields: dict, sampling: dict) -> dict:
        parameters = _SGLANG_SAMPLING | {name: value for name, value in sampling.items() if name in _SGLANG_SAMPLING}
        body = {"input_ids": ids, "sampling_params": parameters, "return_logprob": True, **fields}
        meta = read(ask(self._client, "/generate", body, root=True), "meta_info")
        if not isinstance(meta, dict):
            raise AnswerError(Check.ECHO, f"{self.name}: the response contains no meta_info")
        counts = [count(meta, key) for key in ("prompt_tokens", "completion_tokens", "cached_tokens")]
        self._client.count_tokens(*counts)
        compare_length(ids, counts[0], counts[2])
        return meta

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        start = max(first - 1, 0)
        meta = self._meta(ids, {"logprob_start_len": start, "top_logprobs_num": 1}, sampling)
        entries, top = meta.get("input_token_logprobs"), meta.get("input_top_logprobs")
        if not isinstance(entries, list):
            raise AnswerError(Check.ECHO, f"{self.name}: the response contains no log-probabilities of the prompt")
        if [read(entry, 1) for entry in entries] != ids[start:]:
            raise AnswerError(Check.ECHO, f"{self.name}: the server scored other token IDs than those sent")
        values = [read(entry, 0) for entry in entries]
        if values[0] is not None or None in values[1:]:
            raise AnswerError(Check.BOUNDARY, f"{self.name}: expected a null for the first token only")
        scores = [TokenScore(ids[0], None)] if first == 0 else []
        for index in range(1, len(values)):
            value, best = finite(values[index], self.name), read(top, index, 0, 0)
            best = None if best is None else max(value, finite(best, self.name))
            scores.append(TokenScore(ids[start + index], value, best))
        return scores

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        meta = self._meta(ids, {"logprob_start_len": -1, "top_logprobs_num": 1}, {**sampling, "max_new_tokens": n})
        entries = meta.get("output_token_logprobs")
        if not isinstance(entries, list) or not entries or any(type(read(entry, 1)) is not int for entry in entries):
            raise AnswerError(Check.CONSISTENT, f"{self.name}: no log-probabilities of generated tokens are returned")
        return [TokenScore(entry[1], finite(read(entry, 0), self.name)) for entry in entries]

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        fields = {"token_ids_logprob": labels, "top_logprobs_num": 1, "logprob_start_len": -1}
        meta = self._meta(ids, fields, {})
        best = read(meta, "output_top_logprobs", 0, 0, 0)
        best = None if best is None else finite(best, self.name)
        return all_labels(_sglang_pairs(read(meta, "output_token_ids_logprobs", 0)), labels, self.name, best)

    def listed(self, ids: list[int], n: int, k: int, **sampling) -> list[tuple]:
        """See `Completions.listed`."""
        fields = {"logprob_start_len": -1, "top_logprobs_num": k}
        meta = self._meta(ids, fields, {**sampling, "max_new_tokens": n})
        chosen, tops = meta.get("output_token_logprobs"), meta.get("output_top_logprobs")
        pairs = zip(elements(chosen), elements(tops), strict=False)
        return [(read(entry, 1), listed(_sglang_pairs(top), self.name)) for entry, top in pairs]


def _sglang_pairs(entries) -> list[tuple]:
    """Return (token, value) of each entry [value, token, text]."""
    return [(read(entry, 1), read(entry, 0)) for entry in elements(entries)]
