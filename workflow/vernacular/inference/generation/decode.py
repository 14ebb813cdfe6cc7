"""Batched decoding: one token per row and step, greedy or sampled, until each row has ended.

The state from which a step continues is the one that the model returned, which is not always the one that it was given.
Where the model's positions change with the length of a text (longrope), rows that reach that length wait for the others
and continue in a batch of their own, whose state is computed from all their tokens. Caches of keys and values grow
without copying themselves, and a shared prefix is computed once for many rows.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from vernacular.inference.generation.prepare import PreparedPrompt, ending_of, find_stop, outcome_of, reader_of
from vernacular.inference.generation.reasoning import Reader
from vernacular.inference.model.encoder_decoder import encode_prompts, of_rows
from vernacular.inference.model.loaded import STATES, LoadedModel, state_name
from vernacular.inference.model.tokenization import decode_continuation


class GrowingLayer(DynamicLayer):
    """A DynamicLayer with preallocated space: appending a token writes one token, whereas `cat` copies all."""

    def __init__(self, room: int):
        super().__init__()
        self.room = room  # free space in tokens at each allocation, in addition to the current tokens
        self._space: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(self, key_states, value_states, *args, **kwargs):
        """Append new states; return all keys and values, [batch, heads, length, size], views of the allocated space."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._space is None or end > self._space[0].shape[-2]:
            pairs = ((self.keys, key_states), (self.values, value_states))
            self._space = tuple(self._reallocate(previous, added, start, end) for previous, added in pairs)
        for space, states in zip(self._space, (key_states, value_states), strict=True):
            space[..., start:end, :] = states
        self.keys, self.values = (space[..., :end, :] for space in self._space)
        return self.keys, self.values

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row `repeats` times; the next update reallocates the space."""
        super().batch_repeat_interleave(repeats)
        self._space = None

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Retain only the rows `indices`; the next update reallocates the space."""
        super().batch_select_indices(indices)
        self._space = None

    def _reallocate(self, previous, added, start: int, end: int) -> torch.Tensor:
        space = added.new_empty(*added.shape[:-2], end + self.room, added.shape[-1])
        if start:
            space[..., :start, :] = previous
        return space


def new_cache(loaded: LoadedModel, room: int) -> DynamicCache | None:
    """Return an empty cache, growing where attention is full; None: the model creates its own, of another kind."""
    if state_name(loaded.model.forward) not in ("cache", "past_key_values"):
        return None
    has_layers = hasattr(loaded.model.config.get_text_config(decoder=True), "num_hidden_layers")  # not BLT, in parts
    if not (has_layers and loaded.model._supports_default_dynamic_cache()):
        return None
    cache = DynamicCache(config=loaded.model.config)
    if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return None
    cache.layers = [GrowingLayer(room) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def returned_state(outputs) -> Any:
    """Return the state of a model's outputs, whose name need not be that of the argument. Raises ValueError if none."""
    for name in STATES:
        if (state := getattr(outputs, name, None)) is not None:
            return state
    raise ValueError("the model returns no state from which it could continue")


def can_share_prefix(loaded: LoadedModel, max_tokens: int) -> bool:
    """Return whether rows of up to `max_tokens` tokens can follow one cached prefix, with padding in between.

    Sliding windows count the padding as text, so no row may reach the window size; recurrent states include it.
    """
    if loaded.kind == "seq2seq" or (cache := new_cache(loaded, 0)) is None:
        return False
    windows = (layer.sliding_window for layer in cache.layers if type(layer) is DynamicSlidingWindowLayer)
    return all(max_tokens < window for window in windows)


@dataclass(frozen=True)
class Prefix:
    """A token sequence that begins many prompts, and the cache after one pass over it (batch size 1)."""

    ids: list[int]
    cache: DynamicCache

    def for_rows(self, rows: int, room: int) -> DynamicCache:
        """Return a copy of the cache for a batch of `rows`, with space for `room` tokens after the prompt."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(rows)
        for layer in cache.layers:
            layer.room = room
        return cache


def common_prefix(rows: list[list[int]]) -> list[int]:
    """Return the longest common prefix of all rows that leaves each row at least one token."""
    smallest, largest = min(rows), max(rows)  # in sorted order, their common prefix is that of all rows
    max_length = min(len(row) for row in rows) - 1
    length = next((i for i, (a, b) in enumerate(zip(smallest, largest, strict=False)) if a != b), max_length)
    return smallest[: min(length, max_length)]


DROP_SHARE = 0.25  # finished rows are removed once they are this fraction of the batch: removal copies the others


@dataclass(frozen=True)
class Way:
    """A way to decode prompts."""

    name: str  # "prefix" (shared), "batch", "single" (one prompt at a time) or "uncached" (that, without a state)
    drops_rows: bool = True  # whether finished rows are removed from the state
    takes_state: bool = True


BATCH = Way("batch")
UNCACHED = Way("uncached", takes_state=False)


@dataclass
class DecodingCounters:
    """Counters of the computation, for the metadata."""

    forwards: int = 0
    tokens_computed: int = 0  # padding included
    tokens_generated: int = 0
    states_recomputed: int = 0  # of texts that reached a length at which the model's positions change


class DecodingBatch:
    """A batch during decoding: its state, attention mask and positions, and the logits of each row's last position."""

    def __init__(
        self,
        loaded: LoadedModel,
        suffixes: list[list[int]],
        prefix: Prefix | None,
        room: int,
        counters: DecodingCounters,
        way: Way = BATCH,
    ):
        """Initialize with `suffixes`: the tokens of each row after the prefix, at least one per row."""
        self.loaded, self.counters, self.way = loaded, counters, way
        self.parameters = inspect.signature(loaded.model.forward).parameters
        self.state, self.state_name = None, state_name(loaded.model.forward)
        # transformers prepares it under the name of its own classes; remote code may have that of another version
        self.prepared_name = state_name(loaded.model.prepare_inputs_for_generation) or self.state_name
        if way.takes_state:
            if self.state_name is None:
                raise ValueError("the model takes no state from which it could continue")
            self.state = prefix.for_rows(len(suffixes), room) if prefix else new_cache(loaded, room)
        start = len(prefix.ids) if prefix else 0
        longest = max(map(len, suffixes))
        # [rows, prefix + longest]: the prefix, padding, the row's own tokens
        self.mask = torch.zeros(len(suffixes), start + longest, dtype=torch.long, device=loaded.device)
        self.mask[:, :start] = 1
        self.ids = torch.zeros(len(suffixes), longest, dtype=torch.long, device=loaded.device)
        for i, suffix in enumerate(suffixes):
            self.ids[i, longest - len(suffix) :] = torch.tensor(suffix, device=loaded.device)
            self.mask[i, start + longest - len(suffix) :] = 1
        # rows that have ended must not exceed it, because others would then have other positions
        self.last_length = loaded.lengths.last(start + longest)
        self.is_first_iteration = True
        loaded.forget_lengths()

    @torch.inference_mode()
    def logits(self, positions: int = 1) -> torch.Tensor:
        """Run the current tokens; return float32 logits [rows, vocabulary] of the next, or [rows, positions, …]."""
        kwargs = {"logits_to_keep": positions} if "logits_to_keep" in self.parameters else {}
        outputs = self.loaded.model(**self._inputs(kwargs), return_dict=True)
        if self.way.takes_state:
            self.state = returned_state(outputs)
        self.is_first_iteration = False
        self.counters.forwards += 1
        self.counters.tokens_computed += self.ids.numel()
        logits = outputs.logits[:, -positions:].float()
        return logits[:, -1] if positions == 1 else logits

    def _inputs(self, kwargs: dict) -> dict:
        """Return the arguments of a forward pass."""
        if not self.way.takes_state:  # a single row: no padding
            options = {"attention_mask": self.mask, "use_cache": False}
            return {"input_ids": self.ids, **{k: v for k, v in options.items() if k in self.parameters}, **kwargs}
        if "position_ids" in self.parameters:
            positions = (self.mask.cumsum(-1) - 1).clamp_min(0)[:, -self.ids.shape[1] :]
            last = self.last_length
            kwargs["position_ids"] = positions if last is None else positions.clamp_max(last - 1)
        if self.state is not None:
            kwargs[self.prepared_name] = self.state
        kwargs |= {"use_cache": True, "is_first_iteration": self.is_first_iteration}
        inputs = self.loaded.model.prepare_inputs_for_generation(self.ids, attention_mask=self.mask, **kwargs)
        states = [inputs.pop(name) for name in STATES if name in inputs]
        return inputs | {self.state_name: next((state for state in states if state is not None), None)}

    def append(self, tokens: list[int]) -> None:
        """Set the next input token of each row."""
        ids = torch.tensor(tokens, device=self.loaded.device)[:, None]
        self.ids = ids if self.way.takes_state else torch.cat([self.ids, ids], dim=1)
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)

    @property
    def can_drop_rows(self) -> bool:
        """Whether finished rows can be removed."""
        parts = (getattr(self.state, name, None) for name in ("self_attention_cache", "cross_attention_cache"))
        caches = (self.state, *parts)
        layers = [layer for cache in caches for layer in getattr(cache, "layers", None) or ()]
        can_select = bool(layers) and all(hasattr(layer, "batch_select_indices") for layer in layers)
        return self.way.drops_rows and can_select

    def select_rows(self, rows: list[int]) -> None:
        """Remove all rows except `rows`."""
        indices = torch.tensor(rows, device=self.loaded.device)
        self.state.batch_select_indices(indices)
        self.mask = self.mask[indices]


class Seq2SeqBatch(DecodingBatch):
    """The same of an encoder-decoder: the encoder reads the prompts once, the decoder continues from its start.

    `start`: of the decoder, in the language of an evaluation; (): that of the model's files.
    """

    def __init__(self, loaded, prompts, prefix, room, counters, way: Way = BATCH, *, start: tuple[int, ...] = ()):
        starts = [list(start or loaded.start_ids)] * len(prompts)
        super().__init__(loaded, starts, None, room, counters, replace(way, takes_state=False))
        self.way, self.last_length = way, None
        with torch.inference_mode():
            self.prompts = encode_prompts(loaded, prompts)
        counters.tokens_computed += self.prompts["input_ids"].numel()

    def _inputs(self, kwargs: dict) -> dict:
        state = {} if self.state is None else {self.state_name: self.state}
        return {**self.prompts, **kwargs, **state, "decoder_input_ids": self.ids, "use_cache": self.way.takes_state}

    def select_rows(self, rows: list[int]) -> None:
        super().select_rows(rows)
        self.prompts = of_rows(self.prompts, torch.tensor(rows, device=self.loaded.device))


def batch_class_of(loaded: LoadedModel, start: tuple[int, ...] = ()) -> Callable[..., DecodingBatch]:
    """Return what makes a model's batches; `start`: see Seq2SeqBatch."""
    return partial(Seq2SeqBatch, start=start) if loaded.kind == "seq2seq" else DecodingBatch


@dataclass
class _Sequence:
    prompt: PreparedPrompt
    reader: Reader | None = None
    ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None

    @property
    def tokens(self) -> list[int]:
        """All tokens: of the prompt, and those generated."""
        return self.prompt.ids + self.ids


def decode(
    loaded: LoadedModel,
    prompts: list[PreparedPrompt],
    prefix: Prefix | None,
    counters: DecodingCounters,
    way: Way = BATCH,
    batch_class: type | None = None,
) -> list[dict]:
    """Return the outcome of each prompt, see `outcome_of`; with an error, it has neither texts nor a finish_reason.

    All prompts begin with `prefix`, if given, and have the same positions. `batch_class`: of another engine, or of an
    encoder-decoder, instead of DecodingBatch.
    """
    rows = [_Sequence(prompt, reader_of(loaded, prompt)) for prompt in prompts]
    for row in rows:
        if row.prompt.max_new_tokens < 1:
            row.finish_reason = "length"
    active_rows = [row for row in rows if row.finish_reason is None]
    if active_rows:
        _decode(loaded, active_rows, prefix, counters, way, batch_class or DecodingBatch)
    return [_outcome(loaded, row) for row in rows]


def _decode(
    loaded: LoadedModel,
    rows: list[_Sequence],
    prefix: Prefix | None,
    counters: DecodingCounters,
    way: Way,
    batch_class: type,
) -> None:
    room = max(row.prompt.max_new_tokens for row in rows)
    end_ids = end_token_ids(loaded)
    sampler, pending = None, list(range(len(rows)))
    while pending:
        start = len(prefix.ids) if prefix else 0
        batch = batch_class(loaded, [rows[i].tokens[start:] for i in pending], prefix, room, counters, way)
        batch_rows, pending = pending, []  # index in `rows` of each row of the batch; rows that continue in the next
        active = set(batch_rows)
        while active:
            logits = batch.logits()
            sampler = sampler or Sampler([row.prompt for row in rows], logits.shape[-1], logits.device)
            sampled = batch_rows
            if pending:  # no random numbers for rows that wait
                logits = logits[[k for k, i in enumerate(batch_rows) if i in active]]
                sampled = [i for i in batch_rows if i in active]
            is_invalid = ~logits.amax(-1).isfinite()  # a NaN, or an overflow to infinity
            outcomes = torch.stack([sampler.sample(logits, sampled), is_invalid]).T.tolist()  # one transfer per step
            for i, (token, is_nan) in zip(sampled, outcomes, strict=True):
                if i in active:
                    _append_token(loaded, rows[i], token, bool(is_nan), end_ids)
                    counters.tokens_generated += 1
            active = {i for i in active if rows[i].finish_reason is None and rows[i].error is None}
            if way.takes_state and batch.last_length is not None:
                waiting = {i for i in active if len(rows[i].tokens) > batch.last_length}
                pending, active = pending + sorted(waiting), active - waiting
            if not active:
                break
            tokens = [rows[i].ids[-1] if rows[i].ids else 0 for i in batch_rows]
            if len(active) <= (1 - DROP_SHARE) * len(batch_rows) and batch.can_drop_rows:
                kept = [k for k, i in enumerate(batch_rows) if i in active]
                batch.select_rows(kept)
                batch_rows, tokens = [batch_rows[k] for k in kept], [tokens[k] for k in kept]
            batch.append(tokens)
        prefix = None
        counters.states_recomputed += len(pending)


def _append_token(loaded: LoadedModel, row: _Sequence, token: int, is_nan: bool, end_ids: set[int]) -> None:
    """Append a token to a row, and set the row's finish reason or error if it ends."""
    if is_nan:
        row.error = "the model returned NaN"
    elif token in end_ids:
        row.finish_reason = "eos"
    else:
        row.ids.append(token)
        row.finish_reason = _finish_reason(loaded, row)


def _finish_reason(loaded: LoadedModel, row: _Sequence) -> str | None:
    """Return why a row ends after its last token; None if it does not. A stop string ends answers, never reasoning."""
    prompt, reader, n_answer = row.prompt, row.reader, len(row.ids)
    if reader is None:
        text = decode_continuation(loaded.tokenizer, prompt.continued, row.ids)
    else:
        reader.read(row.ids)
        if reader.position.inside:
            return "length" if len(row.ids) >= (prompt.think_tokens or prompt.max_new_tokens) else None
        if reader.position.stop is not None:
            return "eos"
        text = reader.answer(row.ids)
        n_answer -= reader.span(row.ids)[0] if prompt.think_tokens else 0
    if find_stop(text, prompt.stops, skip_leading_space=prompt.rendered is not None) is not None:
        return "stop"
    return "length" if n_answer >= prompt.answer_tokens else None


def _outcome(loaded: LoadedModel, row: _Sequence) -> dict:
    if row.error:
        return {"raw_output": None, "output": None, "finish_reason": None, "n_tokens": len(row.ids), "error": row.error}
    return outcome_of(loaded, row.prompt, row.ids, row.finish_reason)


def end_token_ids(loaded: LoadedModel) -> set[int]:
    """Return all tokens that end a text: of the tokenizer, the model, its generation config and its chat template."""
    return ({loaded.eos_id, ending_of(loaded).end_id} | loaded.stated_end_ids) - {None}


class Sampler:
    """Selection of the next token for the rows of a batch; rows may have different decoding settings.

    As transformers, in its order, but independent of the other rows: the penalty covers the row's own tokens (there,
    padding too), and each row has its own random generator, seeded by the request's seed and ID.
    """

    def __init__(self, prompts: list[PreparedPrompt], vocabulary: int, device):
        self.prompts = prompts
        penalties = [prompt.decoding["repetition_penalty"] or 1.0 for prompt in prompts]
        self.penalties = torch.tensor(penalties, device=device, dtype=torch.float32)
        self.penalized = bool((self.penalties != 1.0).any())
        size = (len(prompts), vocabulary if self.penalized else 0)
        self.seen_tokens = torch.zeros(size, dtype=torch.bool, device=device)
        if self.penalized:
            for i, prompt in enumerate(prompts):
                self.seen_tokens[i, torch.tensor(prompt.continued, device=device)] = True
        self.generators = [
            torch.Generator().manual_seed(p.seed(15)) if p.decoding["temperature"] else None for p in prompts
        ]

    def sample(self, logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
        """Return the next token, on the device, of each of `rows` (of prompts); logits: float32 [rows, vocabulary]."""
        if self.penalized:
            # as RepetitionPenaltyLogitsProcessor of transformers (Keskar et al. 2019): for tokens already in the row,
            # negative logits are multiplied by the penalty, others divided
            penalty = self.penalties[rows, None]
            penalized_logits = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(self.seen_tokens[rows], penalized_logits, logits)
        tokens = logits.argmax(-1)
        groups: dict[tuple, list[int]] = {}  # indices of rows with the same settings
        for index, row in enumerate(rows):
            if self.generators[row] is not None:
                decoding = self.prompts[row].decoding
                groups.setdefault(tuple(decoding.get(name) for name in _WARPED), []).append(index)
        for indices in groups.values():
            tokens[indices] = self._draw_tokens(logits[indices], [rows[index] for index in indices])
        if self.penalized:
            self.seen_tokens[rows, tokens] = True
        return tokens

    def _draw_tokens(self, logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
        """Draw a token for each of some rows with the same settings, from the row's own generator."""
        for warper in _warpers(self.prompts[rows[0]].decoding):
            logits = warper(None, logits)
        cumulative = logits.softmax(-1).double().cumsum(-1)
        uniform = torch.stack([torch.rand((), generator=self.generators[row], dtype=torch.float64) for row in rows])
        thresholds = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, thresholds, right=True)[:, 0].clamp_max(cumulative.shape[-1] - 1)


_WARPED = ("temperature", "top_k", "top_p", "min_p")


def _warpers(decoding: dict) -> list:
    warpers = [TemperatureLogitsWarper(float(decoding["temperature"]))]
    if decoding["top_k"]:
        warpers.append(TopKLogitsWarper(decoding["top_k"]))
    if decoding["top_p"] is not None and decoding["top_p"] < 1:
        warpers.append(TopPLogitsWarper(float(decoding["top_p"])))
    if decoding.get("min_p"):
        warpers.append(MinPLogitsWarper(float(decoding["min_p"])))
    return warpers
