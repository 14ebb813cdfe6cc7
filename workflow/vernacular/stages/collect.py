"""Command `collect`: store -> one model's scores and generations, a file per evaluation; no model is loaded."""

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from vernacular.checkpoints.inputs import deleted, is_deleted
from vernacular.config.specs import InferenceSpec
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ArtifactError, format_count
from vernacular.core.fields import Stage
from vernacular.core.metadata import (
    UNAVAILABLE,
    Counters,
    ModelInfo,
    Outcome,
    OutputsMetadata,
    decode,
    encode,
    unavailable,
)
from vernacular.core.model_record import ModelRecord, read_status, write_status
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import WorkUnit, exclusion, work_units
from vernacular.inference.schema import output_schema
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.common import inference_record

log = logging.getLogger("vernacular")


class Collect(Stage):
    """Write one model's outputs from the store to its results."""

    spec: InferenceSpec  # of the rule: what the results depend on
    model: Path  # its record
    requests: list[Path]  # requests files
    status: list[Path]  # status files of infer, one per shard
    out: Path  # directory of the model's results
    store: Path  # directory of the store


def collect(args: Collect) -> str:
    """Write one model's scores and generations from the store.

    Outputs missing from the store are added as unavailable to the status files, so that the next run computes them.
    """
    record = inference_record(args.model, args.spec)
    request_files = {path.stem: path for path in args.requests}
    outcomes = [entry for path in args.status for entry in _status(path, record.name).items()]
    failed = {evaluation: outcome.reason for evaluation, outcome in outcomes if outcome.state == UNAVAILABLE}
    counts, missing = write_outputs(record, request_files, args.out, args.store, shards=len(args.status), failed=failed)
    messages = [f"collect: {record.name}: {evaluation}: {reason}" for evaluation, reason in missing.items()]
    for line in messages:
        log.error(line)
    if missing:
        status = read_status(args.status[0])
        status[record.name] |= {evaluation: unavailable(reason) for evaluation, reason in missing.items()}
        write_status(args.status[0], status)
    counts |= {"not found in the store": len(missing)}
    parts = [f"{format_count(n, 'evaluation')} {status}" for status, n in counts.items() if n]
    return "\n".join([*messages, f"collect: {record.name}: {', '.join(parts) or 'no evaluations'}"])


def _status(path: Path, name: str) -> dict[str, Outcome]:
    """Return the outcomes of one model's evaluations in an inference job."""
    status = read_status(path)
    if name not in status:
        raise ArtifactError(f'{path}: no entry for model "{name}"; delete it to rebuild.')
    return status[name]


def write_outputs(
    record: ModelRecord,
    request_files: dict[str, Path],
    directory: Path,
    store_root: Path,
    *,
    shards: int = 1,
    failed: dict[str, str] | None = None,
) -> tuple[dict[str, int], dict[str, str]]:
    """Write one model's outputs of every evaluation to `directory`; return counts by outcome, and missing outputs.

    An evaluation without outputs gets a file without rows, with the reason in its metadata. Of each evaluation that
    failed (`failed`), or whose outputs are no longer in the store (the second value), the reason is given by ID.
    """
    store = Store(store_root)
    counts, missing = {"collected": 0, "not applicable": 0}, {}
    request_metadata = {e: artifacts.metadata(path, REQUESTS) for e, path in request_files.items()}
    for evaluation, path in request_files.items():
        outcome = exclusion(record, request_metadata[evaluation])
        if outcome is None and evaluation in (failed or {}):
            outcome = unavailable(failed[evaluation])
            counts["failed"] = counts.get("failed", 0) + 1
        elif outcome:
            counts["not applicable"] += 1
        if outcome:
            _write_without_rows(directory, path, record, output_schema(request_metadata[evaluation]), outcome)
    units = [unit for unit in work_units(record, request_files) if unit.evaluation not in (failed or {})]
    shard_units: dict[str, list[WorkUnit]] = {}
    for shard in range(shards) if shards > 1 else ():
        for unit in work_units(record, request_files, (shard, shards)):
            shard_units.setdefault(unit.evaluation, []).append(unit)
    for unit in units:
        result = _stored(store, unit)
        if result is None:
            parts = [part for part in shard_units.get(unit.evaluation, []) if part.n_rows]
            shard_results = [_stored(store, part) for part in parts]
            if not parts or None in shard_results:
                if record.checkpoint and is_deleted(record):
                    outcome = deleted(record)
                    counts["not applicable"] += 1
                else:
                    outcome = unavailable(f"outputs not found in {store_root}. Run the workflow again to compute them.")
                    missing[unit.evaluation] = outcome.reason
                _write_without_rows(directory, unit.path, record, unit.kind, outcome)
                continue
            result = _merge_shards(shard_results)
            try:
                table, metadata = result
                store.put(unit.key, unit.kind, table, encode(metadata))  # complete: found with any number of shards
            except StoreError as error:  # a read-only store: the shards in it suffice
                log.warning("collect: %s", error)
        table, metadata = result
        # one model with two names has one entry in the store, with the name under which it was first evaluated
        stated = metadata.model or ModelInfo(name=record.name)  # an engine of another package may state nothing
        model = replace(stated, name=record.name, fingerprint=record.fingerprint)
        requests = request_metadata[unit.evaluation].fingerprint
        metadata = replace(metadata, model=model, evaluation=unit.evaluation, requests=requests, fingerprint=unit.key)
        artifacts.write(directory / unit.kind.name / f"{unit.evaluation}.parquet", unit.kind, table, metadata)
        counts["collected"] += 1
    return counts, missing


def _stored(store: Store, unit: WorkUnit) -> tuple[pa.Table, OutputsMetadata] | None:
    result = store.get(unit.key, unit.kind)
    return result and (result[0], artifacts.typed(result[1], unit.kind, store.path(unit.key, unit.kind)))


def _merge_shards(results: list[tuple[pa.Table, OutputsMetadata]]) -> tuple[pa.Table, OutputsMetadata]:
    """Merge the rows and metadata of all shards.

    Counters and flags are added up and fallbacks united; all other metadata are those of the first shard.
    """
    shards = [metadata for _, metadata in results]
    counts = [encode(shard.counters) for shard in shards]
    names = dict.fromkeys(name for shard in counts for name in shard)
    flags = dict.fromkeys(flag for shard in shards for flag in shard.flags)
    fallbacks = dict.fromkeys(reason for shard in shards for reason in shard.engine.fallback)
    pll = sorted({name for shard in shards for name in shard.engine.pll or ()}) or None
    return pa.concat_tables([table for table, _ in results]), replace(
        shards[0],
        counters=decode(Counters, {name: _sum([shard.get(name) for shard in counts]) for name in names}),
        flags={flag: sum(shard.flags.get(flag, 0) for shard in shards) for flag in flags},
        engine=replace(shards[0].engine, fallback=list(fallbacks), pll=pll),
        shards=len(shards),
    )


def _sum(values: list):
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return sum(numbers) if len(numbers) == len([v for v in values if v is not None]) else values[0]


def _write_without_rows(directory: Path, requests: Path, record: ModelRecord, kind: Kind, outcome: Outcome) -> None:
    metadata = OutputsMetadata(
        evaluation=requests.stem,
        model=ModelInfo(name=record.name, fingerprint=record.fingerprint),
        outcome=outcome,
        fingerprint=artifacts.input_fingerprint(outcome.state, outcome.reason, requests),
    )
    artifacts.write(directory / kind.name / requests.name, kind, kind.schema.empty_table(), metadata)
