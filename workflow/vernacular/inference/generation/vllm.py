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
    Prompt,
    answer_of,
    check_can_generate,
    continuation,
    prompts_of,
    row_of,
    stop_at,
)
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.schema import GENERATIONS, iter_rows, rows_to_table

PART = 512  # prompts per journal entry

_engines: dict[str, object] = {}  # by model fingerprint: startup takes a minute


def generate(loaded: LoadedModel, requests: pa.Table, *, journal, progress: bool = False) -> tuple[pa.Table, dict]:
    """Run the generate requests of one evaluation; see `generate.generate`.

    Raises ModelError if vLLM is not installed.
    """
    check_can_generate(loaded)
    engine, version = _engine(loaded)
    started = time.perf_counter()
    prompts = prompts_of(loaded, requests)
    askable = sorted((p for p in prompts.values() if p.error is None), key=lambda p: (p.ids, p.request_id))
    found: dict[str, dict] = {}
    for start in range(0, len(askable), PART):
        part = askable[start : start + PART]
        name = fingerprint(["vllm", [prompt.request_id for prompt in part]])
        outcomes = journal.done(name)
        if outcomes is None:
            with journal.finishing():
                outcomes = _outcomes(loaded, engine, part, progress)
                journal.add(name, outcomes)
        found.update({prompt.request_id: outcome for prompt, outcome in zip(part, outcomes, strict=True)})
    table = rows_to_table((row_of(row, prompts, found) for row in iter_rows(requests)), GENERATIONS.schema)
    counters = {
        "requests": requests.num_rows,
        "distinct": len(prompts),
        "seconds": round(time.perf_counter() - started, 3),
    }
    return table, {"model": loaded.facts(), "engine": {"name": "vllm", "version": version}, "counters": counters}


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
            model=str(loaded.record["folder"]),
            dtype=str(loaded.dtype).removeprefix("torch."),
            max_model_len=loaded.max_length,
            gpu_memory_utilization=0.9 * free / total,
            enable_prefix_caching=True,
        )
    return _engines[key], vllm.__version__


def _outcomes(loaded: LoadedModel, engine, prompts: list[Prompt], progress: bool) -> list[dict]:
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
    asked = [{"prompt_token_ids": prompt.ids} for prompt in prompts]
    return [
        _outcome(loaded, prompt, output.outputs[0])
        for prompt, output in zip(prompts, engine.generate(asked, parameters, use_tqdm=progress), strict=True)
    ]


def _outcome(loaded: LoadedModel, prompt: Prompt, output) -> dict:
    ids = list(output.token_ids)
    raw = continuation(loaded.tokenizer, prompt.ids, ids)
    stopped = stop_at(raw, prompt.stops, after_blank=prompt.rendered is not None) is not None
    reason = "stop" if stopped else "length" if output.finish_reason == "length" else "eos"
    answer = answer_of(raw, prompt.stops, after_blank=prompt.rendered is not None)
    return {"raw_output": raw, "output": answer, "finish_reason": reason, "n_tokens": len(ids), "error": None}
