"""Generate requests as token IDs, and generated IDs as rows: prompt length, number of new tokens, stop strings."""

import math
from dataclasses import dataclass, replace

import pyarrow as pa

from vernacular.core.errors import ModelError, format_count
from vernacular.inference.model.batch_tokenization import encode_all
from vernacular.inference.model.rendering import dropped_flag, fit_to_length, render, uses_chat
from vernacular.inference.model.tokenization import AlignmentError, Encoded, TextModel, encode, prompt_ids
from vernacular.inference.schema import iter_rows
from vernacular.types import Request, skipped_reason

MARGIN = 4  # tokens in addition to the longest expected output: the model may tokenize it differently
DEFAULT_NEW_TOKENS = 64  # for requests with neither max_new_tokens nor longest_target
GREEDY = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": None, "seed": None}


@dataclass(frozen=True)
class PreparedPrompt:
    """One distinct request, ready for the model; `error` is the reason why it cannot be run."""

    request_id: str
    ids: list[int]
    rendered: str | None  # the text sent, if a chat template was applied
    max_new_tokens: int
    stops: list[str]
    decoding: dict  # temperature (0 = greedy), top_k, top_p, repetition_penalty, seed
    n_dropped_examples: int = 0  # number of few-shot examples dropped for length
    n_dropped_tokens: int = 0  # at the beginning, of a prompt without separate examples
    error: str | None = None

    @property
    def flag(self) -> str | None:
        if self.error:
            return f"error: {self.error}"
        if self.n_dropped_tokens:
            return f"truncated: {format_count(self.n_dropped_tokens, 'token')} dropped"
        return dropped_flag(self.n_dropped_examples)


def prepare_prompts(loaded: TextModel, requests: pa.Table) -> dict[str, PreparedPrompt]:
    """Return the prompt of each distinct generate request, by request ID; equal tokens share one int object.

    Each prompt equals that of `prepare_prompt`; shared texts are tokenized once.
    """
    rows: dict[str, tuple[int, _Unfitted]] = {}
    for index, row in enumerate(iter_rows(requests)):
        if row["kind"] == "generate" and row["request_id"] not in rows:
            rows[row["request_id"]] = index, _begin(loaded, row)
    prompts: dict[str, PreparedPrompt] = dict.fromkeys(rows)
    interned: dict[int, int] = {}
    for is_rendered in (False, True):
        entries = [entry for entry in rows.values() if (entry[1].prompt.rendered is not None) == is_rendered]
        texts = [unfitted.text for _, unfitted in entries]
        options = {"add_special_tokens": not is_rendered, "needs_offsets": False}
        for number, encoded in encode_all(loaded, texts, **options):
            index, unfitted = entries[number]
            prompt, fits = _fit(loaded, unfitted, encoded)
            if not fits:
                prompt = prepare_prompt(loaded, requests.slice(index, 1).to_pylist()[0])  # drops few-shot examples
            ids = list(map(interned.setdefault, prompt.ids, prompt.ids))
            prompts[prompt.request_id] = replace(prompt, ids=ids)
    return prompts


def prepare_prompt(loaded: TextModel, row: Request) -> PreparedPrompt:
    """Build the prompt of a generate request.

    If the prompt leaves too little room for the new tokens, few-shot examples are dropped, first ones first. The
    remaining text is truncated only if the request's `extras` contain "truncate_left"; otherwise, if it does not fit
    without examples, the prompt has an error and no tokens.
    """

    def attempt(row: Request) -> tuple[PreparedPrompt, bool]:
        unfitted = _begin(loaded, row)
        add_special_tokens = unfitted.prompt.rendered is None
        try:
            encoded = encode(loaded, unfitted.text, add_special_tokens=add_special_tokens, needs_offsets=False)
        except AlignmentError as error:
            encoded = error
        return _fit(loaded, unfitted, encoded)

    prompt, n_dropped = fit_to_length(row, attempt)
    return prompt if prompt.error else replace(prompt, n_dropped_examples=n_dropped)


@dataclass(frozen=True)
class _Unfitted:
    """A prompt without tokens, and its text."""

    prompt: PreparedPrompt
    text: str
    is_truncatable: bool


def _begin(loaded: TextModel, row: Request) -> _Unfitted:
    chat = uses_chat(loaded, row["messages"], row["kind"])
    text = render(loaded, row["messages"]) if chat else row["prefix"] + row["text"]
    prompt = PreparedPrompt(
        request_id=row["request_id"],
        ids=[],
        rendered=text if chat else None,
        max_new_tokens=resolve_max_new_tokens(loaded, row),
        stops=list(row["stop"] or []),
        decoding=GREEDY | {k: v for k, v in (row["decoding"] or {}).items() if v is not None},
    )
    return _Unfitted(prompt, text, is_truncatable="truncate_left" in (row["extras"] or ()))


def _fit(loaded: TextModel, unfitted: _Unfitted, encoded: Encoded | AlignmentError) -> tuple[PreparedPrompt, bool]:
    """Return (the prompt with its tokens, or with an error; whether it fits the model's context length)."""
    prompt = unfitted.prompt
    if isinstance(encoded, AlignmentError):
        error = f"the tokenizer provides no offsets, and {encoded}"
        return replace(prompt, rendered=None, error=error), True
    ids = prompt_ids(loaded, encoded, templated=prompt.rendered is not None)
    if not ids:
        return replace(prompt, rendered=None, error="the prompt is empty"), True
    if max(ids) >= loaded.n_embeddings:
        return replace(prompt, rendered=None, error="a token is outside the model's vocabulary"), True
    max_length = math.inf if loaded.max_length is None else loaded.max_length
    if len(ids) + prompt.max_new_tokens <= max_length:
        return replace(prompt, ids=ids), True
    n_new = prompt.max_new_tokens
    if unfitted.is_truncatable and 0 < n_new < max_length:  # as lm-eval
        n_dropped = len(ids) + n_new - int(max_length)
        return replace(prompt, ids=ids[n_dropped:], n_dropped_tokens=n_dropped), True
    error = f"expected at most {max_length} tokens, got {len(ids)} of the prompt and {n_new} to generate"
    return replace(prompt, rendered=None, error=error), False


def resolve_max_new_tokens(loaded: TextModel, row: dict) -> int:
    """Return the number of tokens to generate: the request's own, else the longest expected output's plus MARGIN."""
    if row["max_new_tokens"] is not None:
        return row["max_new_tokens"]
    if row["longest_target"] is None:
        return DEFAULT_NEW_TOKENS
    target_ids = loaded.tokenizer(row["longest_target"], add_special_tokens=False, verbose=False)["input_ids"]
    return len(target_ids) + MARGIN


def check_can_generate(loaded: TextModel) -> None:
    """Raise ModelError if the model is a masked language model."""
    if loaded.kind != "causal":
        raise ModelError(f"model {loaded.record.name} is a masked language model, which cannot generate text.")


_CONTEXT = 8  # prompt tokens decoded with the new ones, so that the space before the first new word is retained


def decode_continuation(tokenizer, prompt_ids: list[int], new_ids: list[int]) -> str:
    """Return the text that `new_ids` add after `prompt_ids`, without special tokens.

    SentencePiece decoders strip the space before the first word of a text, which in a continuation is part of the text.
    The result is therefore the difference of two decodings, with and without the new tokens.
    """
    context_ids = prompt_ids[-_CONTEXT:]
    context = _decode(tokenizer, context_ids)
    full_text = _decode(tokenizer, context_ids + new_ids)
    return full_text[len(context) :] if full_text.startswith(context) else _decode(tokenizer, new_ids)


def find_stop(raw_output: str, stops: list[str], *, skip_leading_space: bool) -> int | None:
    """Return the index of the first stop string in `raw_output`, or None; `skip_leading_space` skips whitespace.

    A chat model may begin its turn with an empty line, which must not end the output.

    >>> find_stop("a mazá\\nPregunta", ["\\n"], skip_leading_space=False)
    6
    >>> find_stop("\\n\\na mazá\\n", ["\\n"], skip_leading_space=True)
    8
    """
    start = len(raw_output) - len(raw_output.lstrip()) if skip_leading_space else 0
    indices = [raw_output.find(stop, start) for stop in stops if stop]
    return min((index for index in indices if index >= 0), default=None)


def truncate_output(raw_output: str, stops: list[str], *, skip_leading_space: bool) -> str:
    """Return `raw_output` up to its first stop string, without surrounding whitespace."""
    return raw_output[: find_stop(raw_output, stops, skip_leading_space=skip_leading_space)].strip()


def _decode(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def output_row(row: dict, prompts: dict[str, PreparedPrompt], outcomes: dict[str, dict]) -> dict:
    """Return the GENERATIONS row of a request; `prompts` and `outcomes` (of the engine) are by request ID."""
    ids = {"request_id": row["request_id"], "item_id": row["item_id"], "role": row["role"]}
    prompt = prompts.get(row["request_id"])
    if prompt is None:
        return ids | {"flags": f"error: {skipped_reason(row['role'])}"}
    outcome = outcomes.get(row["request_id"], {"error": None})
    flags = [prompt.flag, f"error: {outcome['error']}" if outcome["error"] else None]
    return ids | {
        **{name: outcome.get(name) for name in ("raw_output", "output", "finish_reason", "n_tokens")},
        "n_prompt_tokens": len(prompt.ids) or None,
        "rendered": prompt.rendered,
        "flags": "; ".join(flag for flag in flags if flag) or None,
    }
