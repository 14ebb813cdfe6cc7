"""Checks of prompts and texts: what a server reads and generates. Each raises AnswerError, or returns what it saw."""

import itertools
import math

from vernacular.core.errors import format_count
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.server.checks import PROMPT, TEXTS, ids_of, values_of
from vernacular.inference.server.client import Client, RefusedError
from vernacular.inference.server.completions import Completions, count_tokens
from vernacular.inference.server.forms import IDS, LENGTH, STOP, TOKENIZER, AnswerError, LengthError, SpanForm, read

_TOKENIZED = ("Avión, año, pingüíno.", "დედაქალაქი", "🙂 ok", "  two spaces", "<|im_start|>user")
_LONG = 128  # tokens of a prompt that must be read completely
_JOINED = 8  # tokens that can be fewer in a text than in its halves


def check_ids(loaded: LoadedModel, completions: Completions) -> str:
    """Check that token IDs are accepted as the prompt, all of them and no others."""
    ids = ids_of(loaded, PROMPT)
    try:
        by_ids, by_text = completions.complete(ids, 1), completions.complete(PROMPT, 1)
    except LengthError as error:
        raise AnswerError(IDS, str(error)) from error
    if by_text.prompt_tokens == by_ids.prompt_tokens and by_text.text != by_ids.text:
        raise AnswerError(IDS, f"a text and its token IDs are continued as {by_text.text!r} and {by_ids.text!r}")
    added = (by_text.prompt_tokens or len(ids)) - len(ids)
    return f"{format_count(len(ids), 'ID')} read" + (f"; the server adds {added} to a text" if added else "")


def check_tokenizer(loaded: LoadedModel, client: Client, completions: Completions) -> str:
    """Check that the local tokenizer and the server's give the same token IDs, or without `/tokenize` as many."""
    for text in _TOKENIZED:
        expected = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        body = {"model": completions.model, "prompt": text, "content": text, "add_special_tokens": False}
        body |= {"add_special": False, "parse_special": True}
        try:
            tokens = read(client.post("/tokenize", body, root=True), "tokens")
        except RefusedError:
            return _check_token_counts(loaded, completions)
        if tokens != expected:
            raise AnswerError(
                TOKENIZER, f"the server's tokenizer gives other token IDs than the local one for {text!r}"
            )
    return f"equal token IDs of {format_count(len(_TOKENIZED), 'text')}"


def _check_token_counts(loaded: LoadedModel, completions: Completions) -> str:
    for text in TEXTS:
        expected, got = len(ids_of(loaded, text)), completions.complete(text, 1).prompt_tokens
        if got is None:
            return "not comparable: the server has no /tokenize and reports no number of tokens"
        if abs(got - expected) > 1:  # BOS
            raise AnswerError(TOKENIZER, f"the server counts {got} tokens in {text!r}, the local tokenizer {expected}")
    return f"equal numbers of tokens of {format_count(len(TEXTS), 'text')}"


def check_length(loaded: LoadedModel, completions: Completions, form: SpanForm | None, longest: int) -> str:
    """Check that long prompts are read completely, and that one beyond the context is refused instead of cut.

    `longest`: number of tokens of the longest prompt of the run; 0 if it is not known yet.
    """
    text, other = ids_of(loaded, TEXTS[0]), ids_of(loaded, TEXTS[1])
    limit = (loaded.max_length or math.inf) - 8
    size = min(_LONG, limit)
    if form is not None:  # prompts to continue are counted one by one
        _check_whole(completions, form, text, other, size)
    if longest > size or form is None:
        size = min(longest, limit)
        try:
            _check_whole(completions, form, text, other, size)
        except RefusedError as error:  # as the request itself will be
            return f"{size} tokens, as in the longest request, refused (HTTP {error.status})"
    if loaded.max_length is None:
        return f"{size} tokens read; the length of the context is unknown"
    size = loaded.max_length + 1
    try:
        completions.complete(_repeat(text, size), 1)
    except RefusedError as error:
        return f"{size} tokens refused (HTTP {error.status})"
    return f"{size} tokens accepted"


def _repeat(ids: list[int], size: int) -> list[int]:
    return list(itertools.islice(itertools.cycle(ids), size))


def _check_whole(completions: Completions, form: SpanForm | None, text: list, other: list, size: int) -> None:
    """Raise AnswerError if the server does not count all tokens of a prompt, or if its beginning has no effect."""
    ids = _repeat(text, size)
    completions.complete(ids, 1)
    if form is not None:
        changed = max(4, size // 16)
        prompts = ids, [*_repeat(other[1:], changed), *ids[changed:]]
        if len({tuple(values_of(form.score(prompt, size - 8))) for prompt in prompts}) == 1:
            raise AnswerError(LENGTH, f"{form.name}: the beginning of a prompt of {size} tokens has no effect")


def check_text_length(complete, message, text: str) -> str:
    """Check that a text is read completely: as many tokens as its two halves, whatever the tokenizer.

    `message(text)` is the prompt with a text: the text itself, or chat messages.
    """

    def count(part: str) -> int | None:
        return complete(message(part), 1).prompt_tokens

    middle = max(text.rfind(" ", 0, len(text) // 2), 0) or len(text) // 2
    try:
        whole = count(text)
        parts = [count(part) for part in (text[:middle], text[middle:], TEXTS[0], f"{TEXTS[0]} {TEXTS[0]}")]
    except RefusedError as error:  # as the request itself may be
        return f"the longest request, or a part of it, refused (HTTP {error.status})"
    if None in (whole, *parts):
        return "not comparable: the server does not report the number of tokens"
    expected = parts[0] + parts[1] - (2 * parts[2] - parts[3])  # without the tokens around a text, counted twice
    if whole < expected - _JOINED:
        raise AnswerError(LENGTH, f"of a prompt of about {format_count(expected, 'token')}, the server read {whole}")
    return f"{whole} tokens read, {expected} in its halves"


def learn_offset(tokenizer, complete, message) -> int | None:
    """Return the number of tokens that a server counts in addition to those of a text; None if it is not constant."""
    try:
        counts = [(complete(message(text), 1).prompt_tokens, count_tokens(tokenizer, text)) for text in TEXTS]
    except RefusedError:  # of one of the texts, by a filter
        return None
    offsets = [read_tokens - sent for read_tokens, sent in counts if read_tokens is not None]
    constant = len(offsets) == len(TEXTS) and max(offsets) - min(offsets) <= 2
    return min(offsets) if constant else None


def check_generation(complete, prompt: str | list, *, stops: bool) -> str:
    """Check that greedy texts are equal, and if `stops`, that a stop string ends one.

    `complete(prompt, n, **fields)` generates. Chats are generated without stop strings, which some servers refuse.
    """
    first, second = (complete(prompt, 12).text for _ in range(2))
    stop = next((word for word in first.split(" ")[1:] if word.strip()), None)
    if stops and stop is not None:
        stopped = complete(prompt, 12, stop=[stop]).text
        if (stop in stopped and not stopped.endswith(stop)) or not first.startswith(
            stopped.removesuffix(stop).rstrip()
        ):
            raise AnswerError(STOP, f"the stop string {stop!r} did not end the text")
    sampled = [complete(prompt, 12, temperature=1.0, seed=7).text for _ in range(2)]
    notes = ["greedy texts repeat" if first == second else "greedy texts differ"]
    return ", ".join([*notes, "the seed repeats" if sampled[0] == sampled[1] else "the seed is ignored"])
