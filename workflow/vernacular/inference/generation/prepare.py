"""Generate requests as token IDs, and generated IDs as rows: prompt length, number of new tokens, stop strings."""

import math
from dataclasses import dataclass, replace

import pyarrow as pa

from vernacular.core.errors import ModelError
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.rendering import dropped_flag, fit_to_length, render, uses_chat
from vernacular.inference.model.tokenization import CannotAlign, prompt_ids
from vernacular.inference.schema import iter_rows
from vernacular.types import Request, skipped_reason

MARGIN = 4  # tokens in addition to the longest expected output: the model may tokenize it differently
DEFAULT_NEW_TOKENS = 64  # for requests with neither max_new_tokens nor longest_target
GREEDY = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": None, "seed": None}


@dataclass(frozen=True)
class Prompt:
    """One distinct request, ready for the model; `error` is the reason why it cannot be run."""

    request_id: str
    ids: list[int]
    rendered: str | None  # the text sent, if a chat template was applied
    max_new_tokens: int
    stops: list[str]
    decoding: dict  # temperature (0 = greedy), top_k, top_p, repetition_penalty, seed
    left_out: int = 0  # number of few-shot examples dropped for length
    error: str | None = None

    @property
    def flag(self) -> str | None:
        if self.error:
            return f"error: {self.error}"
        return dropped_flag(self.left_out)


def prompts_of(loaded: LoadedModel, requests: pa.Table) -> dict[str, Prompt]:
    """Return the prompt of each distinct generate request, by request ID; equal tokens share one int object."""
    found: dict[str, Prompt] = {}
    one_of: dict[int, int] = {}
    for row in iter_rows(requests):
        if row["kind"] == "generate" and row["request_id"] not in found:
            prompt = prompt_of(loaded, row)
            found[prompt.request_id] = replace(prompt, ids=list(map(one_of.setdefault, prompt.ids, prompt.ids)))
    return found


def prompt_of(loaded: LoadedModel, row: Request) -> Prompt:
    """Build the prompt of a generate request.

    If the prompt leaves too little room for the new tokens, few-shot examples are dropped, first ones first. The
    remaining text is never truncated: if it does not fit without examples, the prompt has an error and no tokens.
    """
    room = math.inf if loaded.max_length is None else loaded.max_length
    new = new_tokens(loaded, row)
    chat = uses_chat(loaded, row["messages"], row["kind"])
    empty = Prompt(
        request_id=row["request_id"],
        ids=[],
        rendered=None,
        max_new_tokens=new,
        stops=list(row["stop"] or []),
        decoding=GREEDY | {k: v for k, v in (row["decoding"] or {}).items() if v is not None},
    )

    def attempt(row: Request) -> tuple[Prompt, bool]:
        text = render(loaded, row["messages"]) if chat else row["prefix"] + row["text"]
        try:
            ids = prompt_ids(loaded, text, templated=chat)
        except CannotAlign as error:
            return replace(empty, error=f"the tokenizer provides no offsets, and {error}"), True
        if not ids:
            return replace(empty, error="the prompt is empty"), True
        if max(ids) >= loaded.n_embeddings:
            return replace(empty, error="a token is outside the model's vocabulary"), True
        if len(ids) + new <= room:
            return replace(empty, ids=ids, rendered=text if chat else None), True
        too_long = f"expected at most {room} tokens, got {len(ids)} of the prompt and {new} to generate"
        return replace(empty, error=too_long), False

    prompt, n_dropped = fit_to_length(row, attempt)
    return prompt if prompt.error else replace(prompt, left_out=n_dropped)


def new_tokens(loaded: LoadedModel, row: dict) -> int:
    """Return the number of tokens to generate: the request's own, else the longest expected output's plus MARGIN."""
    if row["max_new_tokens"] is not None:
        return row["max_new_tokens"]
    if row["longest_target"] is None:
        return DEFAULT_NEW_TOKENS
    longest = loaded.tokenizer(row["longest_target"], add_special_tokens=False, verbose=False)["input_ids"]
    return len(longest) + MARGIN


def check_can_generate(loaded: LoadedModel) -> None:
    """Raise ModelError if the model is a masked language model."""
    if loaded.kind != "causal":
        raise ModelError(f"model {loaded.record['name']} is a masked language model, which cannot generate text.")


_CONTEXT = 8  # prompt tokens decoded with the new ones, so that the space before the first new word is retained


def continuation(tokenizer, prompt_ids: list[int], new_ids: list[int]) -> str:
    """Return the text that `new_ids` add after `prompt_ids`, without special tokens.

    SentencePiece decoders strip the space before the first word of a text, which in a continuation is part of the text.
    The result is therefore the difference of two decodings, with and without the new tokens.
    """
    before = prompt_ids[-_CONTEXT:]
    start = _decode(tokenizer, before)
    whole = _decode(tokenizer, before + new_ids)
    return whole[len(start) :] if whole.startswith(start) else _decode(tokenizer, new_ids)


def stop_at(raw: str, stops: list[str], *, after_blank: bool) -> int | None:
    """Return the index of the first stop string in `raw_output`, or None; `after_blank` skips leading whitespace.

    A chat model may begin its turn with an empty line, which must not end the output.

    >>> stop_at("a mazá\\nPregunta", ["\\n"], after_blank=False)
    6
    >>> stop_at("\\n\\na mazá\\n", ["\\n"], after_blank=True)
    8
    """
    start = len(raw) - len(raw.lstrip()) if after_blank else 0
    found = [raw.find(stop, start) for stop in stops if stop]
    return min((at for at in found if at >= 0), default=None)


def answer_of(raw: str, stops: list[str], *, after_blank: bool) -> str:
    """Return `raw_output` up to its first stop string, without surrounding whitespace."""
    return raw[: stop_at(raw, stops, after_blank=after_blank)].strip()


def _decode(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def row_of(row: dict, prompts: dict[str, Prompt], found: dict[str, dict]) -> dict:
    """Return the GENERATIONS row of a request; `prompts` and `found` (outputs of the engine) are by request ID."""
    same = {"request_id": row["request_id"], "item_id": row["item_id"], "role": row["role"]}
    prompt = prompts.get(row["request_id"])
    if prompt is None:
        return same | {"flags": f"error: {skipped_reason(row['role'])}"}
    outcome = found.get(row["request_id"], {"error": None})
    flags = [prompt.flag, f"error: {outcome['error']}" if outcome["error"] else None]
    return same | {
        **{name: outcome.get(name) for name in ("raw_output", "output", "finish_reason", "n_tokens")},
        "n_prompt_tokens": len(prompt.ids) or None,
        "rendered": prompt.rendered,
        "flags": "; ".join(flag for flag in flags if flag) or None,
    }
