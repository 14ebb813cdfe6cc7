"""Generation: the model's continuation of each prompt, batched, resumable and reproducible.

The few-shot prefix that all prompts share is computed once, and its keys and values are reused in every batch. The rest
of each prompt is sorted by length and left-padded; a row leaves the batch when it ends. Two self-checks against single
prompts decide whether a shared prefix, and batching at all, reproduce this model's numbers; otherwise they are not
used, nor, if even a single text continues incorrectly from the model's state, that state (`self_check.py`).

vLLM, on GPUs where it is installed, batches, caches prefixes and samples by itself; its rows are the same. It has its
own random streams, so that a sampled text differs from that of transformers with the same seed.
"""

import time
from collections import Counter

import pyarrow as pa
import torch

from vernacular.core import artifacts
from vernacular.core.errors import ModelError, named
from vernacular.core.fingerprint import fingerprint
from vernacular.core.logs import Progress
from vernacular.inference.generation.decode import (
    BATCH,
    DecodingCounters,
    Prefix,
    Way,
    batch_class_of,
    common_prefix,
    decode,
    end_token_ids,
)
from vernacular.inference.generation.prepare import PreparedPrompt, outcome_of, output_row, prepare_prompts
from vernacular.inference.generation.reasoning import describe
from vernacular.inference.generation.self_check import select_batching
from vernacular.inference.model.language_codes import in_evaluation
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.memory import halve, token_budget, within_memory
from vernacular.inference.model.rendering import has_template
from vernacular.inference.model.tokenization import config_values
from vernacular.inference.schema import GENERATIONS, Journal, iter_rows, rows_to_table
from vernacular.protocols.schema import REQUESTS

SHORTEST_PREFIX = 16  # tokens; recomputing a shorter prefix in each row costs less than copying its cache


class Generation:
    """The generate requests of one evaluation: a row of GENERATIONS per row, equal requests once; see `engine.py`."""

    engine = "transformers"

    def __init__(self, loaded: LoadedModel, requests: pa.Table):
        started = time.perf_counter()
        self.loaded, self.requests = loaded, requests
        texts = in_evaluation(loaded, artifacts.metadata_of(requests, REQUESTS))
        self.prompts = prepare_prompts(texts, requests)
        self.batch_class = batch_class_of(loaded, texts.start_ids)
        self.valid = [prompt for prompt in self.prompts.values() if prompt.error is None]
        self.outcomes: dict[str, dict] = {}  # by request ID
        self.seconds = time.perf_counter() - started

    def compute(self, journal: Journal) -> None:
        started = time.perf_counter()
        self.journal = journal
        self.counters, self.limits = DecodingCounters(), self._limits()
        self.strategies: list[dict] = []
        self.n_batches = self.n_resumed = self.prefix_tokens = self.oom_retries = 0
        self.max_rows = None  # limit on the batch size after an out-of-memory error
        with Progress("generate", len(self.prompts), "text") as self.progress:
            groups: dict[tuple, list[PreparedPrompt]] = {}
            for prompt in self.valid:
                positions = self.loaded.lengths.first(len(prompt.ids))
                groups.setdefault((*_beginning(prompt), positions), []).append(prompt)
            for _, group in sorted(groups.items()):
                self._run_group(group)
        self.model_metadata = self.loaded.metadata()
        self.seconds += time.perf_counter() - started

    def _limits(self) -> dict[str, int]:
        return batch_limits(self.loaded)

    def finish(self) -> tuple[pa.Table, dict]:
        loaded = self.loaded
        reasons = Counter(row["finish_reason"] for row in self.outcomes.values())
        engine = {"name": self.engine, "strategies": self.strategies, "limits": self.limits}
        counters = vars(self.counters) | {
            "requests": self.requests.num_rows,
            "distinct": len(self.prompts),
            "batches": self.n_batches,
            "resumed": self.n_resumed,
            "prefix_tokens": self.prefix_tokens,
            "oom_retries": self.oom_retries,
            "truncated": sum(_beginning(p) != (0, False) for p in self.valid),
            "invalid_prompts": len(self.prompts) - len(self.valid),
            "finish_reasons": {str(k): v for k, v in sorted(reasons.items(), key=str)},
            "seconds": round(self.seconds, 3),
        }
        tokenizer = {"bos": loaded.record.bos, "adds_bos": loaded.adds_bos, "truncation": "few-shot examples"}
        return self._rows(), {
            "model": self.model_metadata,
            "engine": engine | {"fallback": self._fallback()},
            "tokenizer": tokenizer | self._rendering(),
            "counters": counters,
            "journal": self.journal.notes,
        }

    def _rows(self) -> pa.Table:
        rows = (output_row(row, self.prompts, self.outcomes) for row in iter_rows(self.requests))
        return rows_to_table(rows, GENERATIONS.schema)

    def _rendering(self) -> dict:
        has = {"has_chat_template": has_template(self.loaded)}
        return has | describe(self.loaded, self.prompts.values(), self.outcomes.values())

    def _keep(self, batch: list[PreparedPrompt], outcomes: list[dict]) -> None:
        self.outcomes |= {prompt.request_id: outcome for prompt, outcome in zip(batch, outcomes, strict=True)}

    def _run_group(self, prompts: list[PreparedPrompt]) -> None:
        """Generate for prompts with a common beginning, which is computed once if it is long enough."""
        is_shared = len(prompts) > 1 and self.loaded.kind != "seq2seq"
        prefix_ids = common_prefix([p.ids for p in prompts]) if is_shared else []
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

    def _fallback(self) -> list[str]:
        """Return why a slower way was used, for the notes."""
        reasons = [reason for note in self.strategies for reason in note.get("fallback", [])]
        if self.counters.states_recomputed:
            switches = ", ".join(map(str, sorted({*self.loaded.lengths.switches, self.loaded.lengths.growth} - {None})))
            reasons.append(f"generation: computed anew for texts that exceed {switches} tokens, where positions change")
        return list(dict.fromkeys(reasons))

    def _run_batch(self, batch: list[PreparedPrompt], prefix: Prefix | None, way: Way) -> None:
        """Take one batch from the journal or compute it, in halves if memory does not or did not suffice."""
        name, middle = _batch_name(batch), len(batch) // 2
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
        self._keep(batch, outcomes)
        self.progress.advance(len(batch))

    def _decode_batch(self, batch: list[PreparedPrompt], prefix: Prefix | None, way: Way) -> list[dict] | None:
        """Return the outcomes of a batch; None if it does not fit in memory and can be split."""
        outcomes = within_memory(self.loaded, decode, self.loaded, batch, prefix, self.counters, way, self.batch_class)
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
    """Return `rows`, `prefill_tokens` (padding included) and `cache_tokens` (prefix included) of a batch.

    On a GPU they depend on its free memory; `cache_tokens` is rounded down to a power of two, so that the next attempt
    probably has the same batches.
    """
    if loaded.device.type != "cuda":
        prefill_tokens = loaded.record.max_batch_tokens or _CPU_PREFILL
        cache_tokens = _CPU_CACHE // _cache_bytes(loaded)
        return {"rows": _CPU_ROWS, "prefill_tokens": int(prefill_tokens), "cache_tokens": max(1, cache_tokens)}
    free, _ = torch.cuda.mem_get_info(loaded.device)
    cache_tokens = int(free * 0.5) // _cache_bytes(loaded)
    cache_tokens = 1 << max(0, cache_tokens.bit_length() - 1)
    return {"rows": _GPU_ROWS, "prefill_tokens": token_budget(loaded), "cache_tokens": cache_tokens}


def make_batches(
    prompts: list[PreparedPrompt], n_prefix_tokens: int, limits: dict[str, int]
) -> list[list[PreparedPrompt]]:
    """Group prompts of similar length, longest first, so that memory runs out immediately or not at all.

    `n_prefix_tokens`: the tokens they share, which each row holds in its cache but does not compute.
    """
    batches: list[list[PreparedPrompt]] = []
    width = max_new_in_batch = 0
    for prompt in sorted(prompts, key=lambda p: (-len(p.ids), -p.max_new_tokens, p.request_id)):
        rows = len(batches[-1]) + 1 if batches else 1
        max_new = max(max_new_in_batch, prompt.max_new_tokens)
        n_read, n_cached = rows * (width - n_prefix_tokens), rows * (width + max_new)
        is_full = rows > limits["rows"] or n_read > limits["prefill_tokens"] or n_cached > limits["cache_tokens"]
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
    return 2 * (largest("num_hidden_layers") or 1) * (n_heads or 1) * width * loaded.dtype.itemsize


CHUNK_SIZE = 512  # prompts per journal entry

_engines: dict[str, object] = {}  # by model fingerprint, or the error of its start, which takes a minute


class VLLMGeneration(Generation):
    """One evaluation, whose texts are generated by vLLM."""

    def compute(self, journal: Journal) -> None:
        engine, self.version = _engine(self.loaded)
        started = time.perf_counter()
        prompts = sorted(self.valid, key=lambda prompt: (prompt.ids, prompt.request_id))
        for start in range(0, len(prompts), CHUNK_SIZE):
            chunk = prompts[start : start + CHUNK_SIZE]
            name = fingerprint(["vllm", [prompt.request_id for prompt in chunk]])
            outcomes = journal.get(name)
            if outcomes is None:
                with journal.defer_signals():
                    try:
                        outcomes = _generate(self.loaded, engine, chunk)
                    except Exception:
                        del _engines[self.loaded.record.fingerprint]  # its process may have died
                        raise
                    journal.add(name, outcomes)
            self._keep(chunk, outcomes)
        self.model_metadata = self.loaded.metadata()
        self.seconds += time.perf_counter() - started

    def finish(self) -> tuple[pa.Table, dict]:
        counters = {"requests": self.requests.num_rows, "distinct": len(self.prompts)}
        metadata = {"model": self.model_metadata, "engine": {"name": "vllm", "version": self.version}}
        metadata |= {"tokenizer": self._rendering(), "counters": counters | {"seconds": round(self.seconds, 3)}}
        return self._rows(), metadata


def _engine(loaded: LoadedModel):
    """Return (vllm.LLM, version) for the model's directory, limited to the memory of the GPU that is still free.

    Raises ModelError if vLLM is not installed or does not start; it is started once.
    """
    try:
        import vllm
    except ImportError:
        name = loaded.record.name
        raise ModelError(
            f"model {name}: the engine vllm is not installed. Install it with `pip install vernacular[vllm]`."
        ) from None
    key = loaded.record.fingerprint
    if key not in _engines:
        # on a CPU, vLLM 0.32 fails if a prompt with a seed is read in parts
        options = {"kv_cache_memory_bytes": _CPU_CACHE, "enable_chunked_prefill": False}
        if loaded.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(loaded.device)
            options = {"gpu_memory_utilization": 0.9 * free / total}
        try:
            _engines[key] = vllm.LLM(
                model=str(loaded.record.directory),
                dtype=str(loaded.dtype).removeprefix("torch."),
                max_model_len=loaded.max_length,
                trust_remote_code=loaded.record.trust_remote_code,
                enable_prefix_caching=True,
                **options,
            )
        except Exception as error:  # noqa: BLE001 (of any class; the next evaluation would wait for the same)
            _engines[key] = error
    if isinstance(_engines[key], Exception):
        reason = f"vLLM {vllm.__version__} does not start ({named(_engines[key])}); it states why in the job's output"
        raise ModelError(f"model {loaded.record.name}: {reason}.")
    return _engines[key], vllm.__version__


def _generate(loaded: LoadedModel, engine, prompts: list[PreparedPrompt]) -> list[dict]:
    from vllm import SamplingParams

    parameters, end_ids = [], end_token_ids(loaded)
    for prompt in prompts:
        decoding = prompt.decoding
        parameters.append(
            SamplingParams(
                temperature=decoding["temperature"],
                top_k=decoding["top_k"] or -1,
                top_p=decoding["top_p"] or 1.0,
                min_p=decoding.get("min_p") or 0.0,
                repetition_penalty=decoding["repetition_penalty"] or 1.0,
                seed=prompt.seed(8) if decoding["temperature"] else None,
                max_tokens=max(1, prompt.max_new_tokens),
                stop=[] if prompt.rendered is not None else prompt.stops,  # a chat turn may begin with an empty line
                stop_token_ids=sorted(end_ids),
                include_stop_str_in_output=True,
            )
        )
    inputs = [{"prompt_token_ids": prompt.ids} for prompt in prompts]
    outcomes = []
    for prompt, request in zip(prompts, engine.generate(inputs, parameters, use_tqdm=False), strict=True):
        completion = request.outputs[0]
        ids, reason = list(completion.token_ids), "length" if completion.finish_reason == "length" else "eos"
        if reason == "eos" and ids and ids[-1] in end_ids:
            ids = ids[:-1]
        outcomes.append(outcome_of(loaded, prompt, ids, reason))
    return outcomes
