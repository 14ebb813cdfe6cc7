"""The endpoint `/completion` of llama.cpp: log-probabilities of forced tokens, and generation from token IDs.

The server returns no log-probabilities of a prompt. The next token is forced with a large `logit_bias` instead; its
log-probability is computed from the logits before the bias. A token that ends inside a UTF-8 character has no entry in
the response: another token is forced then, and the list of the most probable ones is made longer until it contains the
wanted one.
"""

from collections.abc import Iterable

from vernacular.inference.server.client import Client
from vernacular.inference.server.completions import Completion
from vernacular.inference.server.forms import (
    CONSISTENT,
    ECHO,
    FORCING,
    LETTERS,
    AnswerError,
    LengthError,
    TokenScore,
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
_SAMPLING = {
    "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "xtc_probability": 0.0, "mirostat": 0,
    "dynatemp_range": 0.0, "seed": 0, "stream": False, "return_tokens": True, "cache_prompt": True,
    "post_sampling_probs": False, "ignore_eos": False,
    "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
}  # fmt: skip


class LlamaCpp:
    """Requests to `/completion`, which is not below `/v1`; a span form and a label form.

    Args:
        vocabulary: Number of tokens, which bounds the length of a list.
        whole_token: A token whose bytes are complete characters; it is forced to obtain a list.
    """

    name = "forcing"

    def __init__(self, client: Client, vocabulary: int, whole_token: int):
        self._client, self._vocabulary, self._whole_token = client, vocabulary, whole_token

    def complete(self, prompt: list[int] | str, max_tokens: int, **changes) -> Completion:
        """Return the continuation of token IDs; a stop string that ends it is part of the text."""
        content = self._post(prompt, max_tokens, **changes)
        text, ids = content["content"], read(content, "tokens")
        reason, word = read(content, "stop_type"), text_of(read(content, "stopping_word") or "", "stop string")
        return Completion(
            text + word if reason == "word" and word else text,
            "length" if reason == "limit" else "stop",
            word if reason == "word" else None,
            count(read(content, "tokens_evaluated")),
            count(read(content, "tokens_predicted")),
            ids if isinstance(ids, list) else None,
            None,
            content,
        )

    def _post(self, prompt: list[int] | str, n_predict: int, **fields) -> dict:
        fields = {"repeat_penalty" if name == "repetition_penalty" else name: v for name, v in fields.items()}
        body = {"prompt": prompt, "n_predict": n_predict, **_SAMPLING, **fields}
        content = ask(self._client, "/completion", body, root=True)
        text_of(read(content, "content"), "text")
        evaluated, predicted = (count(read(content, key)) for key in ("tokens_evaluated", "tokens_predicted"))
        self._client.count_tokens(evaluated, predicted, count(read(content, "timings", "cache_n")))
        if isinstance(prompt, list):
            compare_length(prompt, evaluated)
        if read(content, "truncated") is True:
            raise LengthError("the server truncated the prompt")
        return content

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        """See `SpanForm.score`; one request per token, whose common prefix the server has in its cache."""
        scores = [TokenScore(ids[0], None)] if first == 0 else []
        return scores + [self._forced(ids[:index], ids[index], sampling) for index in range(max(first, 1), len(ids))]

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        """See `SpanForm.generated`; up to the first token without an entry."""
        content = self._post(ids, n, n_probs=1, **sampling)
        self._check_length(content, ids)
        scores = []
        for token, entry in self._entries(content):
            if read(entry, "id") != token:
                break
            scores.append(TokenScore(token, finite(read(entry, "logprob"), self.name)))
        if not scores:
            raise AnswerError(CONSISTENT, f"{self.name}: no log-probabilities of generated tokens are returned")
        return scores

    def _forced(self, prefix: list[int], token: int, sampling: dict) -> TokenScore:
        content = self._post(prefix, 1, n_probs=1, logit_bias=[[token, _BIAS]], **sampling)
        if read(content, "tokens", 0) != token:
            raise AnswerError(FORCING, f"{self.name}: token {token} was forced, and another one was returned")
        self._check_length(content, prefix)
        entry = read(content, "completion_probabilities", 0)
        if entry is None:
            [score] = self._listed(prefix, [token], _FIRST_LIST)
            return score
        if read(entry, "id") != token or read(entry, "logprob") is None:
            raise AnswerError(FORCING, f"{self.name}: no log-probability of the forced token {token}")
        value = finite(read(entry, "logprob"), self.name)
        best = read(entry, "top_logprobs", 0, "logprob")
        return TokenScore(token, value, None if best is None else max(value, finite(best, self.name)))

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        """See `LabelForm.label_scores`; a label that is missing in the first list is forced."""
        values = self._list(ids, _LETTERS_LIST)
        best = max(values.values())
        return [
            TokenScore(label, values[label], best) if label in values else self._forced(ids, label, {})
            for label in labels
        ]

    def _listed(self, prefix: list[int], tokens: Iterable[int], length: int) -> list[TokenScore]:
        """Return the scores of `tokens` from lists of growing length."""
        values: dict[int, float] = {}
        while not set(tokens) <= values.keys():
            if len(values) >= self._vocabulary or length > _GROWTH * self._vocabulary:
                raise AnswerError(LETTERS, f"{self.name}: a token is not among all {len(values)} returned ones")
            values = self._list(prefix, min(length, self._vocabulary))
            length *= _GROWTH
        return [TokenScore(token, values[token], max(values.values())) for token in tokens]

    def _list(self, prefix: list[int], length: int) -> dict[int, float]:
        """Return the log-probabilities of the `length` most probable next tokens, by ID."""
        content = self._post(prefix, 1, n_probs=length, logit_bias=[[self._whole_token, _BIAS]])
        self._check_length(content, prefix)
        pairs = _pairs(read(content, "completion_probabilities", 0))
        if not pairs:
            raise AnswerError(FORCING, f"{self.name}: the response contains no list of the most probable tokens")
        return by_id(pairs, self.name)

    def listed(self, ids: list[int], n: int, k: int, **sampling) -> list[tuple]:
        """See `Completions.listed`."""
        entries = self._entries(self._post(ids, n, n_probs=k, **sampling))
        return [(token, listed(_pairs(entry), self.name)) for token, entry in entries if read(entry, "id") == token]

    def _entries(self, content: dict) -> list[tuple]:
        """Return (generated token, its entry); entries of tokens after one without an entry are shifted."""
        entries = elements(read(content, "completion_probabilities"))
        return [pair for pair in zip(elements(read(content, "tokens")), entries, strict=False) if type(pair[0]) is int]

    def _check_length(self, content: dict, prefix: list[int]) -> None:
        if (evaluated := read(content, "tokens_evaluated")) != len(prefix):
            raise AnswerError(ECHO, f"{self.name}: {evaluated} tokens were read, {len(prefix)} were sent")


def _pairs(entry) -> list[tuple]:
    """Return (token, value) of each of the most probable tokens."""
    return [(read(top, "id"), read(top, "logprob")) for top in elements(read(entry, "top_logprobs"))]
