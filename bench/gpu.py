"""Time entire evaluations of an 8B model on one GPU, without network or weights, against lm-eval and vLLM.

    python bench/gpu.py [--tokenizer DIRECTORY] [--sets mmlu5,belebele,blimp,generate5] [--share 1] [--peer-share 0.1]
    python bench/gpu.py --shape tiny --device cpu --share 0.002 --peer-share 0.002

The model is a llama with random bfloat16 weights, made on the device, in the shape of Llama 3.1 8B. The sets have the
shapes of MMLU (57 subjects, 14,042 questions of about 110 tokens behind 5 examples), Belebele (900 questions in one
language), BLiMP (134,000 sentences) and 5-shot generation. Requests are built by the protocols before the clock starts;
Vernacular's time is that of an inference job after loading: reading, tokenization, computation, and the store.

lm-eval is HFLM with the same model in memory, at the largest of several batch sizes that is fastest, and takes turns
with Vernacular on the first `--peer-share` of the requests; vLLM, where installed, runs afterwards in a process of its
own with weights of its own. MFU is 2 x parameters x tokens that the model reads, padding included, divided by the
seconds and the peak of the device (`--peak-tflops` if it is not known).
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1"}

import torch
from gpu_sets import SETS, SHAPES, make_tokenizer, write_requests
from transformers import LlamaConfig, LlamaForCausalLM
from vernacular.core import artifacts
from vernacular.core.logs import Progress
from vernacular.core.model_record import ModelRecord
from vernacular.core.processes import StopFlag
from vernacular.inference.engine import Local
from vernacular.inference.job.run import Pipeline
from vernacular.inference.job.store import Store
from vernacular.inference.job.work import work_units
from vernacular.inference.model.loaded import LoadedModel, wrap
from vernacular.protocols.schema import REQUESTS

PEAK_TFLOPS = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362}  # dense bfloat16, from the vendor's data sheets
BATCH_SIZES = (64, 32, 16, 8)
SPAN = ("span_start", "span_end")


def make_model(shape: str, device: str) -> LlamaForCausalLM:
    """Return a model with random weights, made on the device."""
    torch.manual_seed(0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(LlamaConfig(**SHAPES[shape], tie_word_embeddings=False))
    finally:
        torch.set_default_dtype(default)
    return model.eval()


class Meter:
    """Seconds, tokens that the decoder reads, forward passes and peak memory of a block."""

    def __init__(self, model: LlamaForCausalLM):
        self.model, self.tokens, self.forwards, self.peak_gb = model, 0, 0, 0.0

    def __enter__(self) -> "Meter":
        def count(module, args, kwargs):
            self.tokens += kwargs["input_ids"].numel() if "input_ids" in kwargs else args[0].numel()
            self.forwards += 1

        self.handle = self.model.get_decoder().register_forward_pre_hook(count, with_kwargs=True)
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()
            self.peak_gb = torch.cuda.max_memory_allocated() / 1e9
        self.seconds = time.perf_counter() - self.started
        self.handle.remove()


class InMemory(Local):
    """An engine of a model that is in memory."""

    def __init__(self, loaded: LoadedModel):
        self.record, self.loaded, self.device = loaded.record, loaded, loaded.device
        self.is_asynchronous, self.shares_prompts = loaded.is_asynchronous, True


def run_vernacular(loaded: LoadedModel, paths: dict[str, Path], meter: Meter) -> tuple[list[float], int]:
    """Return (summed log-probability of each request, tokens of the trie) of all evaluations, as in a job."""
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        with meter:
            units = work_units(loaded.record, paths)
            pipeline = Pipeline(InMemory(loaded), units, store, StopFlag(), overlaps=True)
            _, failed = pipeline.run(lambda *_: None, Progress("bench", len(units), "evaluation"))
        if failed:
            raise SystemExit(f"failed: {failed}")
        values, tokens = [], 0
        for unit in units:
            table, metadata = store.get(unit.key, unit.kind)
            tokens += metadata["counters"].get("tokens_trie", 0)
            if unit.kind.name == "scores":
                values += [sum(row) for row in table["logprobs"].to_pylist()]
    return values, tokens


def instances(paths: dict[str, Path]) -> list:
    """Return lm-eval's requests for the same texts."""
    from lm_eval.api.instance import Instance

    found = []
    for path in paths.values():
        for row in artifacts.read(path, REQUESTS).to_pylist():
            text = row["prefix"] + row["text"]
            if row["kind"] == "score":
                start, end = (row[name] for name in SPAN)
                arguments = (text[:start].rstrip(), text[len(text[:start].rstrip()) : end])
            else:
                arguments = (text, {"until": list(row["stop"] or []), "max_gen_toks": row["max_new_tokens"]})
            kind = "loglikelihood" if row["kind"] == "score" else "generate_until"
            found.append(Instance(request_type=kind, doc={}, arguments=arguments, idx=len(found)))
    return found


def run_lm_eval(hflm, requests: list, meter: Meter) -> list[float]:
    """Return the log-likelihood of each request, or nothing for generation."""
    with meter:
        if requests[0].request_type == "loglikelihood":
            return [value for value, _ in hflm.loglikelihood(requests, disable_tqdm=True)]
        hflm.generate_until(requests, disable_tqdm=True)
    return []


def fastest_batch_size(hflm, requests: list) -> int:
    """Return the fastest batch size on a few requests; sizes that do not fit, or follow a faster one, are left out."""
    best = (float("inf"), BATCH_SIZES[-1])
    for size in BATCH_SIZES:
        hflm.batch_size_per_gpu = size
        try:
            with Meter(hflm.model) as meter:
                run_lm_eval(hflm, requests[: 2 * BATCH_SIZES[0]], Meter(hflm.model))
        except torch.cuda.OutOfMemoryError:
            continue
        if meter.seconds > best[0]:
            break
        best = (meter.seconds, size)
    return best[1]


def print_row(name: str, engine: str, meter: Meter, tokens: int, peak_tflops: float | None, notes: str = "") -> None:
    """Print a row of the table."""
    decoder = meter.model.get_decoder()
    parameters = sum(p.numel() for p in meter.model.parameters()) - decoder.embed_tokens.weight.numel()
    flops = 2 * parameters * meter.tokens
    mfu = f"{flops / meter.seconds / peak_tflops / 1e12:.0%}" if peak_tflops else "unknown"
    over = f"{meter.tokens / tokens:.2f}" if tokens else ""
    cells = [name, engine, f"{meter.seconds:.1f}", str(meter.tokens), over, mfu, f"{meter.peak_gb:.1f}", notes]
    print(f"| {' | '.join(cells)} |", flush=True)


def compare(name: str, loaded: LoadedModel, arguments: argparse.Namespace, peak_tflops: float | None) -> None:
    """Print the rows of a set: Vernacular on all of it, then Vernacular and the others on the same part of it."""
    with tempfile.TemporaryDirectory() as directory:
        meter = Meter(loaded.model)
        _, tokens = run_vernacular(loaded, write_requests(name, arguments.share, Path(directory)), meter)
        print_row(name, "vernacular", meter, tokens, peak_tflops, f"share {arguments.share}")
    with tempfile.TemporaryDirectory() as directory:
        paths = write_requests(name, arguments.peer_share, Path(directory))
        meter = Meter(loaded.model)
        values, tokens = run_vernacular(loaded, paths, meter)
        seconds = meter.seconds
        print_row(name, "vernacular", meter, tokens, peak_tflops, f"share {arguments.peer_share}")
        if importlib.util.find_spec("lm_eval"):
            from lm_eval.models.huggingface import HFLM

            hflm = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=1)
            hflm.batch_size_per_gpu = fastest_batch_size(hflm, requests := instances(paths))
            peer_values = run_lm_eval(hflm, requests, meter := Meter(loaded.model))
            notes = f"ratio {meter.seconds / seconds:.1f}, batch size {hflm.batch_size_per_gpu}"
            if peer_values:
                differences = sorted(abs(a - b) for a, b in zip(values, peer_values, strict=True))
                notes += f", difference {differences[len(differences) // 2]:.1e} (median), {differences[-1]:.1e} nats"
            print_row(name, "lm_eval", meter, tokens, peak_tflops, notes)
    if arguments.device == "cuda" and importlib.util.find_spec("vllm"):
        command = [sys.executable, str(Path(__file__).parent / "gpu_vllm.py"), name, str(arguments.peer_share)]
        command += [arguments.shape, *([arguments.tokenizer] if arguments.tokenizer else [])]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        peer_seconds = float(output.splitlines()[-1])
        print(f"| {name} | vllm | {peer_seconds:.1f} | | | | | ratio {peer_seconds / seconds:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tokenizer", help="directory of a tokenizer; default: one token for each word")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--share", type=float, default=1.0, help="share of each set's items")
    parser.add_argument("--peer-share", type=float, default=0.1, help="the same, for the comparison")
    parser.add_argument("--peak-tflops", type=float, help="of the device, dense, in the model's dtype")
    arguments = parser.parse_args()
    peak = arguments.peak_tflops
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    if arguments.device == "cuda":
        name = torch.cuda.get_device_name()
        peak = peak or next((tflops for key, tflops in PEAK_TFLOPS.items() if key in name), None)
        print(f"{name}, torch {torch.__version__}")
    record = ModelRecord(name="bench", kind="causal", fingerprint="bench", chat=False)
    loaded = wrap(make_model(arguments.shape, arguments.device), make_tokenizer(arguments.tokenizer), record)
    print("| set | engine | seconds | tokens read | / trie | MFU | peak GB | |\n|---|---|---|---|---|---|---|---|")
    for name in arguments.sets.split(","):
        compare(name, loaded, arguments, peak)


if __name__ == "__main__":
    main()
