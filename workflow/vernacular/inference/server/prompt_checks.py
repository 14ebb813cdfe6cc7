"""Checks of prompts and texts: what a server reads and generates. Each raises AnswerError, or returns what it saw."""

import itertools

from vernacular.core.errors import format_count
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.server.checks import PROMPT, TEXTS, ids_of, values_of
from vernacular.inference.server.client import Client, RefusedError
from vernacular.inference.server.completions import Completions
from vernacular.inference.server.forms import IDS, LENGTH, STOP, TOKENIZER, AnswerError, SpanForm, read

_TOKENIZED = ("Avión, año, pingüíno.", "დედაქალაქი", "🙂 ok", "  two spaces", "<|im_start|>user")
_LONG = 128  # tokens of a prompt that must be read completely


def check_ids(loaded: LoadedModel, completions: Completions) -> str:
    """Check that token IDs are accepted as the prompt, all of them and no others."""
    ids = ids_of(loaded, PROMPT)
    by_ids, by_text = completions.complete(ids, 1), completions.complete(PROMPT, 1)
    if by_ids.prompt_tokens not in (None, len(ids)):
        raise AnswerError(IDS, f"{len(ids)} token IDs were sent, and the server read {by_ids.prompt_tokens} tokens")
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


def check_length(loaded: LoadedModel, completions: Completions, form: SpanForm | None) -> str:
    """Check that a long prompt is read completely, and that one beyond the context is refused instead of cut."""
    text = itertools.cycle(ids_of(loaded, TEXTS[0]))
    size = min(_LONG, (loaded.max_length or 2 * _LONG) - 8)
    ids = list(itertools.islice(text, size))
    read_tokens = completions.complete(ids, 1).prompt_tokens
    if read_tokens not in (None, size):
        raise AnswerError(LENGTH, f"of a prompt of {size} tokens, the server read {read_tokens}")
    if form is not None:
        one, other = (values_of(form.score([*head, *ids[4:]], size - 8)) for head in (ids[:4], ids[4:8]))
        if one == other:
            raise AnswerError(LENGTH, f"{form.name}: the beginning of a prompt of {size} tokens has no effect")
    if loaded.max_length is None:
        return f"{size} tokens read; the length of the context is unknown"
    size = loaded.max_length + 1
    try:
        got = completions.complete(list(itertools.islice(text, size)), 1).prompt_tokens
    except RefusedError as error:
        return f"{size} tokens refused (HTTP {error.status})"
    if got not in (None, size):
        raise AnswerError(LENGTH, f"of a prompt of {size} tokens, the server read {got} without an error")
    return f"{size} tokens accepted"


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
