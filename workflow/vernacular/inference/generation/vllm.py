"""Generation with vLLM, for GPUs where it is installed; the same rows as `generate.generate`.

Prompts, lengths, stop strings and flags are computed by Vernacular; batching, prefix caching and sampling by vLLM. vLLM
has its own random streams, so a sampled text differs from that of the transformers engine with the same seed; greedy
texts agree up to floating-point noise.
"""

import time

import pyarrow as pa
import torch

from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generation.prepare import (
    PreparedPrompt,
    check_can_generate,
    decode_continuation,
    find_stop,
    output_row,
    prepare_prompts,
    truncate_output,
)
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.schema import GENERATIONS, iter_rows, rows_to_table

CHUNK_SIZE = 512  # prompts per journal entry

_engines: dict[str, object] = {}  # by model fingerprint: startup takes a minute


def generate(loaded: LoadedModel, requests: pa.Table, *, journal) -> tuple[pa.Table, dict]:
    """Run the generate requests of one evaluation; see `generate.generate`.

    Raises ModelError if vLLM is not installed.
    """
    generation = Generation(loaded, requests)
    generation.compute(journal)
    return generation.finish()


class Generation:
    """One evaluation; see `generate.Generation`."""

    def __init__(self, loaded: LoadedModel, requests: pa.Table):
        check_can_generate(loaded)
        started = time.perf_counter()
        self.loaded, self.requests = loaded, requests
        self.prompts = prepare_prompts(loaded, requests)
        self.outcomes: dict[str, dict] = {}  # by request ID
        self.seconds = time.perf_counter() - started

    def compute(self, journal) -> None:
        """Run the model on all prompts. Raises ModelError if vLLM is not installed."""
        engine, self.version = _engine(self.loaded)
        started = time.perf_counter()
        prompts = sorted((p for p in self.prompts.values() if p.error is None), key=lambda p: (p.ids, p.request_id))
        for start in range(0, len(prompts), CHUNK_SIZE):
            chunk = prompts[start : start + CHUNK_SIZE]
            name = fingerprint(["vllm", [prompt.request_id for prompt in chunk]])
            outcomes = journal.get(name)
            if outcomes is None:
                with journal.defer_signals():
                    outcomes = _outcomes(self.loaded, engine, chunk)
                    journal.add(name, outcomes)
            self.outcomes |= {prompt.request_id: outcome for prompt, outcome in zip(chunk, outcomes, strict=True)}
        self.model_metadata = self.loaded.metadata()
        self.seconds += time.perf_counter() - started

    def finish(self) -> tuple[pa.Table, dict]:
        """Return (table, metadata), see `generate`."""
        rows = (output_row(row, self.prompts, self.outcomes) for row in iter_rows(self.requests))
        counters = {
            "requests": self.requests.num_rows,
            "distinct": len(self.prompts),
            "seconds": round(self.seconds, 3),
        }
        metadata = {"model": self.model_metadata, "engine": {"name": "vllm", "version": self.version}}
        return rows_to_table(rows, GENERATIONS.schema), {**metadata, "counters": counters}


def _engine(loaded: LoadedModel):
    """Return (vllm.LLM, version) for the model's directory, limited to the GPU memory that is still free."""
    try:
        import vllm
    except ImportError:
        name = loaded.record["name"]
        raise ModelError(
            f"model {name}: the engine vllm is not installed. Install it with `pip install vernacular[vllm]`."
        ) from None
    key = loaded.record["fingerprint"]
    if key not in _engines:
        free, total = torch.cuda.mem_get_info(loaded.device)
        _engines[key] = vllm.LLM(
            model=str(loaded.record["directory"]),
            dtype=str(loaded.dtype).removeprefix("torch."),
            max_model_len=loaded.max_length,
            gpu_memory_utilization=0.9 * free / total,
            enable_prefix_caching=True,
        )
    return _engines[key], vllm.__version__


def _outcomes(loaded: LoadedModel, engine, prompts: list[PreparedPrompt]) -> list[dict]:
    from vllm import SamplingParams

    parameters = []
    for prompt in prompts:
        decoding = prompt.decoding
        seed = None if decoding["seed"] is None else int(fingerprint([decoding["seed"], prompt.request_id])[:8], 16)
        parameters.append(
            SamplingParams(
                temperature=decoding["temperature"],
                top_k=decoding["top_k"] or -1,
                top_p=decoding["top_p"] or 1.0,
                repetition_penalty=decoding["repetition_penalty"] or 1.0,
                seed=seed,
                max_tokens=max(1, prompt.max_new_tokens),
                stop=[] if prompt.rendered is not None else prompt.stops,  # a chat turn may begin with an empty line
                include_stop_str_in_output=True,
            )
        )
    inputs = [{"prompt_token_ids": prompt.ids} for prompt in prompts]
    return [
        _outcome(loaded, prompt, request_output.outputs[0])
        for prompt, request_output in zip(prompts, engine.generate(inputs, parameters, use_tqdm=False), strict=True)
    ]


def _outcome(loaded: LoadedModel, prompt: PreparedPrompt, completion) -> dict:
    ids = list(completion.token_ids)
    raw_output = decode_continuation(loaded.tokenizer, prompt.ids, ids)
    has_stop = find_stop(raw_output, prompt.stops, skip_leading_space=prompt.rendered is not None) is not None
    finish_reason = "stop" if has_stop else "length" if completion.finish_reason == "length" else "eos"
    output = truncate_output(raw_output, prompt.stops, skip_leading_space=prompt.rendered is not None)
    return {
        "raw_output": raw_output,
        "output": output,
        "finish_reason": finish_reason,
        "n_tokens": len(ids),
        "error": None,
    }
