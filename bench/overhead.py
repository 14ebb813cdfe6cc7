"""Measure the work of the scoring engine that is not the model's: forward passes cost nothing here.

    python bench/overhead.py --model DIRECTORY [--sets sentences,letters5] [--requests 2000] [--reps 3]

The tokenizer and the config are those of DIRECTORY; the model has no weights, and its passes and the reduction of its
logits return zeros at once. The requests are built by the protocols, written to a file and read again, as in a run.
Prints CPU seconds per 10,000 requests, by part, of the turn with the smallest total (sets take turns), and the total
per million tokens of the trie. Seconds of all threads are counted.
"""

import argparse
import os
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1"}

import torch
from score import words
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from vernacular.core import artifacts
from vernacular.core.model_record import ModelRecord
from vernacular.inference.job.store import Store
from vernacular.inference.job.work import work_units
from vernacular.inference.model.loaded import LoadedModel, wrap
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.scoring.head import Head
from vernacular.inference.scoring.score import Scoring
from vernacular.inference.scoring.strategy import Check
from vernacular.protocols.build import build
from vernacular.protocols.schema import REQUESTS

# set: (item type, protocol, shots)
SETS = {
    "sentences": ("sentence", "acceptability", 0),
    "letters5": ("question", "letters", 5),
    "text5": ("question", "options", 5),
    "passages": ("question", "letters", 5),
}
PARTS = ("reading", "preparing", "computing", "rows", "writing")
N_EXAMPLES = 8  # items that few-shot examples are drawn from


def passage(rng: random.Random) -> str:
    """Return a text of about 100 tokens, with numbers and punctuation, as in Belebele."""
    sentences = []
    for _ in range(rng.randint(4, 6)):
        year = f", in {rng.randint(1500, 2024)}" if rng.random() < 0.3 else ""
        note = f" ({words(rng, 2)})" if rng.random() < 0.3 else ""
        sentences.append(f"{words(rng, rng.randint(10, 22)).capitalize()}{year}{note}.")
    return " ".join(sentences)


def items(name: str, n_requests: int, seed: int) -> list[dict]:
    """Return the items of a set; two questions share a passage."""
    rng = random.Random(f"{name} {seed}")
    empty = {"question": "", "choices": [], "target": None, "cluster_id": None, "category": None, "extra": []}
    n_items = n_requests if name == "sentences" else n_requests // 4
    rows, context = [], ""
    for number in range(n_items + N_EXAMPLES):
        row = {**empty, "item_id": str(number), "source_row": number, "few_shot": number < N_EXAMPLES}
        if name == "sentences":
            row |= {"context": words(rng, rng.randint(6, 18)).capitalize() + ".", "gold": [number % 2]}
        else:
            context = passage(rng) if name == "passages" and number % 2 == 0 else context
            row |= {"context": context, "question": words(rng, 14).capitalize() + "?", "gold": [rng.randrange(4)]}
            row |= {"choices": [words(rng, 6 if name == "text5" else 5) for _ in range(4)]}
        rows.append(row)
    return rows


def write_requests(name: str, n_requests: int, directory: Path, seed: int = 0) -> Path:
    """Write the requests file of a set, whose texts depend on `seed`, and return its path."""
    import pyarrow as pa

    item_type, protocol, shots = SETS[name]
    settings = {"language": "en", "protocol": protocol, "shots": shots, "seed": 0, "style": "default", "options": {}}
    task = {"task": f"{name}{seed}", "item_type": item_type, "protocols": [protocol]}
    rows, metadata = build(items(name, n_requests, seed), task, **settings)
    table = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
    metadata |= {"fingerprint": f"{name} {seed}"}
    return artifacts.write(directory / f"{name}.parquet", REQUESTS, table, metadata)


def free_model(directory: str, **settings) -> LoadedModel:
    """Return a model whose passes cost nothing; `settings` as in a config."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))
    fields = {"kind": "causal", "fingerprint": "bench", "directory": directory, "chat": False}
    loaded = wrap(model, AutoTokenizer.from_pretrained(directory), ModelRecord(name="bench", **fields | settings))
    loaded.device = torch.device("cpu")
    zero = torch.zeros(1, 1, 1)

    def body(input_ids=None, position_ids=None, attention_mask=None, past_key_values=None, use_cache=None):
        return BaseModelOutputWithPast(last_hidden_state=zero.expand(*input_ids.shape, 1))

    def forward(input_ids=None):  # called with the body's output substituted
        return CausalLMOutputWithPast(logits=model.get_decoder().forward(input_ids).last_hidden_state)

    model.get_decoder().forward, model.forward = body, forward
    loaded.checks["tree"] = Check("tree", agrees=True, difference=0.0, tokens=10**9)
    return loaded


def zeros(self, logits, indices, targets):
    """Return outputs without reading the logits."""
    return {"is_greedy": torch.zeros(len(targets), dtype=torch.bool), "logprobs": torch.zeros(len(targets))}


def measure(loaded: LoadedModel, path: Path, directory: Path) -> tuple[list[float], int, int]:
    """Return (CPU seconds by part, tokens in the trie, number of requests)."""
    times = [time.process_time()]

    def lap(value):
        times.append(time.process_time())
        return value

    [unit] = work_units(loaded.record, {path.stem: path})
    requests = lap(unit.requests())
    scoring = lap(Scoring(loaded, requests))
    lap(scoring.compute(MemoryJournal()))
    table, metadata = lap(scoring.finish())
    with tempfile.TemporaryDirectory(dir=directory) as store:
        lap(Store(store).put(unit.key, unit.kind, table, metadata))
    seconds = [after - before for before, after in pairwise(times)]
    return seconds, metadata["counters"]["tokens_trie"], table.num_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--reps", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    Head._reduce = zeros
    loaded = free_model(arguments.model)
    names = arguments.sets.split(",")
    with tempfile.TemporaryDirectory() as directory:
        paths = {name: write_requests(name, arguments.requests, Path(directory)) for name in names}
        turns = [
            {name: measure(loaded, path, Path(directory)) for name, path in paths.items()}
            for _ in range(arguments.reps)
        ]
    print(f"| set | {' | '.join(PARTS)} | CPU s per 10,000 requests | CPU s per million tokens of the trie |")
    print(f"|{'---|' * (len(PARTS) + 3)}")
    for name in names:
        seconds, tokens, rows = min((turn[name] for turn in turns), key=lambda result: sum(result[0]))
        parts = [f"{10_000 * part / rows:.2f}" for part in seconds]
        total = f"{10_000 * sum(seconds) / rows:.2f} | {1e6 * sum(seconds) / tokens:.0f}"
        print(f"| `{name}` | {' | '.join(parts)} | {total} |")


if __name__ == "__main__":
    main()
