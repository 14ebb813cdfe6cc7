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

from vernacular.fingerprint import fingerprint
from vernacular.inference.generate_cache import Prefix, can_share_prefix, shared_start
from vernacular.inference.generate_decode import Forward, Work, decode
from vernacular.inference.generate_plan import batches, limits
from vernacular.inference.generate_prompts import Prompt, check_can_generate, prompt_of
from vernacular.inference.generate_rows import row_of
from vernacular.inference.load import LoadedModel
from vernacular.inference.memory import is_out_of_memory, release
from vernacular.inference.schema import GENERATIONS

SHORTEST_PREFIX = 16  # tokens: below, reading them with every row costs less than handing a cache around
TOLERANCE = {torch.float32: 1e-2, torch.float64: 1e-6}  # nats between a batched and a lone next-token distribution
LOW_PRECISION = 0.5  # nats, for bfloat16 and float16, which move by as much with any change of batch shape


def generate(loaded: LoadedModel, requests: pa.Table, *, journal, progress: bool = False) -> tuple[pa.Table, dict]:
    """Answer the generate requests of one evaluation: (table per GENERATIONS, metadata with counters).

    requests: per REQUESTS; rows of another kind (items that could not be asked) come back flagged. journal: finished
    batches of an earlier attempt and the place for new ones (`store.Journal`). Equal request ids are generated once.
    Raises ModelError for a masked model, Stopped when a signal asked to stop.
    """
    check_can_generate(loaded)
    started = time.perf_counter()
    rows = requests.to_pylist()
    distinct = {row["request_id"]: row for row in rows if row["kind"] == "generate"}
    prompts = {name: prompt_of(loaded, row) for name, row in distinct.items()}
    run = _Run(loaded, journal, tqdm(total=len(prompts), disable=None if progress else True, unit="text"))
    askable = [prompt for prompt in prompts.values() if prompt.error is None]
    # prompts that shed demonstrations begin otherwise: they share a prefix among themselves
    for left_out in sorted({prompt.left_out for prompt in askable}):
        run.group([prompt for prompt in askable if prompt.left_out == left_out])
    run.bar.close()
    table = pa.Table.from_pylist([row_of(row, prompts, run.found) for row in rows], schema=GENERATIONS.schema)
    reasons = Counter(row["finish_reason"] for row in run.found.values())
    return table, {
        "model": loaded.facts(),
        "engine": {"name": "transformers", "strategies": run.strategies, "limits": run.limits},
        "tokenizer": {"bos": loaded.option("bos", "auto"), "adds_bos": loaded.adds_bos, "truncation": "demonstrations"},
        "counters": vars(run.work)
        | {"requests": len(rows), "distinct": len(prompts), "batches": run.n_batches, "resumed": run.n_resumed}
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
        unfinished = [batch for batch in plan if self.journal.done(_name(batch)) is None]
        strategy, prefix = ("batch", None) if not unfinished else self._strategy(prompts, shared)
        if strategy == "single":
            plan = [[prompt] for batch in plan for prompt in batch]
        for batch in plan:
            self._batch(batch, prefix)

    def _strategy(self, prompts: list[Prompt], shared: list[int]) -> tuple[str, Prefix | None]:
        """("prefix", it), ("batch", None) or ("single", None): the first that agrees with one prompt at a time.

        Tried on the shortest and the longest prompt together, where padding is longest.
        """
        if len(prompts) == 1:
            self.strategies.append({"used": "single", "prompts": 1})
            return "single", None
        pair = [min(prompts, key=_length), max(prompts, key=_length)]
        alone = [self._first_logits([prompt], None)[0] for prompt in pair]
        tolerance = TOLERANCE.get(self.loaded.dtype, LOW_PRECISION)
        note = {"prompts": len(prompts), "prefix_tokens": 0, "tolerance": tolerance}
        self.strategies.append(note)
        longest = max(len(p.ids) + p.max_new_tokens for p in prompts)
        if shared and can_share_prefix(self.loaded, longest):
            prefix = self._prefix(shared)
            note["prefix_difference"] = difference(alone, self._first_logits(pair, prefix))
            if note["prefix_difference"] <= tolerance:
                self.prefix_tokens += len(shared)
                note |= {"used": "prefix", "prefix_tokens": len(shared)}
                return "prefix", prefix
        note["batch_difference"] = difference(alone, self._first_logits(pair, None))
        note["used"] = "batch" if note["batch_difference"] <= tolerance else "single"
        return note["used"], None

    def _prefix(self, ids: list[int]) -> Prefix:
        """Read the shared tokens once."""
        batch = Forward(self.loaded, [ids], None, 0, self.work)
        batch.logits()
        return Prefix(ids, batch.cache)

    def _first_logits(self, prompts: list[Prompt], prefix: Prefix | None) -> list[torch.Tensor]:
        start = len(prefix.ids) if prefix else 0
        batch = Forward(self.loaded, [p.ids[start:] for p in prompts], prefix, 1, self.work)
        return list(batch.logits().log_softmax(-1))

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
            try:
                kept = decode(self.loaded, batch, prefix, self.work)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                kept = None
            if kept is None:  # outside the except clause, whose traceback would keep the tensors alive
                release(self.loaded)
                self.oom_retries += 1
                if len(batch) > 1:
                    self.most_rows = max(1, half)
                    self._batch(batch, prefix)
                    return
                message = "out of memory, even alone"
                kept = [{"raw": None, "answer": None, "finish_reason": None, "n_tokens": 0, "error": message}]
            self.n_batches += 1
            self.journal.add(name, kept)
        self.found.update({prompt.request_id: row for prompt, row in zip(batch, kept, strict=True)})
        self.bar.update(len(batch))


def difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Largest difference (nats) among the 50 likeliest next tokens of each row."""
    worst = 0.0
    for a, b in zip(one, other, strict=True):
        top = a.topk(min(50, len(a))).indices
        worst = max(worst, (a[top] - b[top]).abs().max().item())
    return worst


def _length(prompt: Prompt) -> tuple[int, str]:
    return len(prompt.ids), prompt.request_id


def _name(batch: list[Prompt]) -> str:
    """A batch's name in the journal: its requests, in order."""
    return fingerprint([prompt.request_id for prompt in batch])
