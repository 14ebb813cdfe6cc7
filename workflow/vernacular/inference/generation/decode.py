"""Batched decoding: one token per row and step, greedy or sampled, until each row has ended."""

import inspect
from dataclasses import dataclass, field

import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generation.cache import Prefix, cache_argument, can_select_rows, new_cache
from vernacular.inference.generation.prepare import Prompt, answer_of, continuation, stop_at
from vernacular.inference.model.loaded import LoadedModel

DROP_SHARE = 0.25  # finished rows are removed once they are this fraction of the batch: removal copies the others


@dataclass
class Work:
    """Counters of the computation, for the metadata."""

    forwards: int = 0
    tokens_computed: int = 0  # padding included
    tokens_generated: int = 0


class Forward:
    """A batch during decoding: its cache, attention mask and positions, and the logits of each row's last position."""

    def __init__(self, loaded: LoadedModel, rests: list[list[int]], prefix: Prefix | None, room: int, work: Work):
        """Initialize with `rests`: the tokens of each row after the prefix, at least one per row."""
        self.loaded, self.work = loaded, work
        parameters = inspect.signature(loaded.model.forward).parameters
        self.takes_positions = "position_ids" in parameters
        self.only_last = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self.cache = prefix.for_rows(len(rests), room) if prefix else new_cache(loaded, room)
        self.cache_name = cache_argument(loaded)
        start = len(prefix.ids) if prefix else 0
        longest = max(map(len, rests))
        # [rows, prefix + longest]: the prefix, padding, the row's own tokens
        self.mask = torch.zeros(len(rests), start + longest, dtype=torch.long, device=loaded.device)
        self.mask[:, :start] = 1
        self.ids = torch.zeros(len(rests), longest, dtype=torch.long, device=loaded.device)
        for i, rest in enumerate(rests):
            self.ids[i, longest - len(rest) :] = torch.tensor(rest, device=loaded.device)
            self.mask[i, start + longest - len(rest) :] = 1
        self.first = True

    @torch.inference_mode()
    def logits(self) -> torch.Tensor:
        """Run the current tokens through the model; return float32 logits [rows, vocabulary] of the next token."""
        model, length = self.loaded.model, self.ids.shape[1]
        extra = dict(self.only_last)
        if self.takes_positions:
            extra["position_ids"] = (self.mask.cumsum(-1) - 1).clamp_min(0)[:, -length:]
        inputs = model.prepare_inputs_for_generation(
            self.ids,
            attention_mask=self.mask,
            use_cache=True,
            is_first_iteration=self.first,
            **{self.cache_name: self.cache},
            **extra,
        )
        outputs = model(**inputs, return_dict=True)
        self.first = False
        self.work.forwards += 1
        self.work.tokens_computed += self.ids.numel()
        return outputs.logits[:, -1].float()

    def append(self, tokens: list[int]) -> None:
        """Set the next input token of each row."""
        self.ids = torch.tensor(tokens, device=self.loaded.device)[:, None]
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)

    def keep(self, rows: list[int]) -> None:
        """Remove all rows except `rows`."""
        chosen = torch.tensor(rows, device=self.loaded.device)
        self.cache.batch_select_indices(chosen)
        self.mask = self.mask[chosen]


@dataclass
class _Row:
    prompt: Prompt
    ids: list[int] = field(default_factory=list)
    raw: str = ""
    finish_reason: str | None = None
    error: str | None = None


def decode(loaded: LoadedModel, prompts: list[Prompt], prefix: Prefix | None, work: Work) -> list[dict]:
    """Generate a continuation of each prompt; all prompts begin with `prefix`, if given.

    Returns one dict per prompt: raw, answer, finish_reason ("stop", "eos", "length"; None with an error), n_tokens,
    error.
    """
    rows = [_Row(prompt) for prompt in prompts]
    for row in rows:
        if row.prompt.max_new_tokens < 1:
            row.finish_reason = "length"
    alive = [i for i, row in enumerate(rows) if row.finish_reason is None]
    if alive:
        _decode(loaded, [rows[i] for i in alive], prefix, work)
    return [_outcome(row) for row in rows]


def _decode(loaded: LoadedModel, rows: list[_Row], prefix: Prefix | None, work: Work) -> None:
    start = len(prefix.ids) if prefix else 0
    room = max(row.prompt.max_new_tokens for row in rows)
    batch = Forward(loaded, [row.prompt.ids[start:] for row in rows], prefix, room, work)
    ends = end_tokens(loaded)
    in_batch = list(range(len(rows)))  # index in `rows` of each row of the batch
    sampler = None
    while True:
        logits = batch.logits()
        sampler = sampler or Sampler([row.prompt for row in rows], logits.shape[-1], logits.device)
        broken = (~logits.amax(-1).isfinite()).tolist()  # a NaN, or an overflow to infinity
        for i, token, nan in zip(in_batch, sampler.choose(logits, in_batch), broken, strict=True):
            if _running(rows[i]):
                _take(loaded, rows[i], token, nan, ends)
                work.tokens_generated += 1
        running = [k for k, i in enumerate(in_batch) if _running(rows[i])]
        if not running:
            return
        tokens = [rows[i].ids[-1] if rows[i].ids else 0 for i in in_batch]
        if len(running) <= (1 - DROP_SHARE) * len(in_batch) and can_select_rows(batch.cache):
            batch.keep(running)
            in_batch, tokens = [in_batch[k] for k in running], [tokens[k] for k in running]
        batch.append(tokens)


def _running(row: _Row) -> bool:
    return row.finish_reason is None and row.error is None


def _take(loaded: LoadedModel, row: _Row, token: int, nan: bool, ends: set[int]) -> None:
    """Append a token to a row, and set the row's finish reason or error if it ends."""
    if nan:
        row.error = "the model returned NaN"
    elif token in ends:
        row.finish_reason = "eos"
    else:
        row.ids.append(token)
        row.raw = continuation(loaded.tokenizer, row.prompt.ids, row.ids)
        if stop_at(row.raw, row.prompt.stops, after_blank=row.prompt.rendered is not None) is not None:
            row.finish_reason = "stop"
        elif len(row.ids) >= row.prompt.max_new_tokens:
            row.finish_reason = "length"


def _outcome(row: _Row) -> dict:
    if row.error:
        return {"raw_output": None, "output": None, "finish_reason": None, "n_tokens": len(row.ids), "error": row.error}
    answer = answer_of(row.raw, row.prompt.stops, after_blank=row.prompt.rendered is not None)
    found = {"raw_output": row.raw, "output": answer, "finish_reason": row.finish_reason, "n_tokens": len(row.ids)}
    return {**found, "error": None}


def end_tokens(loaded: LoadedModel) -> set[int]:
    """Return all end-of-text tokens of the tokenizer, the model and its generation config (several for chat models)."""
    ends = {loaded.eos_id} - {None}
    for config in (loaded.model.generation_config, loaded.model.config):
        found = getattr(config, "eos_token_id", None)
        ends |= {token for token in (found if isinstance(found, list | tuple) else [found]) if isinstance(token, int)}
    return ends


class Sampler:
    """Selection of the next token for the rows of a batch; rows may have different decoding settings.

    Repetition penalty, temperature, top-k and top-p are those of transformers, in the same order, with two differences
    that make a row independent of the other rows: the penalty covers the row's own tokens (transformers includes the
    padding), and each row has its own random generator, seeded by the request's seed and ID.
    """

    def __init__(self, prompts: list[Prompt], vocabulary: int, device):
        self.prompts = prompts
        self.penalties = torch.tensor(
            [p.decoding["repetition_penalty"] or 1.0 for p in prompts], device=device, dtype=torch.float32
        )
        self.penalised = bool((self.penalties != 1.0).any())
        self.seen = torch.zeros(len(prompts), vocabulary if self.penalised else 0, dtype=torch.bool, device=device)
        if self.penalised:
            for i, prompt in enumerate(prompts):
                self.seen[i, torch.tensor(prompt.ids, device=device)] = True
        self.generators = [_generator(p) if p.decoding["temperature"] else None for p in prompts]

    def choose(self, logits: torch.Tensor, rows: list[int]) -> list[int]:
        """Return the next token of each of `rows`, indices of prompts; logits: float32 [len(rows), vocabulary]."""
        if self.penalised:
            # as RepetitionPenaltyLogitsProcessor of transformers (Keskar et al. 2019): for tokens already in the row,
            # negative logits are multiplied by the penalty, others divided
            penalty = self.penalties[rows, None]
            changed = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(self.seen[rows], changed, logits)
        chosen = logits.argmax(-1).tolist()
        for k, row in enumerate(rows):
            if self.generators[row] is not None:
                chosen[k] = self._draw(logits[k : k + 1], row)
        if self.penalised:
            self.seen[rows, chosen] = True
        return chosen

    def _draw(self, logits: torch.Tensor, row: int) -> int:
        decoding = self.prompts[row].decoding
        for warp in _warpers(decoding):
            logits = warp(None, logits)
        shares = logits[0].softmax(-1).double().cumsum(-1)
        at = torch.rand((), generator=self.generators[row], dtype=torch.float64).to(shares.device) * shares[-1]
        return min(int(torch.searchsorted(shares, at, right=True)), len(shares) - 1)


def _warpers(decoding: dict) -> list:
    warpers = [TemperatureLogitsWarper(float(decoding["temperature"]))]
    if decoding["top_k"]:
        warpers.append(TopKLogitsWarper(decoding["top_k"]))
    if decoding["top_p"] is not None and decoding["top_p"] < 1:
        warpers.append(TopPLogitsWarper(float(decoding["top_p"])))
    return warpers


def _generator(prompt: Prompt) -> torch.Generator:
    seed = int(fingerprint([prompt.decoding["seed"], prompt.request_id])[:15], 16)
    return torch.Generator().manual_seed(seed)
