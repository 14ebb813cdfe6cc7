"""The forms in which servers return log-probabilities: what they have in common.

A form is one way to ask. Each checks the structure of every response: the IDs that were scored are read back, and
exactly the expected number of finite values is present. A violation is an AnswerError, which names the check of the
probe that it fails.
"""

import math
from dataclasses import dataclass
from typing import Protocol

# Every sampling field is sent with each request: servers take missing ones from the model's generation_config.json.
STANDARD = {"temperature": 0.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1, "seed": 0}
EXTENDED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "repeat_penalty": 1.0}
EXTENDED |= {"include_stop_str_in_output": False}  # these are not in OpenAI's own API

# the probe's checks, by number
CHECKS = {
    1: "reach and name", 2: "token IDs accepted", 3: "echo", 4: "boundary", 5: "plausible", 6: "self-consistent",
    7: "repetition and cache", 8: "batch", 9: "no temperature or penalties", 10: "tokenizer", 11: "byte tokens",
    12: "labels", 13: "forcing", 14: "length", 15: "stop and seed", 16: "known answer",
}  # fmt: skip
REACH, IDS, ECHO, BOUNDARY, PLAUSIBLE, CONSISTENT, REPETITION, BATCH, PENALTIES = range(1, 10)
TOKENIZER, BYTES, LETTERS, FORCING, LENGTH, STOP, KNOWN = range(10, 17)
_LEAST = -9998.0  # servers write -9999 for minus infinity, or for "not computed"
_ROUNDING = 1e-3  # nats; a log-probability above 0 by more is none


class AnswerError(Exception):
    """Response without what was asked for; `check` is the number of the probe's check that it fails."""

    def __init__(self, check: int, text: str):
        super().__init__(text)
        self.check = check


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


class SpanForm(Protocol):
    """A way to obtain the log-probabilities of tokens of a text."""

    name: str

    def score(self, ids: list[int], first: int, **sampling) -> list[TokenScore]:
        """Return the scores of `ids[first:]`, each given all tokens before it; that of index 0 is None.

        Raises AnswerError, RefusedError (the server has no such endpoint) or ServerError.
        """

    def generated(self, ids: list[int], n: int, **sampling) -> list[TokenScore]:
        """Return up to `n` greedily generated tokens with their log-probabilities. Raises what `score` raises."""


class LabelForm(Protocol):
    """A way to obtain the log-probabilities of given tokens after a text."""

    name: str

    def label_scores(self, ids: list[int], labels: list[int]) -> list[TokenScore]:
        """Return the scores of `labels` as the next token; a logprob of None: not among the returned tokens."""


def finite(value, form: str) -> float:
    """Return a log-probability in nats. Raises AnswerError if it is not a finite number of at most 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AnswerError(BOUNDARY, f"{form}: expected a log-probability, got {value!r}")
    if value > _ROUNDING or value < _LEAST:
        raise AnswerError(BOUNDARY, f"{form}: {value} is not a log-probability of a token")
    return min(float(value), 0.0)


def read(content, *keys):
    """Return `content[key]…`; None if a key is absent or a level is of another type."""
    for key in keys:
        try:
            content = content[key]
        except (LookupError, TypeError):
            return None
    return content


def count(value) -> int:
    """Return a number of tokens that a server reports; 0 if it reports none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
