"""The forms in which servers return log-probabilities: what they have in common.

A form is one way to ask. Each checks the structure of every response when it arrives: the IDs that were scored are read
back, and exactly the expected number of finite values is present. A violation is an AnswerError, which names the check
of the probe that it fails.
"""

import contextlib
import math
import os
import re
import threading
import typing
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from vernacular.core.errors import ServerError, format_count

# Every sampling field is sent with each request: servers take missing ones from the model's generation_config.json.
STANDARD = {"temperature": 0.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1, "seed": 0}
EXTENDED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
EXTENDED |= {"include_stop_str_in_output": False}  # these are not in OpenAI's own API

_CHECKS = {
    "REACH": "reach and name", "IDS": "token IDs accepted", "ECHO": "echo", "BOUNDARY": "boundary",
    "PLAUSIBLE": "plausible", "CONSISTENT": "self-consistent", "REPETITION": "repetition and cache", "BATCH": "batch",
    "PENALTIES": "no temperature or penalties", "TOKENIZER": "tokenizer", "BYTES": "byte tokens", "LETTERS": "labels",
    "FORCING": "forcing", "LENGTH": "length", "STOP": "stop and seed", "KNOWN": "known answer",
    "CHATS": "settings of chats",
}  # fmt: skip
Check = IntEnum("Check", list(_CHECKS))  # the probe's checks
CHECKS = dict(enumerate(_CHECKS.values(), start=1))  # what they are called, by number
_LEAST = -9998.0  # servers write -9999 for minus infinity, or for "not computed"
_ROUNDING = 1e-3  # nats; a log-probability above 0 by more is none
_SUM_TOLERANCE = 0.02  # of the probabilities of a list: values may have three digits
_MOST_TOKENS = 2**31 - 1  # that the tables can hold
_SURROGATE = re.compile("[\ud800-\udfff]")


class AnswerError(Exception):
    """Response without what was asked for; `check`: number of the check that it fails; None: it is malformed."""

    def __init__(self, check: int | None, text: str):
        super().__init__(text)
        self.check = check


class ValueLieError(AnswerError):
    """Values that are not those of the model, in a form that returns values: those of other forms are in doubt, too."""


class LengthError(AnswerError):
    """Response to another prompt than the one that was sent, which is an error of its row."""

    def __init__(self, text: str):
        super().__init__(Check.LENGTH, text)


@dataclass(frozen=True)
class TokenScore:
    """The log-probability of one token of a text."""

    token_id: int
    logprob: float | None  # nats; None: no token precedes it
    best: float | None = None  # nats, of the most probable token

    @property
    def is_greedy(self) -> bool | None:
        """Whether no token is more probable; None if unknown."""
        return None if self.best is None or self.logprob is None else self.logprob >= self.best


class SpanForm(typing.Protocol):
    """A way to obtain the log-probabilities of tokens of a text."""

    name: str

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        """Return the scores of `ids[first:]`, each given all tokens before it; that of index 0 is None.

        Raises AnswerError, RefusedError (no such endpoint) or ServerError.
        """

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        """Return up to `n` greedily generated tokens with their log-probabilities. Raises what `score` raises."""


class LabelForm(typing.Protocol):
    """A way to obtain the log-probabilities of given tokens after a text."""

    name: str

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        """Return the scores of `labels` as the next token; a logprob of None: not among the returned tokens."""


def finite(value, form: str) -> float:
    """Return a log-probability in nats. Raises AnswerError if it is not a finite number of at most 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
        raise AnswerError(Check.BOUNDARY, f"{form}: expected a log-probability, got {value!r:.80}")
    if value > _ROUNDING or value < _LEAST:
        raise AnswerError(Check.BOUNDARY, f"{form}: {value!r:.40} is not a log-probability of a token")
    return min(float(value), 0.0)


def listed(pairs: Iterable[tuple], form: str) -> dict:
    """Return {token: log-probability in nats} of the (token, value) pairs of one list, checked by `finite`.

    Raises AnswerError if the probabilities of different tokens sum to more than 1: the values are not natural
    logarithms, or divided by a temperature. Tokens that have the same name are None, because they are ambiguous.
    """
    values: dict = {}
    for token, value in pairs:
        if not isinstance(token, Hashable):
            raise AnswerError(Check.BOUNDARY, f"{form}: expected a token, got {token!r:.80}")
        values.setdefault(token, []).append(finite(value, form))
    total = sum(math.exp(value) for same in values.values() for value in set(same))  # a token may be repeated
    if total > 1 + _SUM_TOLERANCE:
        cause = "so the values are not natural logarithms, or scaled"
        raise ValueLieError(Check.PENALTIES, f"{form}: the listed probabilities sum to {total:.2f}, {cause}")
    return {token: same[0] if len(same) == 1 else None for token, same in values.items()}


def read(content, *keys):
    """Return `content[key]…`; None if a key is absent or a level is of another type."""
    for key in keys:
        try:
            content = content[key]
        except (LookupError, TypeError):
            return None
    return content


def elements(value) -> list:
    """Return a list as it is, and an empty one for any other value."""
    return value if isinstance(value, list) else []


def by_id(pairs: Iterable[tuple], form: str) -> dict[int, float]:
    """Return {token ID: log-probability} as `listed`. Raises AnswerError without IDs, or if one has two values."""
    values = listed(pairs, form)
    if not values or None in values.values() or any(type(token) is not int for token in values):
        raise AnswerError(Check.LETTERS, f"{form}: the response contains no token IDs")
    return values


def all_labels(pairs: Iterable[tuple], labels: list[int], form: str, best: float | None = None) -> list[TokenScore]:
    """Return the scores of labels in a list by `by_id`; `best`: of the most probable token, if it is not in the list.

    Raises AnswerError if a label is not in the list.
    """
    values = by_id(pairs, form)
    if not set(labels) <= values.keys():
        raise AnswerError(Check.LETTERS, f"{form}: the response lacks some of the requested tokens")
    return [TokenScore(label, values[label], max(values.values()) if best is None else best) for label in labels]


def count(content, *keys: str) -> int | None:
    """Return a number of tokens that a server reports; None if it reports none. Raises AnswerError if it is none."""
    value = read(content, *keys)
    if type(value) is float and value.is_integer():
        value = int(value)
    if value is not None and not (type(value) is int and 0 <= value <= _MOST_TOKENS):
        raise AnswerError(None, f"expected a number of tokens as {keys[-1]}, got {value!r:.40}")
    return value


def text_of(value, name: str) -> str:
    """Return a text that a server sends. Raises AnswerError if it is none, or contains a lone surrogate."""
    if not isinstance(value, str):
        raise AnswerError(None, f"the response contains no {name}" if value is None else _unexpected(name, value))
    if _SURROGATE.search(value):
        raise AnswerError(None, f"the {name} contains a lone surrogate, which is no character")
    return value


def _unexpected(name: str, value) -> str:
    return f"expected a {name}, got {value!r:.80}"


def only(values, name: str):
    """Return the element of a list of one. Raises AnswerError if it is no such list."""
    if not isinstance(values, list) or len(values) != 1:
        got = f"{len(values)}" if isinstance(values, list) else f"{values!r:.40}"
        raise AnswerError(None, f"the response contains no text: expected one of {name}, got {got}")
    return values[0]


def one_line(text: str) -> str:
    """Return a server's text on one line that can be stored and printed."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))


def file_name(path) -> str | None:
    """Return the name of a file, whose directories are nobody's business; other names are unchanged."""
    return os.path.basename(path) if isinstance(path, str) and path.startswith(("/", "~")) else path


class Stated:
    """What the answers of each endpoint state about the server: the model, and the system fingerprint.

    `expected`: what the probe recorded, {path: {"models": […], "system_fingerprints": […]}}; None: nothing yet.
    """

    _MOST = 50  # different values that are kept

    def __init__(self, source: str, expected: dict | None = None):
        self.source, self.expected = source, expected
        self.seen: dict[str, dict[str, list[str]]] = {}
        self._current = threading.local()
        self._lock = threading.Lock()

    def check(self, path: str, content: dict) -> None:
        """Record what an answer states; another system fingerprint is a flag. Raises ServerError for another model."""
        stated = {name: content.get(name) for name in ("model", "system_fingerprint")}
        shown = (v if v is None else one_line(file_name(text_of(v, name)))[:200] for name, v in stated.items())
        model, build = shown
        with self._lock:
            seen = self.seen.setdefault(path, {"models": [], "system_fingerprints": []})
            for values, value in ((seen["models"], model), (seen["system_fingerprints"], build)):
                if value is not None and value not in values and len(values) < self._MOST:
                    values.append(value)
            expected = seen if self.expected is None else self.expected.get(path, {})
        models, builds = expected.get("models"), expected.get("system_fingerprints")
        if model is not None and models and model != models[0]:
            raise ServerError(f'{self.source}: the server answers as the model "{model}" instead of "{models[0]}".')
        if self.expected is not None and build is not None and builds and build not in builds:
            self.flag(f"system fingerprint: {_one_word(build)} instead of {', '.join(map(_one_word, builds))}")

    def flag(self, text: str) -> None:
        """Add a flag to the current call, if there is one."""
        getattr(self._current, "flags", set()).add(text)

    @contextlib.contextmanager
    def flags(self) -> Iterator[set[str]]:
        """Collect the flags of the answers that this thread receives."""
        self._current.flags = set()
        yield self._current.flags

    def summary(self) -> dict[str, list[str]]:
        """Return all that was stated, over all endpoints."""
        names, seen = ("models", "system_fingerprints"), self.seen.values()
        return {name: sorted({value for each in seen for value in each[name]}) for name in names}


def _one_word(text: str) -> str:
    """Return a name as it can be part of a flag."""
    return re.sub(r"[^\w.:/+-]+", "_", text)[:60].replace(":", "_")


def ask(client, path: str, body: dict, *, root: bool = False) -> dict:
    """Return the answer to a POST request for tokens; see `Client.post` and `Stated.check`."""
    content = client.post(path, body, root=root)
    if not isinstance(content, dict):
        raise AnswerError(None, _unexpected("JSON object", content))
    client.stated.check(path, content)
    return content


def compare_length(ids, read_tokens: int | None, cached: int | None = None) -> None:
    """Raise LengthError if the server read another number of tokens than was sent; some leave the cached ones out."""
    if read_tokens is not None and len(ids) not in (read_tokens, read_tokens + (cached or 0)):
        raise LengthError(f"of a prompt of {format_count(len(ids), 'token')}, the server read {read_tokens}")
