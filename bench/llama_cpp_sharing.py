"""Compare GGUF files as llama.cpp runs them with their conversion, with one text at a time, and with long texts alone.

    python bench/llama_cpp_sharing.py FILE.gguf [--items 16] [--reps 2] [--parts run,letters,tokens]

`run`: from command to table, 16 items with 5 examples in letters, in a new directory: `dtype: auto` (llama.cpp) and
`dtype: float32` (converted; as before): processor seconds of all processes, peak memory of the job, MB written.
`letters`: such requests in one process: as planned, and one text after the other with the logits of all tokens, as
Evalution's engine does; values are compared. `tokens`: a text of 512 tokens, of which the last half is scored, by the
engine and by the calls of llama.cpp's perplexity tool. Processor seconds, one thread, in turns.
"""

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CONFIG = """
models: {{mine: {{source: {file}, dtype: {dtype}, device: cpu}}}}
evaluations: [{{task: belebele, languages: [{language}], protocols: [letters], shots: [{shots}], limit: {items}}}]
data: samples
"""


def whole_run(file: Path, items: int, dtype: str) -> dict[str, float]:
    """Return processor seconds, peak MB of the job, and MB written, of a run in a new directory."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"file": file, "dtype": dtype, "items": items, "language": "gl", "shots": 2}
        Path(directory, "c.yaml").write_text(CONFIG.format(**settings))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-m", "vernacular", "run", "c.yaml", "-c1"]
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


def letters(engine, items: int, reps: int) -> None:
    import pyarrow as pa
    from score import requests_of
    from vernacular.inference.schema import SCORES, MemoryJournal
    from vernacular.protocols.schema import REQUESTS

    rows = [
        dict.fromkeys(REQUESTS.schema.names)
        | {"request_id": str(n), "item_id": str(n), "role": "choice:0", "kind": "score", "prefix": stem, "text": letter}
        | {"span_start": len(stem), "span_end": len(stem + letter)}
        for n, (stem, letter) in enumerate(requests_of("letters5", items))
    ]
    table = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
    seconds: dict[str, list[float]] = {}
    tokenizer = engine.loaded.tokenizer
    texts = [tokenizer(row["prefix"] + row["text"])["input_ids"] for row in rows]
    plain = Plain(engine.loaded, max(map(len, texts)))
    for _ in range(reps):
        with clock(seconds, "vernacular"), engine.model(engine.record):
            prepared = engine.prepare(SCORES, table)
            engine.compute(prepared, MemoryJournal())
            scores = engine.finish(prepared)[0].slice().to_pylist()
        with clock(seconds, "one text at a time, all logits"):
            values = []
            for ids in texts[:8]:
                row = plain.logits(ids, 0)[-2].astype(np.float64)
                values.append(row[ids[-1]] - np.logaddexp.reduce(row))
        seconds["one text at a time, all logits"][-1] *= len(texts) / 8  # the same for each text
    own = [row["logprobs"][-1] for row in scores]
    print(f"letters: {len(rows)} requests, largest difference {np.abs(np.subtract(values, own[:8])).max():.1e} nats")
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(times, seconds["vernacular"], strict=True)]
        print(f"  {name}: {min(times):.2f} processor seconds, ratio {np.median(ratios):.2f}")


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
    parser.add_argument("--parts", default="run,letters,tokens")
    args = parser.parse_args()
    file, parts = args.file.resolve(), args.parts.split(",")
    if "run" in parts:
        runs = {dtype: whole_run(file, args.items, dtype) for dtype in ("auto", "float32")}
        for name, value in runs["auto"].items():
            print(f"run, {name}: {value:.1f} of {runs['float32'][name]:.1f}, {value / runs['float32'][name]:.3f}")
    if {"letters", "tokens"} & {*parts}:
        from vernacular.core.model_record import ModelRecord
        from vernacular.inference.engine import LlamaCpp

        engine = LlamaCpp(ModelRecord(name="mine", directory=str(file), kind="causal"), threads=1)
        if "letters" in parts:
            letters(engine, args.items, args.reps)
        if "tokens" in parts:
            tokens(engine, args.reps)


if __name__ == "__main__":
    main()
