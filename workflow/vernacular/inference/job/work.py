"""The work of an inference job: its evaluations or shards of them, by their keys in the store.

A key is a hash of the model, its options, the requests and the engine. Requests are read when their turn comes: rows
repeat the few-shot block and its turns, and those of one large evaluation would take gigabytes.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.fingerprint import code_fingerprint, fingerprint, version_of
from vernacular.inference.schema import outputs_of
from vernacular.protocols.schema import REQUESTS, generated_tokens, request_cost
from vernacular.types import ModelRecord

_KEY = ["item_id", "role", "request_id"]
_SIZE = ["text", "max_new_tokens", "longest_answer"]
_REPEATED = ("role", "kind", "prefix", "turns.list.element.role", "turns.list.element.content")
_REPEATED += ("demonstrations.list.element", "stop.list.element", "extras.list.element")


@dataclass(frozen=True)
class Question:
    """One evaluation, or a shard of it, as one model is asked."""

    evaluation: str
    path: Path  # of its requests
    rows: int  # how many of them are asked here
    items: pa.Array | None  # of these items; None: of all
    kind: Kind
    key: str
    whole: str  # the key of all of it; `key` itself where the work is not cut

    def requests(self) -> pa.Table:
        """Its rows of REQUESTS, in which what many repeat is held once."""
        table = artifacts.read(self.path, REQUESTS, repeated=_REPEATED)
        return table if self.items is None else table.filter(pc.is_in(table["item_id"], self.items))


def questions(record: ModelRecord, asked: dict[str, Path], shard: tuple[int, int] = (0, 1)) -> list[Question]:
    """What this model can be asked of `asked`, in shard k of n; without rows where the shard has no share."""
    index, count = shard
    columns = _KEY if count == 1 else _KEY + _SIZE
    kinds, tables = {}, {}
    for evaluation, path in asked.items():
        note = artifacts.metadata(path)
        if impossible(record, note) is None:
            kinds[evaluation] = outputs_of(note)
            tables[evaluation] = artifacts.read(path, REQUESTS, columns=columns)
    found = []
    for evaluation, shares in cut(tables, count).items():
        kind, part = kinds[evaluation], shares[index]
        key = evaluation_key(record, part, kind)
        whole = key if count == 1 else evaluation_key(record, tables[evaluation], kind)
        items = None if count == 1 else part["item_id"].unique()
        found.append(Question(evaluation, asked[evaluation], part.num_rows, items, kind, key, whole))
    return found


def impossible(record: ModelRecord, note: dict) -> dict | None:
    """Why this model cannot be asked this, as metadata of a file without rows; None where it can."""
    if reason := note.get("unavailable"):
        return {"unavailable": reason}
    if reason := record.get("unavailable"):
        return {"unavailable": reason}
    if record["kind"] == "masked" and note["causal_only"]:
        return {"not_applicable": f"{note['protocol']} needs a causal model; {record['name']} is a masked one"}
    return None


_AT_A_TIME = 5_000  # rows


def cut(asked: dict[str, pa.Table], shards: int) -> dict[str, list[pa.Table]]:
    """Each evaluation's requests in `shards` tables (empty ones among them): entry k is the share of shard k.

    >>> one = pa.table({"item_id": ["a", "b"], "prefix": ["", ""], "text": ["x" * 7, "x" * 7],
    ...                 "max_new_tokens": [None, None], "longest_answer": [None, None]})
    >>> [part["item_id"].to_pylist() for part in cut({"e": one}, 2)["e"]]
    [['a'], ['b']]
    """
    if shards == 1:
        return {evaluation: [table] for evaluation, table in asked.items()}
    costs = {evaluation: _costs(table) for evaluation, table in asked.items()}
    total = sum(cost for of_items in costs.values() for cost in of_items.values())
    before = 0.0
    parts = {}
    for evaluation, table in asked.items():
        shard_of = {}
        for item, cost in costs[evaluation].items():
            shard_of[item] = min(int((before + cost / 2) / total * shards), shards - 1)
            before += cost
        of_rows = [shard_of[item] for item in table["item_id"].to_pylist()]
        parts[evaluation] = [table.filter(pa.array([of == shard for of in of_rows])) for shard in range(shards)]
    return parts


def _costs(table: pa.Table) -> dict[str, float]:
    """Estimated tokens of each item, in the table's order; the block that all share is read once and not counted."""
    costs: dict[str, float] = {}
    columns = ["item_id", "text", "max_new_tokens", "longest_answer"]
    for some in table.select(columns).to_batches(max_chunksize=_AT_A_TIME):
        for item, text, new, longest in zip(*(some[name].to_pylist() for name in columns), strict=True):
            # 1: no request is free, not even an empty one
            costs[item] = costs.get(item, 0.0) + 1 + request_cost(len(text), generated_tokens(new, longest))
    return costs


# Options of a model record that change its outputs (more than float noise); device and batch size do not.
OPTIONS = (
    "kind",
    "dtype",
    "quantization",
    "bos",
    "max_length",
    "chat",
    "strategy",
    "engine",
    "gguf_file",
    "trust_remote_code",
)
ENTRIES = {
    "scores": (
        "vernacular.inference.scoring.score",
        "vernacular.inference.model.load",
        "vernacular.inference.model.base",
    ),
    "generations": (
        "vernacular.inference.generation.generate",
        "vernacular.inference.generation.vllm",
        "vernacular.inference.model.load",
        "vernacular.inference.model.base",
    ),
}
LIBRARIES = ("torch", "transformers", "tokenizers")  # their versions are read without importing them


@functools.cache
def engine_version(kind: Kind) -> str:
    """Hash of the code that makes artifacts of `kind`, and of the libraries whose numbers it passes on."""
    code = code_fingerprint(*ENTRIES[kind.name])
    return fingerprint([code, *(f"{name} {version_of(name)}" for name in LIBRARIES)])[:16]


def evaluation_key(record: ModelRecord, requests: pa.Table, kind: Kind) -> str:
    """Return the store key of an evaluation; independent of row order."""
    asked = sorted(zip(*(requests.column(c).to_pylist() for c in ("item_id", "role", "request_id")), strict=True))
    options = {name: record.get(name) for name in OPTIONS}
    engine = [engine_version(kind), *further_libraries(record, kind)]
    return fingerprint([kind.name, record["fingerprint"], options, engine, asked])[:40]


def further_libraries(record: ModelRecord, kind: Kind) -> list[str]:
    """Libraries that make numbers for this model alone, with their versions."""
    used = {
        "vllm": record.get("engine") == "vllm" and kind.name == "generations",
        "peft": bool(record.get("adapter")),
        "bitsandbytes": bool(record.get("quantization")),
    }
    return [f"{name} {version_of(name)}" for name, needed in used.items() if needed]
