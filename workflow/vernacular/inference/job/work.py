"""Work units of an inference job: evaluations or shards of them, with their keys in the store.

A key is a hash of the model, its options, the requests and the engine. Complete requests are read one work unit at a
time: their rows repeat the few-shot prefix and its turns, and those of one large evaluation would take gigabytes.
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
_SIZE = ["text", "max_new_tokens", "longest_target"]
_REPEATED = ("role", "kind", "prefix", "turns.list.element.role", "turns.list.element.content")
_REPEATED += ("few_shot_examples.list.element", "stop.list.element", "extras.list.element")


@dataclass(frozen=True)
class Question:
    """A work unit: one evaluation, or one shard of it, for one model."""

    evaluation: str
    path: Path  # of the requests file
    rows: int  # number of requests in this unit
    items: pa.Array | None  # IDs of the items in this unit; None: all
    kind: Kind
    key: str
    whole: str  # the key of the complete evaluation; equal to `key` if it is not split

    def requests(self) -> pa.Table:
        """Read the unit's rows of REQUESTS; repeated texts are dictionary-encoded."""
        table = artifacts.read(self.path, REQUESTS, repeated=_REPEATED)
        return table if self.items is None else table.filter(pc.is_in(table["item_id"], self.items))


def questions(record: ModelRecord, asked: dict[str, Path], shard: tuple[int, int] = (0, 1)) -> list[Question]:
    """Return the work units of shard k of n that this model can run.

    `asked`: requests file by evaluation ID. An evaluation of which the shard has no share becomes a unit without rows.
    """
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
    """Return why this model cannot run an evaluation, as metadata of a file without rows; None if it can."""
    if reason := note.get("unavailable"):
        return {"unavailable": reason}
    if reason := record.get("unavailable"):
        return {"unavailable": reason}
    if record["kind"] == "masked" and note["causal_only"]:
        return {"not_applicable": f"{note['protocol']} requires a causal model, and {record['name']} is a masked model"}
    return None


_AT_A_TIME = 5_000  # rows


def cut(asked: dict[str, pa.Table], shards: int) -> dict[str, list[pa.Table]]:
    """Split each evaluation's requests into `shards` tables by estimated cost; entry k is the share of shard k.

    Shares may be empty.

    >>> one = pa.table({"item_id": ["a", "b"], "prefix": ["", ""], "text": ["x" * 7, "x" * 7],
    ...                 "max_new_tokens": [None, None], "longest_target": [None, None]})
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
    """Return the estimated tokens of each item, in table order, without the few-shot prefix, which is computed once."""
    costs: dict[str, float] = {}
    columns = ["item_id", "text", "max_new_tokens", "longest_target"]
    for some in table.select(columns).to_batches(max_chunksize=_AT_A_TIME):
        for item, text, new, longest in zip(*(some[name].to_pylist() for name in columns), strict=True):
            # 1: even an empty request has a cost
            costs[item] = costs.get(item, 0.0) + 1 + request_cost(len(text), generated_tokens(new, longest))
    return costs


# Options of a model record that change its outputs by more than float noise; device and batch size do not.
OPTIONS = (
    "kind",
    "dtype",
    "quantization",
    "bos",
    "max_length",
    "chat",
    "strategy",
    "generation_engine",
    "gguf_file",
    "trust_remote_code",
)
ENTRIES = {
    "scores": (
        "vernacular.inference.scoring.score",
        "vernacular.inference.model.base",
    ),
    "generations": (
        "vernacular.inference.generation.generate",
        "vernacular.inference.generation.vllm",
        "vernacular.inference.model.base",
    ),
}
LIBRARIES = ("torch", "transformers", "tokenizers")  # their versions are read without importing them


@functools.cache
def engine_version(kind: Kind) -> str:
    """Return a hash of the code that computes artifacts of `kind`, and of the library versions that affect them."""
    code = code_fingerprint(*ENTRIES[kind.name])
    return fingerprint([code, *(f"{name} {version_of(name)}" for name in LIBRARIES)])[:16]


def evaluation_key(record: ModelRecord, requests: pa.Table, kind: Kind) -> str:
    """Return the store key of an evaluation; independent of row order."""
    asked = sorted(zip(*(requests.column(c).to_pylist() for c in ("item_id", "role", "request_id")), strict=True))
    options = {name: record.get(name) for name in OPTIONS}
    engine = [engine_version(kind), *further_libraries(record, kind)]
    return fingerprint([kind.name, record["fingerprint"], options, engine, asked])[:40]


def further_libraries(record: ModelRecord, kind: Kind) -> list[str]:
    """Return the additional libraries that affect this model's outputs, with their versions."""
    used = {
        "vllm": record.get("generation_engine") == "vllm" and kind.name == "generations",
        "peft": bool(record.get("adapter")),
        "bitsandbytes": bool(record.get("quantization")),
    }
    return [f"{name} {version_of(name)}" for name, needed in used.items() if needed]
