"""Command `collect`: store -> one model's scores and generations, a file per evaluation; no model is loaded."""

import logging
from pathlib import Path

import pyarrow as pa

from vernacular.checkpoints.inputs import DELETED_REASON, is_deleted
from vernacular.commands.common import inference_record
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import format_count
from vernacular.core.model_record import ModelRecord
from vernacular.core.records import add_failures, failures
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import WorkUnit, exclusion_metadata, work_units
from vernacular.inference.schema import output_schema

log = logging.getLogger("vernacular")


def collect(args) -> str:
    """Write one model's scores and generations from the store; `--status` are the status files of its inference jobs.

    Outputs missing from the store are added to the failures in these files, so that the next run computes them.
    """
    record = inference_record(args.model, args.spec)
    request_files = {path.stem: path for path in args.requests}
    failed = {e: reason for path in args.status for e, reason in failures(path, record.name).items()}
    counts, missing = write_outputs(record, request_files, args.out, args.store, shards=len(args.status), failed=failed)
    messages = [f"collect: {record.name}: {evaluation}: {reason}" for evaluation, reason in missing.items()]
    for line in messages:
        log.error(line)
    if missing:
        add_failures(args.status[0], record.name, missing)
    counts |= {"not found in the store": len(missing)}
    parts = [f"{format_count(n, 'evaluation')} {status}" for status, n in counts.items() if n]
    return "\n".join([*messages, f"collect: {record.name}: {', '.join(parts) or 'no evaluations'}"])


def write_outputs(
    record: ModelRecord,
    request_files: dict[str, Path],
    directory: Path,
    store_root: Path,
    *,
    shards: int = 1,
    failed: dict[str, str] | None = None,
) -> tuple[dict[str, int], dict[str, str]]:
    """Write one model's outputs of every evaluation to `directory`; return counts and missing outputs.

    An evaluation without outputs gets a file without rows, with the reason in its metadata.

    Args:
        request_files: Requests file by evaluation ID.
        failed: Reason by evaluation ID, for evaluations that failed.

    Returns:
        The numbers of "collected", "not applicable" and "failed" evaluations, and the reason by ID of each evaluation
        whose outputs are no longer in the store.
    """
    store = Store(store_root)
    counts, missing = {"collected": 0, "not applicable": 0}, {}
    request_metadata = {evaluation: artifacts.metadata(path) for evaluation, path in request_files.items()}
    for evaluation, path in request_files.items():
        explanation = exclusion_metadata(record, request_metadata[evaluation])
        if explanation is None and evaluation in (failed or {}):
            explanation = {"unavailable": failed[evaluation]}
            counts["failed"] = counts.get("failed", 0) + 1
        elif explanation:
            counts["not applicable"] += 1
        if explanation:
            kind = output_schema(request_metadata[evaluation])
            fingerprint = artifacts.input_fingerprint(explanation, path)
            _write(directory, evaluation, record, kind, kind.schema.empty_table(), explanation, fingerprint)
    units = [unit for unit in work_units(record, request_files) if unit.evaluation not in (failed or {})]
    shard_units: dict[str, list[WorkUnit]] = {}
    for shard in range(shards) if shards > 1 else ():
        for unit in work_units(record, request_files, (shard, shards)):
            shard_units.setdefault(unit.evaluation, []).append(unit)
    for unit in units:
        result = store.get(unit.key, unit.kind)
        if result is None:
            parts = [part for part in shard_units.get(unit.evaluation, []) if part.n_rows]
            shard_results = [store.get(part.key, part.kind) for part in parts]
            if not parts or None in shard_results:
                if record.checkpoint and is_deleted(record):
                    explanation = {"not_applicable": DELETED_REASON}
                    counts["not applicable"] += 1
                else:
                    reason = f"outputs not found in {store_root}. Run snakemake again to compute them."
                    missing[unit.evaluation] = reason
                    explanation = {"unavailable": reason}
                empty_table = unit.kind.schema.empty_table()
                fingerprint = artifacts.input_fingerprint(explanation, unit.path)
                _write(directory, unit.evaluation, record, unit.kind, empty_table, explanation, fingerprint)
                continue
            result = _merge_shards(shard_results)
            try:
                store.put(unit.key, unit.kind, *result)  # complete: found with any number of shards
            except StoreError as error:  # a read-only store: the shards in it suffice
                log.warning("collect: %s", error)
        table, metadata = result
        metadata = {**metadata, "requests": request_metadata[unit.evaluation]["fingerprint"]}
        _write(directory, unit.evaluation, record, unit.kind, table, metadata, unit.key)
        counts["collected"] += 1
    return counts, missing


def _merge_shards(results: list[tuple[pa.Table, dict]]) -> tuple[pa.Table, dict]:
    """Merge the rows and metadata of all shards.

    Counters and flags are added up and fallbacks united; all other metadata are those of the first shard.
    """
    notes = [note for _, note in results]
    merged = {key: value for key, value in notes[0].items() if key != "store_key"}
    for name in ("counters", "flags"):
        if name in merged:
            keys = dict.fromkeys(key for note in notes for key in note.get(name, {}))
            merged[name] = {key: _sum([note.get(name, {}).get(key) for note in notes]) for key in keys}
    if "engine" in merged:
        fallbacks = dict.fromkeys(str(reason) for note in notes for reason in note["engine"].get("fallback", []))
        merged["engine"] = {**merged["engine"], "fallback": list(fallbacks)}
    return pa.concat_tables([table for table, _ in results]), {**merged, "shards": len(results)}


def _sum(values: list):
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return sum(numbers) if len(numbers) == len([v for v in values if v is not None]) else values[0]


def _write(
    directory: Path, evaluation: str, record: ModelRecord, kind: Kind, table, metadata: dict, fingerprint: str
) -> None:
    # one model with two names has one entry in the store, with the name under which it was first evaluated
    model = {**metadata.get("model", {}), "name": record.name, "fingerprint": record.fingerprint}
    metadata = {key: value for key, value in metadata.items() if key != "store_key"}  # internal to the store
    metadata = {**metadata, "model": model, "evaluation": evaluation, "fingerprint": fingerprint}
    artifacts.write(directory / kind.name / f"{evaluation}.parquet", kind, table, metadata)
