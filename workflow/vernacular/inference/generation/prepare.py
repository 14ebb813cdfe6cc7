"""Generate requests as token IDs, and generated IDs as rows: prompt length, number of new tokens, stop strings."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from vernacular.checkpoints.files import read_json
from vernacular.core.errors import ModelError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.core.model_record import ModelRecord
from vernacular.inference.generation import reasoning
from vernacular.inference.model import rendering
from vernacular.inference.model.batch_tokenization import encode_all
from vernacular.inference.model.tokenization import (
    AlignmentError,
    Encoded,
    Rendered,
    TextModel,
    control_token_flag,
    decode_continuation,
    encode,
    prompt_ids,
)
from vernacular.inference.schema import iter_rows
from vernacular.protocols.schema import REASONING_BUDGET
from vernacular.types import Request, skipped_reason

NEXT_TURN = "another turn: the response contains the header of one"  # flag
MARGIN = 4  # tokens in addition to the longest expected output: the model may tokenize it differently
DEFAULT_NEW_TOKENS = 64  # for requests with neither max_new_tokens nor longest_target


@dataclass(frozen=True)
class PreparedPrompt:
    """One distinct request, ready for the model; `error` is the reason why it cannot be run."""

    request_id: str
    ids: list[int]
    rendered: str | None  # the text sent, if a chat template was applied
    max_new_tokens: int  # of reasoning and answer
    stops: list[str]
    decoding: dict  # temperature (0 = greedy), top_k, top_p, min_p, repetition_penalty, seed
    opened: bool = False  # whether its end opens reasoning
    think_tokens: int = 0  # the part of max_new_tokens that is for reasoning; 0: none is asked for
    wanted_tokens: int = 0  # the same if the context were long enough
    n_dropped_examples: int = 0  # number of few-shot examples dropped for length
    n_dropped_tokens: int = 0  # at the beginning, of a prompt without separate examples
    note: str | None = None  # flag of how it was rendered
    adds_special_tokens: bool = True  # whether the tokenizer adds some to the text
    start: tuple[int, ...] = ()  # of an encoder-decoder, whose decoder continues this; its encoder reads `ids`
    error: str | None = None

    @property
    def continued(self) -> list[int]:
        """The tokens that are continued."""
        return list(self.start) or self.ids

    @property
    def answer_tokens(self) -> int:
        """The largest number of tokens of the answer."""
        return self.max_new_tokens - self.think_tokens

    def seed(self, digits: int) -> int:
        """Return the seed of its samples, of hexadecimal `digits`; each request has its own, also without one."""
        return int(fingerprint([self.decoding["seed"], self.request_id])[:digits], 16)

    @property
    def flag(self) -> str | None:
        if self.error:
            return f"error: {self.error}"
        dropped = rendering.dropped_flag(self.n_dropped_examples)
        if self.n_dropped_tokens:
            dropped = f"truncated: {format_count(self.n_dropped_tokens, 'token')} dropped"
        return "; ".join(filter(None, (self.note, dropped))) or None


def prepare_prompts(loaded: TextModel, requests: pa.Table) -> dict[str, PreparedPrompt]:
    """Return what `prepare_prompt` does of each distinct request, by ID; shared texts are tokenized once."""
    rows: dict[str, tuple[int, PreparedPrompt, str, bool]] = {}
    for index, row in enumerate(iter_rows(requests)):
        if row["kind"] == "generate" and row["request_id"] not in rows:
            rows[row["request_id"]] = index, *_begin(loaded, row)
    prompts: dict[str, PreparedPrompt] = dict.fromkeys(rows)
    interned: dict[int, int] = {}
    for is_added in (True, False):
        entries = [entry for entry in rows.values() if entry[1].adds_special_tokens == is_added]
        texts = [text for _, _, text, _ in entries]
        options = {"add_special_tokens": is_added, "needs_offsets": False}
        for number, encoded in encode_all(loaded, texts, **options):
            index, prompt, _, is_truncatable = entries[number]
            prompt, fits = _fit(loaded, prompt, encoded, is_truncatable)
            if not fits:
                prompt = prepare_prompt(loaded, requests.slice(index, 1).to_pylist()[0])  # drops few-shot examples
            ids = list(map(interned.setdefault, prompt.ids, prompt.ids))
            prompts[prompt.request_id] = replace(prompt, ids=ids)
    return prompts


def prepare_prompt(loaded: TextModel, row: Request) -> PreparedPrompt:
    """Build the prompt of a generate request; an error in place of the tokens if it does not fit.

    For room for the new tokens, few-shot examples are dropped, first ones first; the remaining text is truncated only
    if the request's `extras` contain "truncate_left".
    """

    def attempt(row: Request) -> tuple[PreparedPrompt, bool]:
        prompt, text, is_truncatable = _begin(loaded, row)
        try:
            encoded = encode(loaded, text, add_special_tokens=prompt.adds_special_tokens, needs_offsets=False)
        except AlignmentError as error:
            encoded = error
        return _fit(loaded, prompt, encoded, is_truncatable)

    prompt, n_dropped = rendering.fit_to_length(row, attempt)
    return prompt if prompt.error else replace(prompt, n_dropped_examples=n_dropped)


def _begin(loaded: TextModel, row: Request) -> tuple[PreparedPrompt, str, bool]:
    """Return (a prompt without tokens, its text, whether it may be truncated)."""
    chat = rendering.uses_chat(loaded, row["messages"], row["kind"], row["extras"])
    text, note = rendering.render_row(loaded, row) if chat else (row["prefix"] + row["text"], None)
    texts = rendering.own_texts(row, chat=chat)
    begins_turn = chat and not rendering.is_continued(row["messages"])
    decoding = decoding_of(loaded, row, is_chat=chat)
    prompt = PreparedPrompt(
        request_id=row["request_id"],
        ids=[],
        rendered=text if chat else None,
        max_new_tokens=decoding.max_new_tokens or max_new_tokens(loaded, row),
        stops=list(row["stop"] or []) + ([ending.stop] if chat and (ending := ending_of(loaded)).stop else []),
        decoding=decoding.values,
        opened=begins_turn and reasoning.opens_reasoning(loaded, text, row["messages"]),
        note="; ".join(filter(None, (note, control_token_flag(loaded, texts)))) or None,
        adds_special_tokens=rendering.adds_special_tokens(loaded, row, text if chat else None),
        wanted_tokens=decoding.think_tokens,
    )
    if chat:
        text = Rendered.of(loaded.tokenizer, text, texts)
    return prompt, text, "truncate_left" in (row["extras"] or ())


def _fit(
    loaded: TextModel, prompt: PreparedPrompt, encoded: Encoded | AlignmentError, is_truncatable: bool
) -> tuple[PreparedPrompt, bool]:
    """Return (the prompt with its tokens, or with an error; whether it fits the model's context length)."""
    if isinstance(encoded, AlignmentError):
        error = f"the tokenizer provides no offsets, and {encoded}"
        return replace(prompt, rendered=None, error=error), True
    ids = prompt_ids(loaded, encoded, templated=prompt.rendered is not None)
    if not ids:
        return replace(prompt, rendered=None, error="the prompt is empty"), True
    if max(ids) >= loaded.n_embeddings:
        return replace(prompt, rendered=None, error="a token is outside the model's vocabulary"), True
    max_length = math.inf if loaded.max_length is None else loaded.max_length
    n_new = prompt.max_new_tokens
    n_read, counted = len(ids) + n_new, f"{len(ids)} of the prompt and {n_new} to generate"
    if loaded.start_ids:  # encoder and decoder have limits of their own; as in `generate`, what is forced counts
        ids, n_new = encoded.ids.tolist(), n_new - len(loaded.start_ids) + 1 - loaded.forces_end
        n_read, counted = len(ids), f"{len(ids)} of the prompt"
        prompt = replace(prompt, start=loaded.start_ids, max_new_tokens=n_new)
        if (n := len(loaded.start_ids) + n_new - 1) > (loaded.target_length or math.inf):
            error = f"expected at most {loaded.target_length} tokens to generate, got {n}"
            return replace(prompt, rendered=None, error=error), True
    room = max_length - n_read
    if room >= min(1, prompt.wanted_tokens):
        n_reasoning = min(prompt.wanted_tokens, room)
        return replace(prompt, ids=ids, think_tokens=n_reasoning, max_new_tokens=n_new + n_reasoning), True
    if is_truncatable and 0 < n_new < max_length:  # as lm-eval
        n_dropped = n_read - int(max_length)
        return replace(prompt, ids=ids[n_dropped:], n_dropped_tokens=n_dropped), True
    error = f"expected at most {max_length} tokens, got {counted}"
    return replace(prompt, rendered=None, error=error), False


def max_new_tokens(loaded: TextModel, row: dict) -> int:
    """Return the number of tokens to generate: the request's own, else the longest expected output's plus MARGIN."""
    target = row["longest_target"]
    if row["max_new_tokens"] is not None:
        return row["max_new_tokens"]
    if target is None:
        return DEFAULT_NEW_TOKENS
    if loaded.tokenizer is None:  # at most a token per byte
        return len(target.encode("utf-8", "surrogatepass")) + MARGIN
    return len(loaded.tokenizer(target, add_special_tokens=False, verbose=False)["input_ids"]) + MARGIN


GREEDY = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": None, "seed": None, "min_p": None}
_CARD = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


@dataclass(frozen=True)
class Decoding:
    """How a prompt is continued."""

    values: dict  # GREEDY's
    max_new_tokens: int | None  # of the answer; None: as the request says
    think_tokens: int  # of reasoning; 0: the prompt asks for none, or for any that fits within the answer's


def decoding_of(loaded: TextModel, row: dict, *, is_chat: bool) -> Decoding:
    """Return the decoding of a request: of its evaluation, else of its model if it is rendered, else of its task."""
    task = {name: value for name, value in (row["decoding"] or {}).items() if value is not None}
    evaluation = {name: value for name, value in (row.get("gen_kwargs") or {}).items() if value is not None}
    asks, model = is_chat and not rendering.is_continued(row["messages"]) and reasoning.thinks(loaded), {}
    if is_chat:
        setting = loaded.record.gen_kwargs or {}
        is_card, setting = setting == "recommended", {} if setting == "recommended" else setting
        is_open = asks and not {"temperature", "do_sample"} & {*task, *setting, *evaluation}
        model = (recommended(loaded, required=is_card) if is_card or is_open else {}) | setting
    if "temperature" in evaluation:
        model = {name: value for name, value in model.items() if name != "do_sample"}
    kwargs = model | evaluation
    values = {name: kwargs[name] for name in (*_CARD, "seed") if name in kwargs}
    if kwargs.get("do_sample") is False:
        values["temperature"] = 0.0
    elif kwargs.get("do_sample") and not values.get("temperature", task.get("temperature")):
        values["temperature"] = 1.0
    limits = [name for name in ("top_p", "top_k", "min_p") if name in kwargs]
    if limits and not {"temperature", "do_sample"} & (kwargs.keys() | task.keys()):
        message = f"model {loaded.record.name}: gen_kwargs: no effect of {' and '.join(limits)} with greedy decoding"
        raise ModelError(f"{message}; set a temperature.")
    values = GREEDY | task | values
    if kwargs.get("sample") and not values["temperature"]:
        raise ModelError(
            f"model {loaded.record.name}: repeats: decoding is greedy, so that all samples are equal; set gen_kwargs "
            "with a temperature, or gen_kwargs: recommended of the model."
        )
    return Decoding(values, kwargs.get("max_gen_toks"), kwargs.get("think_max_toks", REASONING_BUDGET) if asks else 0)


def recommended(loaded: TextModel, *, required: bool) -> dict:
    """Return the decoding that a checkpoint's `generation_config.json` states; {} if none and it is not `required`."""
    path = Path(loaded.record.directory or "", "generation_config.json")
    stated = read_json(loaded.record.name, path) if loaded.record.directory and path.exists() else {}
    stated = stated if isinstance(stated, dict) else {}
    values = {name: stated[name] for name in _CARD if stated.get(name) is not None}
    is_sampled = stated.get("do_sample", bool(values)) is True
    if required and not is_sampled:
        message = f"model {loaded.record.name}: gen_kwargs: recommended: {path} states no sampling"
        raise ModelError(f"{message}; set the values of the model's card, such as {{temperature: 0.6, top_p: 0.95}}.")
    return {"do_sample": True, **values} if is_sampled else {}


def check_rendering(record: ModelRecord) -> None:
    """Raise ModelError if a setting of rendered prompts is invalid or without effect, before the model is loaded."""
    if record.rendering and record.directory:
        loaded = rendering.open_template(record)
        rendering.check_settings(loaded)
        reasoning.markers_of(loaded)
        if record.gen_kwargs == "recommended":
            recommended(loaded, required=True)


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


def reader_of(loaded: TextModel, prompt: PreparedPrompt) -> reasoning.Reader | None:
    """Return what follows the response to a prompt; None if it contains no reasoning, because it is plain text."""
    if prompt.rendered is None or reasoning.markers_of(loaded) is None:
        return None
    return reasoning.Reader(loaded, prompt.continued, opened=prompt.opened, asks=prompt.think_tokens > 0)


def outcome_of(loaded: TextModel, prompt: PreparedPrompt, ids: list[int], finish_reason: str) -> dict:
    """Return the outcome of a prompt after which an engine generated `ids`, without an end token; see `output_row`."""
    reader = reader_of(loaded, prompt)
    if reader is None:
        raw_output, n_tokens, parts = decode_continuation(loaded.tokenizer, prompt.continued, ids), len(ids), {}
    else:
        limit = prompt.answer_tokens if prompt.think_tokens else None
        split = reader.split(ids, budget=prompt.think_tokens, limit=limit)
        raw_output, n_tokens, parts = split.answer, split.n_answer, split.outcome()
        if split.state == reasoning.UNCLOSED and len(ids) >= (prompt.think_tokens or prompt.max_new_tokens):
            finish_reason = "length"
    if find_stop(raw_output, prompt.stops, skip_leading_space=prompt.rendered is not None) is not None:
        finish_reason = "stop"
    elif prompt.think_tokens and n_tokens >= prompt.answer_tokens:
        finish_reason = "length"
    output = truncate_output(raw_output, prompt.stops, skip_leading_space=prompt.rendered is not None)
    outcome = {"raw_output": raw_output, "output": output, "finish_reason": finish_reason, "n_tokens": n_tokens}
    return outcome | parts | {"error": None, "next_turn": has_next_turn(loaded, prompt, raw_output, ids)}


def ending_of(loaded: TextModel) -> rendering.TurnEnd:
    """Return how a model's template ends a turn, except by what also ends its reasoning (gpt-oss), which continues."""
    ending, markers = rendering.turn_end(loaded), None
    if ending.end_id is not None:
        markers = reasoning.markers_of(loaded)
    ends = {reasoning.id_of(loaded, text) for text in markers.texts} if markers else set()
    return rendering.TurnEnd() if ending.end_id in ends else ending


def has_next_turn(loaded: TextModel, prompt: PreparedPrompt, raw_output: str, ids: Iterable[int] = ()) -> bool:
    """Return whether a response, up to its first stop string, contains the header of another turn."""
    if prompt.rendered is None:
        return False
    ending = ending_of(loaded)
    end = find_stop(raw_output, prompt.stops, skip_leading_space=True)
    if ending.headers and ending.headers.search(raw_output[:end]):
        return True
    return end is None and not ending.header_ids.isdisjoint(ids)


_OUTCOME = ("raw_output", "output", "finish_reason", "n_tokens", "reasoning", "think_state", "n_reasoning_tokens")


def output_row(row: dict, prompts: dict[str, PreparedPrompt], outcomes: dict[str, dict]) -> dict:
    """Return the GENERATIONS row of a request; `prompts` and `outcomes` (of the engine) are by request ID."""
    ids = {"request_id": row["request_id"], "item_id": row["item_id"], "role": row["role"]}
    prompt = prompts.get(row["request_id"])
    if prompt is None:
        return ids | {"flags": f"error: {skipped_reason(row['role'])}"}
    outcome = outcomes.get(row["request_id"], {"error": None})
    flags = [prompt.flag, f"error: {outcome['error']}" if outcome["error"] else None]
    flags.append(reasoning.UNCLOSED_FLAG if outcome.get("think_state") == reasoning.UNCLOSED else None)
    flags.append(NEXT_TURN if outcome.get("next_turn") else None)
    return ids | {
        **{name: outcome.get(name) for name in _OUTCOME},
        "think_budget": prompt.think_tokens or None,
        "n_prompt_tokens": len(prompt.ids) or None,
        "rendered": prompt.rendered,
        "flags": "; ".join(flag for flag in flags if flag) or None,
    }
