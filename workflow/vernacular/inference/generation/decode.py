"""Batched decoding: one token per row and step, greedy or sampled, until each row has ended."""

import inspect
from dataclasses import dataclass, field

import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generation.cache import Prefix, cache_argument, can_select_rows, new_cache
from vernacular.inference.generation.prepare import PreparedPrompt, decode_continuation, find_stop, truncate_output
from vernacular.inference.model.loaded import LoadedModel

DROP_SHARE = 0.25  # finished rows are removed once they are this fraction of the batch: removal copies the others


@dataclass
class DecodingCounters:
    """Counters of the computation, for the metadata."""

    forwards: int = 0
    tokens_computed: int = 0  # padding included
    tokens_generated: int = 0


class DecodingBatch:
    """A batch during decoding: its cache, attention mask and positions, and the logits of each row's last position."""

    def __init__(
        self,
        loaded: LoadedModel,
        suffixes: list[list[int]],
        prefix: Prefix | None,
        room: int,
        counters: DecodingCounters,
    ):
        """Initialize with `suffixes`: the tokens of each row after the prefix, at least one per row."""
        self.loaded, self.counters = loaded, counters
        parameters = inspect.signature(loaded.model.forward).parameters
        self.takes_position_ids = "position_ids" in parameters
        self.last_position_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self.cache = prefix.for_rows(len(suffixes), room) if prefix else new_cache(loaded, room)
        self.cache_name = cache_argument(loaded)
        start = len(prefix.ids) if prefix else 0
        longest = max(map(len, suffixes))
        # [rows, prefix + longest]: the prefix, padding, the row's own tokens
        self.mask = torch.zeros(len(suffixes), start + longest, dtype=torch.long, device=loaded.device)
        self.mask[:, :start] = 1
        self.ids = torch.zeros(len(suffixes), longest, dtype=torch.long, device=loaded.device)
        for i, suffix in enumerate(suffixes):
            self.ids[i, longest - len(suffix) :] = torch.tensor(suffix, device=loaded.device)
            self.mask[i, start + longest - len(suffix) :] = 1
        self.is_first_iteration = True

    @torch.inference_mode()
    def logits(self) -> torch.Tensor:
        """Run the current tokens through the model; return float32 logits [rows, vocabulary] of the next token."""
        model, length = self.loaded.model, self.ids.shape[1]
        kwargs = dict(self.last_position_only)
        if self.takes_position_ids:
            kwargs["position_ids"] = (self.mask.cumsum(-1) - 1).clamp_min(0)[:, -length:]
        inputs = model.prepare_inputs_for_generation(
            self.ids,
            attention_mask=self.mask,
            use_cache=True,
            is_first_iteration=self.is_first_iteration,
            **{self.cache_name: self.cache},
            **kwargs,
        )
        outputs = model(**inputs, return_dict=True)
        self.is_first_iteration = False
        self.counters.forwards += 1
        self.counters.tokens_computed += self.ids.numel()
        return outputs.logits[:, -1].float()

    def append(self, tokens: list[int]) -> None:
        """Set the next input token of each row."""
        self.ids = torch.tensor(tokens, device=self.loaded.device)[:, None]
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)

    def select_rows(self, rows: list[int]) -> None:
        """Remove all rows except `rows`."""
        indices = torch.tensor(rows, device=self.loaded.device)
        self.cache.batch_select_indices(indices)
        self.mask = self.mask[indices]


@dataclass
class _Sequence:
    prompt: PreparedPrompt
    ids: list[int] = field(default_factory=list)
    raw_output: str = ""
    finish_reason: str | None = None
    error: str | None = None


def decode(
    loaded: LoadedModel, prompts: list[PreparedPrompt], prefix: Prefix | None, counters: DecodingCounters
) -> list[dict]:
    """Generate a continuation of each prompt; all prompts begin with `prefix`, if given.

    Returns one dict per prompt: raw_output, output, finish_reason ("stop", "eos", "length"; None with an error),
    n_tokens, error.
    """
    rows = [_Sequence(prompt) for prompt in prompts]
    for row in rows:
        if row.prompt.max_new_tokens < 1:
            row.finish_reason = "length"
    active_rows = [row for row in rows if row.finish_reason is None]
    if active_rows:
        _decode(loaded, active_rows, prefix, counters)
    return [_outcome(row) for row in rows]


def _decode(loaded: LoadedModel, rows: list[_Sequence], prefix: Prefix | None, counters: DecodingCounters) -> None:
    start = len(prefix.ids) if prefix else 0
    room = max(row.prompt.max_new_tokens for row in rows)
    batch = DecodingBatch(loaded, [row.prompt.ids[start:] for row in rows], prefix, room, counters)
    end_ids = end_token_ids(loaded)
    batch_rows = list(range(len(rows)))  # index in `rows` of each row of the batch
    sampler = None
    while True:
        logits = batch.logits()
        sampler = sampler or Sampler([row.prompt for row in rows], logits.shape[-1], logits.device)
        is_invalid = ~logits.amax(-1).isfinite()  # a NaN, or an overflow to infinity
        outcomes = torch.stack([sampler.sample(logits, batch_rows), is_invalid]).T.tolist()  # one transfer per step
        for i, (token, is_nan) in zip(batch_rows, outcomes, strict=True):
            if _is_active(rows[i]):
                _append_token(loaded, rows[i], token, bool(is_nan), end_ids)
                counters.tokens_generated += 1
        active_indices = [k for k, i in enumerate(batch_rows) if _is_active(rows[i])]
        if not active_indices:
            return
        tokens = [rows[i].ids[-1] if rows[i].ids else 0 for i in batch_rows]
        if len(active_indices) <= (1 - DROP_SHARE) * len(batch_rows) and can_select_rows(batch.cache):
            batch.select_rows(active_indices)
            batch_rows, tokens = [batch_rows[k] for k in active_indices], [tokens[k] for k in active_indices]
        batch.append(tokens)


def _is_active(row: _Sequence) -> bool:
    return row.finish_reason is None and row.error is None


def _append_token(loaded: LoadedModel, row: _Sequence, token: int, is_nan: bool, end_ids: set[int]) -> None:
    """Append a token to a row, and set the row's finish reason or error if it ends."""
    if is_nan:
        row.error = "the model returned NaN"
    elif token in end_ids:
        row.finish_reason = "eos"
    else:
        row.ids.append(token)
        row.raw_output = decode_continuation(loaded.tokenizer, row.prompt.ids, row.ids)
        if find_stop(row.raw_output, row.prompt.stops, skip_leading_space=row.prompt.rendered is not None) is not None:
            row.finish_reason = "stop"
        elif len(row.ids) >= row.prompt.max_new_tokens:
            row.finish_reason = "length"


def _outcome(row: _Sequence) -> dict:
    if row.error:
        return {"raw_output": None, "output": None, "finish_reason": None, "n_tokens": len(row.ids), "error": row.error}
    output = truncate_output(row.raw_output, row.prompt.stops, skip_leading_space=row.prompt.rendered is not None)
    outcome = {
        "raw_output": row.raw_output,
        "output": output,
        "finish_reason": row.finish_reason,
        "n_tokens": len(row.ids),
    }
    return {**outcome, "error": None}


def end_token_ids(loaded: LoadedModel) -> set[int]:
    """Return all end-of-text tokens of the tokenizer, the model and its generation config (several for chat models)."""
    end_ids = {loaded.eos_id} - {None}
    for config in (loaded.model.generation_config, loaded.model.config):
        eos_ids = getattr(config, "eos_token_id", None)
        eos_ids = eos_ids if isinstance(eos_ids, list | tuple) else [eos_ids]
        end_ids |= {token for token in eos_ids if isinstance(token, int)}
    return end_ids


class Sampler:
    """Selection of the next token for the rows of a batch; rows may have different decoding settings.

    Repetition penalty, temperature, top-k and top-p are those of transformers, in the same order, with two differences
    that make a row independent of the other rows: the penalty covers the row's own tokens (transformers includes the
    padding), and each row has its own random generator, seeded by the request's seed and ID.
    """

    def __init__(self, prompts: list[PreparedPrompt], vocabulary: int, device):
        self.prompts = prompts
        self.penalties = torch.tensor(
            [p.decoding["repetition_penalty"] or 1.0 for p in prompts], device=device, dtype=torch.float32
        )
        self.penalized = bool((self.penalties != 1.0).any())
        self.seen_tokens = torch.zeros(
            len(prompts), vocabulary if self.penalized else 0, dtype=torch.bool, device=device
        )
        if self.penalized:
            for i, prompt in enumerate(prompts):
                self.seen_tokens[i, torch.tensor(prompt.ids, device=device)] = True
        self.generators = [_generator(p) if p.decoding["temperature"] else None for p in prompts]

    def sample(self, logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
        """Return the next token of each of `rows`, indices of prompts; logits: float32 [len(rows), vocabulary].

        The tokens remain on the device.
        """
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
                groups.setdefault((decoding["temperature"], decoding["top_k"], decoding["top_p"]), []).append(index)
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


def _warpers(decoding: dict) -> list:
    warpers = [TemperatureLogitsWarper(float(decoding["temperature"]))]
    if decoding["top_k"]:
        warpers.append(TopKLogitsWarper(decoding["top_k"]))
    if decoding["top_p"] is not None and decoding["top_p"] < 1:
        warpers.append(TopPLogitsWarper(float(decoding["top_p"])))
    return warpers


def _generator(prompt: PreparedPrompt) -> torch.Generator:
    seed = int(fingerprint([prompt.decoding["seed"], prompt.request_id])[:15], 16)
    return torch.Generator().manual_seed(seed)
