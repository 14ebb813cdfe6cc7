"""Collection of one model's outputs from the store: one file per evaluation, shards merged, no model loaded."""

import logging
from pathlib import Path

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import Question, impossible, questions
from vernacular.inference.schema import outputs_of
from vernacular.types import ModelRecord

log = logging.getLogger("vernacular")


def lay_out(
    record: ModelRecord,
    asked: dict[str, Path],
    out: Path,
    store_root: Path,
    *,
    shards: int = 1,
    failed: dict[str, str] | None = None,
) -> tuple[dict[str, int], dict[str, str]]:
    """Write one model's outputs of every evaluation to `out`; return counts and missing outputs.

    An evaluation without outputs gets a file without rows, with the reason in its metadata.

    Args:
        asked: Requests file by evaluation ID.
        failed: Reason by evaluation ID, for evaluations that failed.

    Returns:
        The numbers of "answered", "not possible" and "failed" evaluations, and the reason by ID of each evaluation
        whose outputs are no longer in the store.
    """
    store = Store(store_root)
    counts, lost = {"answered": 0, "not possible": 0}, {}
    notes = {evaluation: artifacts.metadata(path) for evaluation, path in asked.items()}
    for evaluation, path in asked.items():
        why = impossible(record, notes[evaluation])
        if why is None and evaluation in (failed or {}):
            why = {"unavailable": failed[evaluation]}
            counts["failed"] = counts.get("failed", 0) + 1
        elif why:
            counts["not possible"] += 1
        if why:
            kind = outputs_of(notes[evaluation])
            _write(out, evaluation, record, kind, kind.schema.empty_table(), why, artifacts.made_of(why, path))
    whole = [question for question in questions(record, asked) if question.evaluation not in (failed or {})]
    shares: dict[str, list[Question]] = {}
    for k in range(shards) if shards > 1 else ():
        for part in questions(record, asked, (k, shards)):
            shares.setdefault(part.evaluation, []).append(part)
    for question in whole:
        found = store.get(question.key, question.kind)
        if found is None:
            parts = [part for part in shares.get(question.evaluation, []) if part.rows]
            answers = [store.get(part.key, part.kind) for part in parts]
            if not parts or None in answers:
                reason = f"outputs not found in {store_root}. Run snakemake again to compute them."
                lost[question.evaluation] = reason
                why, empty = {"unavailable": reason}, question.kind.schema.empty_table()
                made_of = artifacts.made_of(why, question.path)
                _write(out, question.evaluation, record, question.kind, empty, why, made_of)
                continue
            found = _together(answers)
            try:
                store.put(question.key, question.kind, *found)  # complete: found with any number of shards
            except StoreError as error:  # a read-only store: the shards in it suffice
                log.warning("answers: %s", error)
        table, facts = found
        facts = {**facts, "requests": notes[question.evaluation]["fingerprint"]}
        _write(out, question.evaluation, record, question.kind, table, facts, question.key)
        counts["answered"] += 1
    return counts, lost


def _together(parts: list[tuple[pa.Table, dict]]) -> tuple[pa.Table, dict]:
    """Merge the rows and metadata of all shards.

    Counters and flags are added up and fallbacks united; all other metadata are those of the first shard.
    """
    facts = [note for _, note in parts]
    total = {key: value for key, value in facts[0].items() if key != "store_key"}
    for name in ("counters", "flags"):
        if name in total:
            keys = dict.fromkeys(key for note in facts for key in note.get(name, {}))
            total[name] = {key: _sum([note.get(name, {}).get(key) for note in facts]) for key in keys}
    if "engine" in total:
        fallbacks = dict.fromkeys(str(each) for note in facts for each in note["engine"].get("fallback", []))
        total["engine"] = {**total["engine"], "fallback": list(fallbacks)}
    return pa.concat_tables([table for table, _ in parts]), {**total, "shards": len(parts)}


def _sum(values: list):
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return sum(numbers) if len(numbers) == len([v for v in values if v is not None]) else values[0]


def _write(out: Path, evaluation: str, record: ModelRecord, kind: Kind, table, facts: dict, fingerprint: str) -> None:
    # one model with two names has one entry in the store, with the name under which it was first evaluated
    model = {**facts.get("model", {}), "name": record["name"], "fingerprint": record.get("fingerprint")}
    facts = {key: value for key, value in facts.items() if key != "store_key"}  # internal to the store
    note = {**facts, "model": model, "evaluation": evaluation, "fingerprint": fingerprint}
    artifacts.write(out / kind.name / f"{evaluation}.parquet", kind, table, note)
