"""Generation: the model's continuation of each prompt, batched, resumable and reproducible.

The few-shot prefix that all prompts share is computed once, and its keys and values are reused in every batch. The rest
of each prompt is sorted by length and left-padded; a row leaves the batch when it ends. Two self-checks against single
prompts decide whether a shared prefix, and batching at all, reproduce this model's numbers; otherwise they are not
used, nor, if even a single text continues incorrectly from the model's state, that state (`self_check.py`).
"""

import time
from collections import Counter

import pyarrow as pa
import torch

from vernacular.core.fingerprint import fingerprint
from vernacular.core.logs import Progress
from vernacular.inference.generation.cache import Prefix, common_prefix
from vernacular.inference.generation.decode import BATCH, DecodingCounters, Way, decode
from vernacular.inference.generation.prepare import PreparedPrompt, check_can_generate, output_row, prepare_prompts
from vernacular.inference.generation.reasoning import describe
from vernacular.inference.generation.self_check import select_batching
from vernacular.inference.model.loaded import LoadedModel, halve, token_budget, within_memory
from vernacular.inference.model.rendering import has_template
from vernacular.inference.model.tokenization import config_values
from vernacular.inference.schema import GENERATIONS, iter_rows, rows_to_table

SHORTEST_PREFIX = 16  # tokens; recomputing a shorter prefix in each row costs less than copying its cache


class Generation:
    """Run the generate requests of one evaluation: a row of GENERATIONS per row, and metadata with counters.

    Prepared by the constructor, computed by `compute`, and read by `finish`; see `engine.py`. Rows of another kind
    (skipped items) are returned with a flag; equal requests are generated once.

    Raises:
        ModelError: The model is a masked language model.
        Stopped: A stop signal was received.
    """

    def __init__(self, loaded: LoadedModel, requests: pa.Table):
        check_can_generate(loaded)
        started = time.perf_counter()
        self.loaded, self.requests = loaded, requests
        self.prompts = prepare_prompts(loaded, requests)
        self.seconds = time.perf_counter() - started

    def compute(self, journal) -> None:
        """Run the model on all prompts."""
        started = time.perf_counter()
        self.run = run = _Run(self.loaded, journal, Progress("generate", len(self.prompts), "text"))
        valid_prompts = [prompt for prompt in self.prompts.values() if prompt.error is None]
        with run.progress:
            groups: dict[tuple, list[PreparedPrompt]] = {}
            for prompt in valid_prompts:
                positions = self.loaded.lengths.first(len(prompt.ids))
                groups.setdefault((*_beginning(prompt), positions), []).append(prompt)
            for _, group in sorted(groups.items()):
                run.run_group(group)
        self.model_metadata = self.loaded.metadata()
        self.seconds += time.perf_counter() - started

    def finish(self) -> tuple[pa.Table, dict]:
        """Return (table per GENERATIONS, metadata)."""
        run, prompts, loaded = self.run, self.prompts, self.loaded
        rows = (output_row(row, prompts, run.outcomes) for row in iter_rows(self.requests))
        table = rows_to_table(rows, GENERATIONS.schema)
        reasons = Counter(row["finish_reason"] for row in run.outcomes.values())
        valid_prompts = [prompt for prompt in prompts.values() if prompt.error is None]
        return table, {
            "model": self.model_metadata,
            "engine": {"name": "transformers", "strategies": run.strategies, "limits": run.limits}
            | {"fallback": run.fallback()},
            "tokenizer": {
                "bos": loaded.record.bos,
                "adds_bos": loaded.adds_bos,
                "truncation": "few-shot examples",
                "has_chat_template": has_template(loaded),
            }
            | describe(loaded, prompts.values(), run.outcomes.values()),
            "counters": vars(run.counters)
            | {"requests": self.requests.num_rows, "distinct": len(prompts)}
            | {"batches": run.n_batches, "resumed": run.n_resumed}
            | {"prefix_tokens": run.prefix_tokens, "oom_retries": run.oom_retries}
            | {
                "truncated": sum(_beginning(p) != (0, False) for p in valid_prompts),
                "invalid_prompts": len(prompts) - len(valid_prompts),
            }
            | {"finish_reasons": {str(k): v for k, v in sorted(reasons.items(), key=str)}}
            | {"seconds": round(self.seconds, 3)},
            "journal": getattr(run.journal, "notes", []),
        }


class _Run:
    """The state of one evaluation's generation, and its counters for the metadata."""

    def __init__(self, loaded: LoadedModel, journal, progress: Progress):
        self.loaded, self.journal, self.progress = loaded, journal, progress
        self.counters = DecodingCounters()
        self.limits = batch_limits(loaded)
        self.outcomes: dict[str, dict] = {}  # request_id -> outcome
        self.strategies: list[dict] = []
        self.n_batches = self.n_resumed = self.prefix_tokens = self.oom_retries = 0
        self.max_rows = None  # limit on the batch size after an out-of-memory error

    def run_group(self, prompts: list[PreparedPrompt]) -> None:
        """Generate for prompts with a common beginning, which is computed once if it is long enough."""
        prefix_ids = common_prefix([p.ids for p in prompts]) if len(prompts) > 1 else []
        # the keys of a shorter prefix could have other positions than those of the prompts
        shortest_prefix = max(SHORTEST_PREFIX, self.loaded.lengths.first(len(prompts[0].ids)))
        shared_ids = prefix_ids if len(prefix_ids) >= shortest_prefix else []
        batches = make_batches(prompts, len(shared_ids), self.limits)
        prefix, way, note = None, BATCH, {"prompts": len(prompts), "used": "journal"}
        if any(self.journal.get(_batch_name(batch)) is None for batch in batches):
            prefix, way, note = select_batching(self.loaded, prompts, shared_ids, self.counters)
        self.strategies.append(note)
        self.prefix_tokens += len(prefix.ids) if prefix else 0
        if note["used"] in ("single", "uncached"):
            batches = [[prompt] for batch in batches for prompt in batch]
        for batch in batches:
            self._run_batch(batch, prefix, way)

    def fallback(self) -> list[str]:
        """Return why a slower way was used, for the notes."""
        reasons = [reason for note in self.strategies for reason in note.get("fallback", [])]
        if self.counters.states_recomputed:
            switches = ", ".join(map(str, sorted({*self.loaded.lengths.switches, self.loaded.lengths.growth} - {None})))
            reasons.append(f"generation: computed anew for texts that exceed {switches} tokens, where positions change")
        return list(dict.fromkeys(reasons))

    def _run_batch(self, batch: list[PreparedPrompt], prefix: Prefix | None, way: Way) -> None:
        """Take one batch from the journal or compute it, in halves if memory does not or did not suffice."""
        name = _batch_name(batch)
        middle = len(batch) // 2
        outcomes = self.journal.get(name)
        if outcomes is None and len(batch) > 1:
            is_split = any(self.journal.get(_batch_name(part)) is not None for part in (batch[:middle], batch[middle:]))
            if is_split or len(batch) > (self.max_rows or len(batch)):
                self._run_batch(batch[:middle], prefix, way)
                self._run_batch(batch[middle:], prefix, way)
                return
        if outcomes is not None:
            self.n_resumed += 1
        else:
            with self.journal.defer_signals():
                outcomes = self._decode_batch(batch, prefix, way)
                if outcomes is not None:
                    self.n_batches += 1
                    self.journal.add(name, outcomes)
            if outcomes is None:
                self.max_rows = halve(len(batch), 1)
                self._run_batch(batch, prefix, way)
                return
        self.outcomes.update({prompt.request_id: outcome for prompt, outcome in zip(batch, outcomes, strict=True)})
        self.progress.advance(len(batch))

    def _decode_batch(self, batch: list[PreparedPrompt], prefix: Prefix | None, way: Way) -> list[dict] | None:
        """Return the outcomes of a batch; None if it does not fit in memory and can be split."""
        outcomes = within_memory(self.loaded, decode, self.loaded, batch, prefix, self.counters, way)
        if outcomes is not None:
            return outcomes
        self.oom_retries += 1
        if len(batch) > 1:
            return None
        message = "out of memory in a batch of one prompt"
        return [{"raw_output": None, "output": None, "finish_reason": None, "n_tokens": 0, "error": message}]


def _beginning(prompt: PreparedPrompt) -> tuple[int, bool]:
    """Return what prompts that share a prefix have in common: the dropped examples, and whether tokens are dropped."""
    return prompt.n_dropped_examples, prompt.n_dropped_tokens > 0


def _batch_name(batch: list[PreparedPrompt]) -> str:
    """Return a batch's name in the journal: a hash of its request IDs, in order."""
    return fingerprint([prompt.request_id for prompt in batch])


# Measured on one CPU core with a 135M model: a step of 32 rows takes four times as long as a step of one row. From
# there on, the prompts' tokens, whose cost batching does not reduce, take most of the time.
_CPU_ROWS, _GPU_ROWS = 32, 256
_CPU_PREFILL, _CPU_CACHE = 4096, 2 << 30  # tokens in the first forward; bytes of keys and values


def batch_limits(loaded: LoadedModel) -> dict[str, int]:
    """Return the batch limits: `rows`, `prefill_tokens` (padding included) and `cache_tokens` (prefix included).

    The setting `max_batch_tokens`, if not null, is the number of prefill tokens. On a GPU the limits depend on its free
    memory; `cache_tokens` is rounded down to a power of two, so that the next attempt probably has the same batches.
    """
    if loaded.device.type != "cuda":
        prefill_tokens = loaded.record.max_batch_tokens or _CPU_PREFILL
        cache_tokens = _CPU_CACHE // _cache_bytes(loaded)
        return {"rows": _CPU_ROWS, "prefill_tokens": int(prefill_tokens), "cache_tokens": max(1, cache_tokens)}
    free, _ = torch.cuda.mem_get_info(loaded.device)
    cache_tokens = int(free * 0.5) // _cache_bytes(loaded)
    return {
        "rows": _GPU_ROWS,
        "prefill_tokens": token_budget(loaded),
        "cache_tokens": 1 << max(0, cache_tokens.bit_length() - 1),
    }


def make_batches(
    prompts: list[PreparedPrompt], n_prefix_tokens: int, limits: dict[str, int]
) -> list[list[PreparedPrompt]]:
    """Group prompts of similar length into batches, longest first, so that memory runs out immediately or not at all.

    `n_prefix_tokens` is the number of tokens they share, which each row holds in its cache but does not compute.
    """
    batches: list[list[PreparedPrompt]] = []
    width = max_new_in_batch = 0
    for prompt in sorted(prompts, key=lambda p: (-len(p.ids), -p.max_new_tokens, p.request_id)):
        rows = len(batches[-1]) + 1 if batches else 1
        max_new = max(max_new_in_batch, prompt.max_new_tokens)
        is_full = (
            rows > limits["rows"]
            or rows * (width - n_prefix_tokens) > limits["prefill_tokens"]
            or rows * (width + max_new) > limits["cache_tokens"]
        )
        if not batches or is_full:
            batches.append([])
            width, max_new = len(prompt.ids), prompt.max_new_tokens
        batches[-1].append(prompt)
        max_new_in_batch = max_new
    return batches


def _cache_bytes(loaded: LoadedModel) -> int:
    """Return the size of one token's keys and values in all layers, in bytes."""
    config = loaded.model.config.get_text_config(decoder=True)

    def largest(name: str) -> int | None:
        return max((value for value in config_values(config, name) if isinstance(value, int)), default=None)

    n_attention_heads = largest("num_attention_heads")
    n_heads = largest("num_key_value_heads") or n_attention_heads
    width = largest("head_dim") or (largest("hidden_size") or 1) // (n_attention_heads or 1)
    return 2 * config.num_hidden_layers * (n_heads or 1) * width * loaded.dtype.itemsize
