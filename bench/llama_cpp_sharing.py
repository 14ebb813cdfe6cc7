"""Compare GGUF files as llama.cpp runs them with their conversion, with one text at a time, and with long texts alone.

    python bench/llama_cpp_sharing.py FILE.gguf [--items 16] [--reps 2] [--parts run,letters,tokens,peers]

`run`: from command to table, the 6 sample items of Belebele with 2 examples in letters, in a new directory, with
`dtype: auto` (llama.cpp) and `dtype: float32` (converted; `--before`: by the Python of an earlier version): processor
seconds of all processes, peak memory of the job, MB written; medians of `--reps` turns.
`letters`: such requests in one process: as planned, and one text after the other with the logits of all tokens, as
Evalution's engine does; values are compared. `tokens`: a text of 512 tokens, of which the last half is scored, by the
engine and by the calls of llama.cpp's perplexity tool. `peers`: the requests of `letters` with Evalution's llama.cpp
engine, and with lm-eval's `gguf` model and llama-cpp-python's server, in an environment that has all of them:
`pip install . evalution==0.0.17 lm_eval==0.4.13 'llama-cpp-python[server]==0.3.36' psutil torch`. Processor seconds,
one thread, in turns.
"""

import argparse
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CONFIG = """
models: {{mine: {{source: {file}, dtype: {dtype}, device: cpu}}}}
evaluations: [{{task: belebele, languages: [gl], protocols: [letters], shots: [2]}}]
data: samples
"""


def whole_run(file: Path, dtype: str, python: str = sys.executable) -> dict[str, float]:
    """Return processor seconds, peak MB of the job, and MB written, of a run in a new directory."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "c.yaml").write_text(CONFIG.format(file=file, dtype=dtype))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        environment["PATH"] = f"{Path(python).parent}:{os.environ['PATH']}"
        command = [python, "-m", "vernacular", "run", "c.yaml", "-c1"]
        subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        (benchmark,) = Path(directory).glob("benchmarks/infer/*")
        header, *rows = (line.split("\t") for line in benchmark.read_text().splitlines())
        written = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
        return {
            "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "job MB": max(float(row[header.index("max_rss")]) for row in rows),
            "written MB": written / 1e6,
        }


class Plain:
    """llama.cpp as other tools call it: a context, and one text per call."""

    def __init__(self, loaded, size: int):
        self.loaded, self.llama = loaded, loaded.llama
        parameters = self.llama.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = size
        parameters.n_threads = parameters.n_threads_batch = 1
        parameters.type_k = parameters.type_v = self.llama.GGML_TYPE_F32
        parameters.flash_attn_type = self.llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = self.llama.llama_init_from_model(loaded.model, parameters)
        self.batch = self.llama.llama_batch_init(size, 0, 1)

    def logits(self, ids, first: int) -> np.ndarray:
        """Return the logits after the tokens from `first`."""
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), False)
        self.batch.n_tokens = len(ids)
        for position, token in enumerate(ids):
            self.batch.token[position], self.batch.pos[position] = int(token), position
            self.batch.n_seq_id[position], self.batch.seq_id[position][0] = 1, 0
            self.batch.logits[position] = position >= first
        assert self.llama.llama_decode(self.context, self.batch) == 0
        values = self.llama.llama_get_logits(self.context)
        return np.ctypeslib.as_array(values, shape=(len(ids) - first, self.loaded.n_embeddings))


@contextlib.contextmanager
def clock(seconds: dict[str, list[float]], name: str):
    start = time.process_time()
    yield
    seconds.setdefault(name, []).append(time.process_time() - start)


def requests_table(pairs: list[tuple[str, str]]):
    """Return the requests that score the second text of each pair after the first."""
    import pyarrow as pa
    from vernacular.protocols.schema import REQUESTS

    rows = [
        dict.fromkeys(REQUESTS.schema.names)
        | {"request_id": str(n), "item_id": str(n), "role": "choice:0", "kind": "score", "prefix": stem, "text": letter}
        | {"span_start": len(stem), "span_end": len(stem + letter)}
        for n, (stem, letter) in enumerate(pairs)
    ]
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


def logprobs(engine, table) -> list[float]:
    """Return the log-probability of each request's last token, computed as the job does it."""
    from vernacular.inference.schema import SCORES, MemoryJournal

    with engine.model(engine.record):
        prepared = engine.prepare(SCORES, table)
        engine.compute(prepared, MemoryJournal())
        return [row["logprobs"][-1] for row in engine.finish(prepared)[0].slice().to_pylist()]


def letters(engine, items: int, reps: int) -> None:
    from score import requests_of

    pairs = requests_of("letters5", items)
    table = requests_table(pairs)
    seconds: dict[str, list[float]] = {}
    texts = [engine.loaded.tokenizer(stem + letter)["input_ids"] for stem, letter in pairs]
    plain = Plain(engine.loaded, max(map(len, texts)))
    for _ in range(reps):
        with clock(seconds, "vernacular"):
            own = logprobs(engine, table)
        with clock(seconds, "one text at a time, all logits"):
            values = []
            for ids in texts[:8]:
                row = plain.logits(ids, 0)[-2].astype(np.float64)
                values.append(row[ids[-1]] - np.logaddexp.reduce(row))
        seconds["one text at a time, all logits"][-1] *= len(texts) / 8  # the same for each text
    print(f"letters: {len(pairs)} requests, largest difference {np.abs(np.subtract(values, own[:8])).max():.1e} nats")
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(times, seconds["vernacular"], strict=True)]
        print(f"  {name}: {min(times):.2f} processor seconds, ratio {np.median(ratios):.2f}")


def evalution(file: Path, size: int):
    """Return a function that scores pairs with Evalution's engine."""
    from evalution.config import Model
    from evalution.engines import LlamaCpp
    from evalution.engines.base import LoglikelihoodRequest

    settings = {"n_ctx": size, "n_batch": size, "n_threads": 1, "n_threads_batch": 1}
    cache = {"type_k": 0, "type_v": 0}  # float32, as here; its default, float16, has other values
    session = LlamaCpp(**settings, llama_kwargs=cache).build(Model(path=str(file)))

    def score(pairs):
        requests = [LoglikelihoodRequest(stem, letter) for stem, letter in pairs]
        return [output.logprob for output in session.loglikelihood(requests)]

    return score


@contextlib.contextmanager
def lm_eval_gguf(file: Path, size: int):
    """Start llama-cpp-python's server; yield a function that scores pairs with lm-eval's `gguf` model, and a clock."""
    import psutil
    import requests
    from lm_eval.api.instance import Instance
    from lm_eval.models.gguf import GGUFLM

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"model": file, "logits_all": "true", "n_ctx": size, "n_batch": size, "port": port}
    options |= {"n_threads": 1, "n_threads_batch": 1, "type_k": 0, "type_v": 0, "verbose": "false"}
    command = [sys.executable, "-m", "llama_cpp.server", *(f"--{name}={value}" for name, value in options.items())]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address, process = f"http://127.0.0.1:{port}", psutil.Process(server.pid)
            while True:
                with contextlib.suppress(requests.ConnectionError):
                    requests.get(f"{address}/v1/models", timeout=60).raise_for_status()
                    break
                time.sleep(0.5)
                if server.poll() is not None:
                    sys.exit(f"{' '.join(command)}\nended with {server.returncode}")
            model = GGUFLM(base_url=address)

            def score(pairs):
                instances = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]
                return [value for value, _ in model.loglikelihood(instances, disable_tqdm=True)]

            yield score, lambda: time.process_time() + sum(process.cpu_times()[:2])
        finally:
            server.terminate()


def peers(engine, items: int, reps: int) -> None:
    from score import requests_of

    pairs = requests_of("letters5", items)
    size = max(len(engine.loaded.tokenizer(stem + letter)["input_ids"]) for stem, letter in pairs) + 8
    file, table = Path(engine.record.directory), requests_table(pairs)
    evaluate = evalution(file, size)
    with lm_eval_gguf(file, size) as (gguf, clock_of_both):
        tools = {
            "vernacular": (lambda: logprobs(engine, table), time.process_time),
            "Evalution": (lambda: evaluate(pairs), time.process_time),
            "lm-eval gguf": (lambda: gguf(pairs), clock_of_both),
        }
        seconds, values = {name: [] for name in tools}, {}
        for _ in range(reps):
            for name, (run, clock_of) in tools.items():
                start = clock_of()
                values[name] = run()
                seconds[name].append(clock_of() - start)
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(times, seconds["vernacular"], strict=True)]
        difference = np.abs(np.subtract(values[name], values["vernacular"])).max()
        print(
            f"peers, {name}: {min(times):.2f} processor seconds, ratio {np.median(ratios):.2f}, {difference:.1e} nats"
        )


def tokens(engine, reps: int) -> None:
    loaded, seconds = engine.loaded, {}
    ids = np.random.default_rng(0).integers(100, loaded.n_embeddings - 100, 512).astype(np.int32)
    from vernacular.inference.llama.score import reduce

    plain = Plain(loaded, 512)
    for _ in range(reps):
        with clock(seconds, "vernacular"):
            loaded.open_context(512)
            logits = loaded.read(ids, 0, 0, np.arange(256, 512))
            reduce(logits[:-1], np.arange(255), ids[257:], extras=frozenset(), starts=None)
        with clock(seconds, "perplexity tool"):
            rows = plain.logits(ids, 256)
            for row, target in zip(rows[:-1], ids[257:], strict=True):
                _ = row[target] - row.max() - np.log(np.exp(row - row.max()).sum())
    for name, times in seconds.items():
        print(f"tokens, {name}: {512 / min(times):.1f} per processor second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--parts", default="run,letters,tokens", help="peers: in another environment")
    parser.add_argument("--before", default=sys.executable, metavar="PYTHON")
    args = parser.parse_args()
    file, parts = args.file.resolve(), args.parts.split(",")
    if "run" in parts:
        turns = [(whole_run(file, "auto"), whole_run(file, "float32", args.before)) for _ in range(args.reps)]
        for name in turns[0][0]:
            own, other = (statistics.median(run[name] for run in side) for side in zip(*turns, strict=True))
            print(f"run, {name}: {own:.1f} of {other:.1f}, {own / other:.3f}")
    if {"letters", "tokens", "peers"} & {*parts}:
        from vernacular.core.model_record import ModelRecord
        from vernacular.inference.engine import LlamaCpp

        engine = LlamaCpp(ModelRecord(name="mine", directory=str(file), kind="causal"), threads=1)
        if "letters" in parts:
            letters(engine, args.items, args.reps)
        if "tokens" in parts:
            tokens(engine, args.reps)
        if "peers" in parts:
            peers(engine, args.items, args.reps)


if __name__ == "__main__":
    main()
