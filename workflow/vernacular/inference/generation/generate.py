"""generate requests -> generations: what the model writes after each prompt, batched, resumable, and reproducible.

The few-shot block that all prompts share is read once and its keys and values handed to every batch; what follows it is
sorted by length and left-padded; a row leaves the batch when it stops. Two short checks against one prompt at a time
decide whether the shared prefix, and batching at all, give this model's numbers; where not, they are left away.
"""

import time
from collections import Counter

import pyarrow as pa
import torch
from tqdm import tqdm

from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generation.cache import Prefix, shared_start
from vernacular.inference.generation.decode import Work, decode
from vernacular.inference.generation.prepare import Prompt, check_can_generate, prompts_of, row_of
from vernacular.inference.generation.self_check import strategy
from vernacular.inference.model.loaded import LoadedModel, halved, token_budget, within_memory
from vernacular.inference.schema import GENERATIONS, iter_rows, rows_to_table

SHORTEST_PREFIX = 16  # tokens: below, reading them with every row costs less than handing a cache around


def generate(loaded: LoadedModel, requests: pa.Table, *, journal, progress: bool = False) -> tuple[pa.Table, dict]:
    """Answer the generate requests of one evaluation: (table per GENERATIONS, metadata with counters).

    requests: per REQUESTS; rows of another kind (items that could not be asked) come back flagged. journal: finished
    batches of an earlier attempt and the place for new ones (`store.Journal`). Equal request ids are generated once.
    Raises ModelError for a masked model, Stopped when a signal asked to stop.
    """
    check_can_generate(loaded)
    started = time.perf_counter()
    prompts = prompts_of(loaded, requests)
    run = _Run(loaded, journal, tqdm(total=len(prompts), disable=None if progress else True, unit="text"))
    askable = [prompt for prompt in prompts.values() if prompt.error is None]
    # prompts that shed demonstrations begin otherwise: they share a prefix among themselves
    for left_out in sorted({prompt.left_out for prompt in askable}):
        run.group([prompt for prompt in askable if prompt.left_out == left_out])
    run.bar.close()
    table = rows_to_table((row_of(row, prompts, run.found) for row in iter_rows(requests)), GENERATIONS.schema)
    reasons = Counter(row["finish_reason"] for row in run.found.values())
    return table, {
        "model": loaded.facts(),
        "engine": {"name": "transformers", "strategies": run.strategies, "limits": run.limits},
        "tokenizer": {"bos": loaded.option("bos", "auto"), "adds_bos": loaded.adds_bos, "truncation": "demonstrations"},
        "counters": vars(run.work)
        | {"requests": requests.num_rows, "distinct": len(prompts), "batches": run.n_batches, "resumed": run.n_resumed}
        | {"prefix_tokens": run.prefix_tokens, "oom_retries": run.oom_retries}
        | {"truncated": sum(p.left_out > 0 for p in askable), "unaskable": len(prompts) - len(askable)}
        | {"finish_reasons": {str(k): v for k, v in sorted(reasons.items(), key=str)}}
        | {"seconds": round(time.perf_counter() - started, 3)},
        "journal": getattr(journal, "notes", []),
    }


class _Run:
    """One evaluation's prompts on their way through the model, and what there is to say about it."""

    def __init__(self, loaded: LoadedModel, journal, bar):
        self.loaded, self.journal, self.bar = loaded, journal, bar
        self.work = Work()
        self.limits = limits(loaded)
        self.found: dict[str, dict] = {}  # request_id -> outcome
        self.strategies: list[dict] = []
        self.n_batches = self.n_resumed = self.prefix_tokens = self.oom_retries = 0
        self.most_rows = None  # what memory turned out to allow

    def group(self, prompts: list[Prompt]) -> None:
        """Generate for prompts that begin alike."""
        start = shared_start([p.ids for p in prompts]) if len(prompts) > 1 else []
        shared = start if len(start) >= SHORTEST_PREFIX else []
        plan = batches(prompts, len(shared), self.limits)
        prefix, note = None, {"prompts": len(prompts), "used": "journal"}
        if any(self.journal.done(_name(batch)) is None for batch in plan):
            prefix, note = strategy(self.loaded, prompts, shared, self.work)
        self.strategies.append(note)
        self.prefix_tokens += len(prefix.ids) if prefix else 0
        if note["used"] == "single":
            plan = [[prompt] for batch in plan for prompt in batch]
        for batch in plan:
            self._batch(batch, prefix)

    def _batch(self, batch: list[Prompt], prefix: Prefix | None) -> None:
        """One batch from the journal or the model; in halves where memory, now or then, did not allow more."""
        name = _name(batch)
        half = len(batch) // 2
        kept = self.journal.done(name)
        if kept is None and len(batch) > 1:
            split_before = any(self.journal.done(_name(part)) is not None for part in (batch[:half], batch[half:]))
            if split_before or len(batch) > (self.most_rows or len(batch)):
                self._batch(batch[:half], prefix)
                self._batch(batch[half:], prefix)
                return
        if kept is not None:
            self.n_resumed += 1
        else:
            with self.journal.finishing():
                kept = self._attempt(batch, prefix)
                if kept is not None:
                    self.n_batches += 1
                    self.journal.add(name, kept)
            if kept is None:
                self.most_rows = halved(len(batch), 1)
                self._batch(batch, prefix)
                return
        self.found.update({prompt.request_id: row for prompt, row in zip(batch, kept, strict=True)})
        self.bar.update(len(batch))

    def _attempt(self, batch: list[Prompt], prefix: Prefix | None) -> list[dict] | None:
        """What the model writes; None where there is no memory for so many."""
        found = within_memory(self.loaded, decode, self.loaded, batch, prefix, self.work)
        if found is not None:
            return found
        self.oom_retries += 1
        if len(batch) > 1:
            return None
        message = "out of memory, even alone"
        return [{"raw": None, "answer": None, "finish_reason": None, "n_tokens": 0, "error": message}]


def _name(batch: list[Prompt]) -> str:
    """A batch's name in the journal: its requests, in order."""
    return fingerprint([prompt.request_id for prompt in batch])


# Measured on a CPU core with a 135M model: a step of 32 rows takes four times as long as a step of one; the prompts'
# tokens, which no batch makes cheaper, take most of the time by then.
_CPU_ROWS, _GPU_ROWS = 32, 256
_CPU_PREFILL, _CPU_CACHE = 4096, 2 << 30  # tokens in the first forward; bytes of keys and values


def limits(loaded: LoadedModel) -> dict[str, int]:
    """How large a batch may be: `rows`, `prefill_tokens` (padding included) and `cache_tokens` (prefix included).

    The record's `batch_tokens`, where a person set it, is the number of prefill tokens. On a GPU the numbers follow its
    free memory, rounded down to a power of two so that the next attempt finds the same plan.
    """
    if loaded.device.type != "cuda":
        prefill = loaded.option("batch_tokens") or _CPU_PREFILL
        cache = _CPU_CACHE // _cache_bytes(loaded)
        return {"rows": _CPU_ROWS, "prefill_tokens": int(prefill), "cache_tokens": max(1, cache)}
    free, _ = torch.cuda.mem_get_info(loaded.device)
    cache = int(free * 0.5) // _cache_bytes(loaded)
    return {
        "rows": _GPU_ROWS,
        "prefill_tokens": token_budget(loaded),
        "cache_tokens": 1 << max(0, cache.bit_length() - 1),
    }


def batches(prompts: list[Prompt], prefix: int, limits: dict[str, int]) -> list[list[Prompt]]:
    """Prompts in batches of like length, the longest first, so that memory runs out at once or not at all.

    `prefix` is the number of tokens they share, which each row holds in its cache but does not compute.
    """
    plan: list[list[Prompt]] = []
    width = room = 0
    for prompt in sorted(prompts, key=lambda p: (-len(p.ids), -p.max_new_tokens, p.request_id)):
        rows = len(plan[-1]) + 1 if plan else 1
        new = max(room, prompt.max_new_tokens)
        full = (
            rows > limits["rows"]
            or rows * (width - prefix) > limits["prefill_tokens"]
            or rows * (width + new) > limits["cache_tokens"]
        )
        if not plan or full:
            plan.append([])
            width, new = len(prompt.ids), prompt.max_new_tokens
        plan[-1].append(prompt)
        room = new
    return plan


def _cache_bytes(loaded: LoadedModel) -> int:
    """Bytes of keys and values that one token holds, in all layers."""
    config = loaded.model.config.get_text_config(decoder=True)
    all_heads = getattr(config, "num_attention_heads", None)
    heads = getattr(config, "num_key_value_heads", None) or all_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // (all_heads or 1)
    return 2 * config.num_hidden_layers * (heads or 1) * width * loaded.dtype.itemsize
