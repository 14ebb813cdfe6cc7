"""Command `collect`: store -> one model's scores and generations, a file per evaluation; no model is loaded."""

import logging
from pathlib import Path

import pyarrow as pa

from vernacular.checkpoints.deleted import deleted, is_deleted
from vernacular.commands.common import inference_record
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ArtifactError, format_count
from vernacular.core.outcome import UNAVAILABLE, Outcome, unavailable
from vernacular.core.records import read_status, write_status
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import WorkUnit, exclusion, work_units
from vernacular.inference.schema import output_schema
from vernacular.types import ModelRecord

log = logging.getLogger("vernacular")


def collect(args) -> str:
    """Write one model's scores and generations from the store; `--status` are the status files of its inference jobs.

    Outputs missing from the store are added to the failures in these files, so that the next run computes them.
    """
    record = inference_record(args.model, args.spec)
    request_files = {path.stem: path for path in args.requests}
    failed = {e: outcome.reason for path in args.status for e, outcome in _status(path, record["name"]).items()
              if outcome.state == UNAVAILABLE}  # fmt: skip
    counts, missing = write_outputs(record, request_files, args.out, args.store, shards=len(args.status), failed=failed)
    messages = [f"collect: {record['name']}: {evaluation}: {reason}" for evaluation, reason in missing.items()]
    for line in messages:
        log.error(line)
    if missing:
        status = read_status(args.status[0])
        status[record["name"]] |= {evaluation: unavailable(reason) for evaluation, reason in missing.items()}
        write_status(args.status[0], status)
    counts |= {"not found in the store": len(missing)}
    parts = [f"{format_count(n, 'evaluation')} {status}" for status, n in counts.items() if n]
    return "\n".join([*messages, f"collect: {record['name']}: {', '.join(parts) or 'no evaluations'}"])


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
        result = store.get(unit.key, unit.kind)
        if result is None:
            parts = [part for part in shard_units.get(unit.evaluation, []) if part.n_rows]
            shard_results = [store.get(part.key, part.kind) for part in parts]
            if not parts or None in shard_results:
                if record.get("checkpoint") and is_deleted(record):
                    outcome = deleted(record)
                    counts["not applicable"] += 1
                else:
                    outcome = unavailable(f"outputs not found in {store_root}. Run snakemake again to compute them.")
                    missing[unit.evaluation] = outcome.reason
                _write_without_rows(directory, unit.path, record, unit.kind, outcome)
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


def _write_without_rows(directory: Path, requests: Path, record: ModelRecord, kind: Kind, outcome: Outcome) -> None:
    fingerprint = artifacts.input_fingerprint(outcome.state, outcome.reason, requests)
    _write(directory, requests.stem, record, kind, kind.schema.empty_table(), {"outcome": outcome}, fingerprint)


def _write(
    directory: Path, evaluation: str, record: ModelRecord, kind: Kind, table, metadata: dict, fingerprint: str
) -> None:
    # one model with two names has one entry in the store, with the name under which it was first evaluated
    model = {**metadata.get("model", {}), "name": record["name"], "fingerprint": record.get("fingerprint")}
    metadata = {key: value for key, value in metadata.items() if key != "store_key"}  # internal to the store
    metadata = {**metadata, "model": model, "evaluation": evaluation, "fingerprint": fingerprint}
    artifacts.write(directory / kind.name / f"{evaluation}.parquet", kind, table, metadata)
