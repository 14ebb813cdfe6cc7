"""Work units of an inference job: evaluations or shards of them, with their keys in the store.

A key is a hash of the model, its options, the requests and the engine. Complete requests are read one work unit at a
time: their rows repeat the few-shot prefix and its messages, and those of one large evaluation would take gigabytes.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.fingerprint import code_fingerprint, fingerprint, version_of
from vernacular.core.metadata import Outcome, OutputsMetadata, RequestsMetadata, not_applicable, unavailable
from vernacular.inference.schema import GENERATIONS, output_schema
from vernacular.protocols.schema import REQUESTS, generated_tokens, request_cost
from vernacular.types import ModelRecord

_KEY_COLUMNS = ["item_id", "role", "request_id"]
_SIZE_COLUMNS = ["text", "max_new_tokens", "longest_target"]
_REPEATED_COLUMNS = ("role", "kind", "prefix", "messages", "few_shot_examples", "stop", "extras")


@dataclass(frozen=True)
class WorkUnit:
    """A work unit: one evaluation, or one shard of it, for one model."""

    evaluation: str
    path: Path  # of the requests file
    n_rows: int  # number of requests in this unit
    item_ids: pa.Array | None  # IDs of the items in this unit; None: all
    kind: Kind
    key: str
    full_key: str  # the key of the complete evaluation; equal to `key` if it is not split

    def requests(self, columns: list[str] | None = None) -> pa.Table:
        """Read the unit's rows of REQUESTS, or these `columns`, item_id among them; repeated texts are encoded."""
        table = artifacts.read(self.path, REQUESTS, columns=columns, dictionary_columns=_REPEATED_COLUMNS)
        return table if self.item_ids is None else table.filter(pc.is_in(table["item_id"], self.item_ids))

    @property
    def units(self) -> tuple["WorkUnit", ...]:
        return (self,)

    def outputs(self, table: pa.Table, metadata: OutputsMetadata) -> list[tuple["WorkUnit", pa.Table, OutputsMetadata]]:
        """Return (unit, its rows, its metadata); see `shared.SharedUnit`."""
        return [(self, table, metadata)]


def work_units(record: ModelRecord, request_files: dict[str, Path], shard: tuple[int, int] = (0, 1)) -> list[WorkUnit]:
    """Return the work units of shard k of n that this model can run.

    `request_files`: requests file by evaluation ID. An evaluation of which the shard has no share becomes a unit
    without rows.
    """
    index, count = shard
    columns = _KEY_COLUMNS if count == 1 else _KEY_COLUMNS + _SIZE_COLUMNS
    kinds, tables = {}, {}
    for evaluation, path in request_files.items():
        metadata = artifacts.metadata(path, REQUESTS)
        if exclusion(record, metadata) is None:
            kinds[evaluation] = output_schema(metadata)
            tables[evaluation] = artifacts.read(path, REQUESTS, columns=columns)
    units = []
    for evaluation, shard_tables in split_into_shards(tables, count).items():
        kind, table = kinds[evaluation], shard_tables[index]
        key = evaluation_key(record, table, kind)
        full_key = key if count == 1 else evaluation_key(record, tables[evaluation], kind)
        item_ids = None if count == 1 else table["item_id"].unique()
        units.append(WorkUnit(evaluation, request_files[evaluation], table.num_rows, item_ids, kind, key, full_key))
    return units


def exclusion(record: ModelRecord, metadata: RequestsMetadata) -> Outcome | None:
    """Return the outcome of an evaluation that this model cannot run; None if it can."""
    if not metadata.outcome.is_complete:
        return metadata.outcome
    if reason := record.get("unavailable"):
        return unavailable(reason)
    kind = output_schema(metadata)
    if reason := not_answerable(record.get("server"), metadata.protocol, kind, metadata.label_spans):
        return not_applicable(reason)
    if record["kind"] == "masked" and metadata.causal_only:
        return not_applicable(f"{metadata.protocol} requires a causal model, and {record['name']} is a masked model")
    return None


def not_answerable(server: dict | None, protocol: str, kind: Kind, label_spans: bool) -> str | None:
    """Return why a model's server cannot answer the requests of a protocol; None if it can, or without a server."""
    if server is None:
        return None
    if kind is GENERATIONS:
        needed, forms = "generation", ("generation",)
    else:
        needed, forms = ("labels", ("spans", "labels")) if label_spans else ("spans", ("spans",))
    if any(server["forms"][form] for form in forms):
        return None
    return f"{protocol} is not possible: {server['reasons'][needed]}"


_BATCH_ROWS = 5_000


def split_into_shards(tables: dict[str, pa.Table], shards: int) -> dict[str, list[pa.Table]]:
    """Split each evaluation's requests into `shards` tables by estimated cost; entry k is the share of shard k.

    Shares may be empty.

    >>> table = pa.table({"item_id": ["a", "b"], "prefix": ["", ""], "text": ["x" * 7, "x" * 7],
    ...                 "max_new_tokens": [None, None], "longest_target": [None, None]})
    >>> [part["item_id"].to_pylist() for part in split_into_shards({"e": table}, 2)["e"]]
    [['a'], ['b']]
    """
    if shards == 1:
        return {evaluation: [table] for evaluation, table in tables.items()}
    costs = {evaluation: _costs(table) for evaluation, table in tables.items()}
    total_cost = sum(cost for item_costs in costs.values() for cost in item_costs.values())
    cumulative_cost = 0.0
    shard_tables = {}
    for evaluation, table in tables.items():
        shard_of = {}
        for item, cost in costs[evaluation].items():
            shard_of[item] = min(int((cumulative_cost + cost / 2) / total_cost * shards), shards - 1)
            cumulative_cost += cost
        row_shards = [shard_of[item] for item in table["item_id"].to_pylist()]
        shard_tables[evaluation] = [
            table.filter(pa.array([row_shard == shard for row_shard in row_shards])) for shard in range(shards)
        ]
    return shard_tables


def _costs(table: pa.Table) -> dict[str, float]:
    """Return the estimated tokens of each item, in table order, without the few-shot prefix, which is computed once."""
    costs: dict[str, float] = {}
    columns = ["item_id", "text", "max_new_tokens", "longest_target"]
    for batch in table.select(columns).to_batches(max_chunksize=_BATCH_ROWS):
        rows = zip(*(batch[name].to_pylist() for name in columns), strict=True)
        for item, text, max_new_tokens, longest_target in rows:
            n_generated = generated_tokens(max_new_tokens, longest_target)
            # 1: even an empty request has a cost
            costs[item] = costs.get(item, 0.0) + 1 + request_cost(len(text), n_generated)
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
ENTRY_MODULES = {
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
SERVED_MODULES = {  # of models behind a server; the probe decides whether it is asked, not what it answers
    "scores": ("vernacular.inference.server.score",),
    "generations": ("vernacular.inference.server.generate",),
}
LIBRARIES = ("torch", "transformers", "tokenizers")  # their versions are read without importing them


@functools.cache
def engine_version(kind: Kind, served: bool = False) -> str:
    """Return a hash of the code that computes artifacts of `kind`, and of the library versions that affect them.

    `served`: of models behind a server.
    """
    code = code_fingerprint(*(SERVED_MODULES if served else ENTRY_MODULES)[kind.name])
    return fingerprint([code, *(f"{name} {version_of(name)}" for name in LIBRARIES)])[:16]


def evaluation_key(record: ModelRecord, requests: pa.Table, kind: Kind) -> str:
    """Return the store key of an evaluation; independent of row order."""
    columns = (requests.column(name).to_pylist() for name in ("item_id", "role", "request_id"))
    request_keys = sorted(zip(*columns, strict=True))
    options = {name: record.get(name) for name in OPTIONS}
    engine = [engine_version(kind, served=bool(record.get("server"))), *additional_libraries(record, kind)]
    return fingerprint([kind.name, record["fingerprint"], options, engine, request_keys])[:40]


def additional_libraries(record: ModelRecord, kind: Kind) -> list[str]:
    """Return the additional libraries that affect this model's outputs, with their versions."""
    libraries = {
        "vllm": record.get("generation_engine") == "vllm" and kind.name == "generations",
        "peft": bool(record.get("adapter")),
        "bitsandbytes": bool(record.get("quantization")),
    }
    return [f"{name} {version_of(name)}" for name, is_used in libraries.items() if is_used]
