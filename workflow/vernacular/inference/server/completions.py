"""The endpoints `/v1/completions` and `/v1/chat/completions`, with the extensions of vLLM.

`prompt_logprobs` and `logprob_token_ids` are vLLM's own; `echo` with `logprobs` is OpenAI's older form. IDs are sent as
the prompt and read back, as `prompt_token_ids` or as strings `token_id:504`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from vernacular.inference.server.client import Client
from vernacular.inference.server.forms import (
    EXTENDED,
    STANDARD,
    AnswerError,
    Check,
    LabelForm,
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
    only,
    read,
    text_of,
)

_ID = "token_id:"
LIMITS = ("max_tokens", "max_completion_tokens")  # names of the same field; some servers accept the second one only
_SAMPLING = STANDARD.keys() | EXTENDED.keys()
_HARMLESS = ("seed", "include_stop_str_in_output")  # without these, the same texts are probable


@dataclass(frozen=True)
class Completion:
    """One generated text."""

    text: str
    finish_reason: str | None  # "stop", "length"
    stop: str | None  # the stop string that ended it, if the server reports one
    prompt_tokens: int | None
    completion_tokens: int | None
    ids: list[int] | None  # of the generated tokens, if the server returns them
    logprobs: list[float] | None  # of the generated tokens, nats
    content: dict = field(repr=False)  # the entire response
    reasoning: str | None = None  # before the text, if the server separates it
    reasoning_field: str | None = None  # the field of its message that has it
    reasoning_tokens: int | None = None  # if the server counts them


class Completions:
    """Requests to `/v1/completions`, and to `/v1/chat/completions` if the prompt is a list of messages."""

    def __init__(self, client: Client, model: str, fields: dict | None = None, limit: str = LIMITS[0]):
        self.client, self.model, self.limit = client, model, limit
        self.fields = {**STANDARD, **EXTENDED} if fields is None else fields

    def complete(self, prompt: str | list, max_tokens: int, **changes) -> Completion:
        """Return the continuation of a text, of token IDs, or of chat messages; `changes` are fields.

        Only fields that the server accepts are sent, see `unsupported`. Raises AnswerError, and what `Client.post`
        raises.
        """
        is_chat = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)
        sampling = {name: value for name, value in changes.items() if name in self.fields or name not in _SAMPLING}
        body = {"model": self.model, "messages" if is_chat else "prompt": prompt, self.limit: max_tokens}
        body |= {"stream": False, **self.fields, **sampling}
        content = ask(self.client, "/chat/completions" if is_chat else "/completions", body)
        choice = only(read(content, "choices"), "choices")
        text = read(choice, "message", "content") if is_chat else read(choice, "text")
        if is_chat and text is None and isinstance(read(choice, "message"), dict):
            text = ""  # the model ended its turn at once, or within its reasoning
        # vLLM has renamed the field; SGLang and llama.cpp have the longer name
        name = next((name for name in ("reasoning", "reasoning_content") if read(choice, "message", name)), None)
        reasoning = read(choice, "message", name) if name else None
        text, reason, stop = text_of(text, "text"), read(choice, "finish_reason"), read(choice, "stop_reason")
        usage = read(content, "usage")
        if not isinstance(usage, dict | None):
            raise AnswerError(None, f"expected an object as usage, got {usage!r:.40}")
        prompt_tokens, completion_tokens = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
        cached = count(usage, "prompt_tokens_details", "cached_tokens")
        self.client.count_tokens(prompt_tokens, completion_tokens, cached)
        if isinstance(prompt, list) and not is_chat:
            compare_length(prompt, prompt_tokens, cached)
        ids, logprobs = _generated(choice)
        return Completion(
            text,
            None if reason is None else text_of(reason, "finish reason"),
            text_of(stop, "stop string") if isinstance(stop, str) else None,
            prompt_tokens,
            completion_tokens,
            ids,
            logprobs,
            content,
            reasoning and text_of(reasoning, "reasoning"),
            name,
            count(usage, "completion_tokens_details", "reasoning_tokens"),
        )

    def listed(self, prompt: str | list, n: int, k: int, **sampling) -> list[tuple]:
        """Return (token, {token: log-probability} of the `k` most probable ones, maybe none) of generated tokens."""
        is_chat = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)
        fields = {"logprobs": True, "top_logprobs": k} if is_chat else {"logprobs": k}
        if isinstance(prompt, list) and not is_chat:
            fields["return_tokens_as_token_ids"] = True
        logprobs = read(self.complete(prompt, n, **fields, **sampling).content, "choices", 0, "logprobs")
        if isinstance(entries := read(logprobs, "content"), list):
            return [(token_of(e), listed(_pairs(read(e, "top_logprobs")), "lists")) for e in entries]
        tokens, tops = read(logprobs, "tokens"), read(logprobs, "top_logprobs")
        pairs = zip(elements(tokens), elements(tops), strict=False)
        return [(token, listed(_pairs(top), "lists")) for token, top in pairs if isinstance(token, str)]

    def unsupported(self, changes: dict) -> list[str]:
        """Return the sampling fields in `changes` that the server does not accept and that would change the text."""
        neutral = {**STANDARD, **EXTENDED}
        names = [name for name in changes if name in _SAMPLING and name not in self.fields]
        return [name for name in names if name not in _HARMLESS and changes[name] != neutral[name]]


def count_tokens(tokenizer, prompt: str | list[dict]) -> int:
    """Return the number of tokens of a text, or of the texts of chat messages, without special tokens."""
    texts = [prompt] if isinstance(prompt, str) else [turn["content"] for turn in prompt]
    return sum(len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) for text in texts)


def _generated(choice) -> tuple[list[int] | None, list[float] | None]:
    """Return (IDs, log-probabilities) of the generated tokens, in either shape of `logprobs`; None if absent."""
    entries = read(choice, "logprobs", "content")
    if isinstance(entries, list):
        ids = [read(entry, "id") for entry in entries]
        return (ids if _are_ids(ids) else None), [read(entry, "logprob") for entry in entries]
    ids = read(choice, "token_ids")
    tokens = read(choice, "logprobs", "tokens")
    if not isinstance(ids, list) and isinstance(tokens, list):
        ids = [parse_id(token) for token in tokens]
    logprobs = read(choice, "logprobs", "token_logprobs")
    return ids if _are_ids(ids) else None, logprobs if isinstance(logprobs, list) else None


def _are_ids(values) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**31 for value in values)


def parse_id(token) -> int | None:
    """Return the ID in `token_id:504`; None for any other text."""
    digits = token.removeprefix(_ID) if isinstance(token, str) and token.startswith(_ID) else ""
    return int(digits) if digits.isdecimal() and len(digits) < 11 else None


def token_of(entry) -> bytes | int:
    """Return what names a listed token: its ID, or its bytes."""
    return token if type(token := read(entry, "id")) is int else token_bytes(entry)


def token_bytes(entry) -> bytes:
    """Return the bytes of a listed token: its field `bytes` if there is one, else its text."""
    if isinstance(values := read(entry, "bytes"), list) and all(type(v) is int and 0 <= v < 256 for v in values):
        return bytes(values)
    return str(read(entry, "token")).encode("utf-8", "surrogatepass")


def _pairs(top) -> list[tuple]:
    """Return the (token, value) pairs of a list of the most probable tokens, in either shape."""
    if isinstance(top, dict):
        return list(top.items())
    return [(token_of(entry), read(entry, "logprob")) for entry in elements(top)]


class _PromptForm(SpanForm, ABC):
    """Log-probabilities of a prompt from `/v1/completions`."""

    name: str
    _fields: ClassVar[dict]  # that ask for them

    def __init__(self, completions: Completions):
        self._completions = completions

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        choice = read(self._completions.complete(ids, 1, **self._fields, **sampling).content, "choices", 0)
        entries = self._entries(choice, ids)
        if entries[0] is not None or None in entries[1:]:
            raise AnswerError(Check.BOUNDARY, f"{self.name}: expected a null for the first token only")
        scores = [TokenScore(ids[0], None)] if first == 0 else []
        return scores + [self._score(choice, i, ids[i], entries[i]) for i in range(max(first, 1), len(ids))]

    @abstractmethod
    def _entries(self, choice, ids: list[int]) -> list:
        """Return one entry per token of the prompt, whose IDs are those sent."""

    @abstractmethod
    def _score(self, choice, index: int, token: int, entry) -> TokenScore:
        """Return the value of the token at an index of the prompt, from its entry."""

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        fields = {"logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True, **sampling}
        completion = self._completions.complete(ids, n, **fields)
        if not completion.ids or not completion.logprobs or len(completion.ids) < len(completion.logprobs):
            raise AnswerError(Check.CONSISTENT, "no token IDs and log-probabilities of generated tokens are returned")
        pairs = zip(completion.ids, completion.logprobs, strict=False)
        return [TokenScore(token, finite(value, "generated tokens")) for token, value in pairs]


class PromptLogprobs(_PromptForm):
    """Log-probabilities of the prompt, as vLLM returns them: `prompt_logprobs`, keyed by token ID."""

    name = "prompt_logprobs"
    _fields: ClassVar = {"prompt_logprobs": 1, "return_token_ids": True}

    def _entries(self, choice, ids: list[int]) -> list:
        entries, sent = read(choice, "prompt_logprobs"), read(choice, "prompt_token_ids")
        if not isinstance(entries, list):
            raise AnswerError(Check.ECHO, f"{self.name}: the response contains no log-probabilities of the prompt")
        if sent is not None and sent != ids:
            raise AnswerError(Check.ECHO, f"{self.name}: the server scored other token IDs than those sent")
        if len(entries) != len(ids):
            raise AnswerError(Check.ECHO, f"{self.name}: {len(entries)} entries for {len(ids)} tokens")
        return entries

    def _score(self, choice, index: int, token: int, entry) -> TokenScore:
        pairs = entry.items() if isinstance(entry, dict) else ()
        values = listed(((name, read(value, "logprob")) for name, value in pairs), self.name)
        if str(token) not in values:
            raise AnswerError(Check.ECHO, f"{self.name}: no entry for token {token} of the prompt")
        return TokenScore(token, values[str(token)], max(values.values()))


class Echo(_PromptForm):
    """Log-probabilities of the prompt as part of the output: `echo` with `logprobs`."""

    name = "echo"
    _fields: ClassVar = {"echo": True, "logprobs": 1, "return_tokens_as_token_ids": True}

    def _entries(self, choice, ids: list[int]) -> list:
        values, tokens = read(choice, "logprobs", "token_logprobs"), read(choice, "logprobs", "tokens")
        if not isinstance(values, list) or not isinstance(tokens, list):
            raise AnswerError(Check.ECHO, f"{self.name}: the response contains no log-probabilities of the prompt")
        if len(values) < len(ids) or len(tokens) != len(values):
            raise AnswerError(
                Check.ECHO, f"{self.name}: {len(values)} entries for {len(ids)} tokens and a generated one"
            )
        returned = [parse_id(token) for token in tokens[: len(ids)]]
        if None in returned:
            raise AnswerError(Check.ECHO, f"{self.name}: the server returns strings instead of token IDs")
        if returned != ids:
            raise AnswerError(Check.ECHO, f"{self.name}: the server scored other token IDs than those sent")
        return values[: len(ids)]

    def _score(self, choice, index: int, token: int, entry) -> TokenScore:
        value, top = finite(entry, self.name), read(choice, "logprobs", "top_logprobs", index)
        values = [v for v in listed(_pairs(top), self.name).values() if v is not None]
        return TokenScore(token, value, max([value, *values]) if values else None)


class LabelIds(LabelForm):
    """Log-probabilities of given tokens after a prompt, as vLLM returns them: `logprob_token_ids`."""

    name = "logprob_token_ids"

    def __init__(self, completions: Completions):
        self._completions = completions

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        fields = {"logprobs": 1, "logprob_token_ids": labels, "return_tokens_as_token_ids": True}
        completion = self._completions.complete(ids, 1, **fields)
        top = read(completion.content, "choices", 0, "logprobs", "top_logprobs", 0)
        return all_labels([(parse_id(token), value) for token, value in _pairs(top)], labels, self.name)


class TopIds(LabelForm):
    """Log-probabilities of the `k` most probable next tokens, by ID; a label that is not among them has none."""

    def __init__(self, completions: Completions, k: int):
        self._completions, self.k = completions, k
        self.name = f"top {k}"

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        fields = {"logprobs": self.k, "return_tokens_as_token_ids": True}
        choice = read(self._completions.complete(ids, 1, **fields).content, "choices", 0)
        top = read(choice, "logprobs", "top_logprobs", 0)
        pairs = _pairs(top if isinstance(top, dict) else read(choice, "logprobs", "content", 0, "top_logprobs"))
        pairs = [(parse_id(token) if isinstance(token, str) else token, value) for token, value in pairs]
        values = by_id(pairs, self.name)
        return [TokenScore(label, values.get(label), max(values.values())) for label in labels]


class TextLabels:
    """Log-probabilities of the `k` most probable next tokens, by their text; `chat`: as the answer in a chat.

    The only form without token IDs: a label is answerable if exactly one listed token has its bytes.
    """

    def __init__(self, completions: Completions, k: int, *, chat: bool):
        self._completions, self.k, self.chat = completions, k, chat
        self.name = f"top {k} texts" + (" of a chat" if chat else "")

    def label_texts(
        self, prompt: str | list[dict], labels: list[str], **changes
    ) -> tuple[list[float | None], int | None]:
        """Return (log-probability (nats) of each label as the next token, length of the prompt in tokens).

        None: not in the list, or of two tokens. `changes`: see `Completions.complete`. Raises AnswerError without a
        list.
        """
        fields = {"logprobs": True, "top_logprobs": self.k} if self.chat else {"logprobs": self.k}
        completion = self._completions.complete(prompt, 1, **fields, **changes)
        logprobs = read(completion.content, "choices", 0, "logprobs")
        top = read(logprobs, "top_logprobs", 0)
        if isinstance(top, dict):
            pairs = [(token.encode("utf-8", "surrogatepass"), value) for token, value in top.items()]
        else:
            entries = elements(read(logprobs, "content", 0, "top_logprobs"))
            pairs = [(token_bytes(entry), read(entry, "logprob")) for entry in entries]
        if not pairs:
            raise AnswerError(Check.LETTERS, f"{self.name}: the response contains no list of the most probable tokens")
        values = listed(pairs, self.name)
        return [values.get(label.encode("utf-8")) for label in labels], completion.prompt_tokens
