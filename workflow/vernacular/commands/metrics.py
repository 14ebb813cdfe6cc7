"""Command `metrics`: scores and generations -> per-item results and values of one model."""

from collections import Counter

from tqdm import tqdm

from vernacular import __version__
from vernacular.commands.common import check_inputs, items_in, why_missing
from vernacular.comparison.levels import majority_baseline
from vernacular.core import artifacts
from vernacular.core.records import read_record
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.aggregate import CHANCE
from vernacular.metrics.evaluate import evaluate, values
from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS
from vernacular.requests.schema import REQUESTS


def metrics(args) -> str:
    """Per-item results and values of one model; an evaluation that was not possible gets a file that says why."""
    record = read_record(args.model)
    long, notes = [], {}
    for evaluation, what in tqdm(args.spec["evaluations"].items(), desc="metrics", disable=None):
        kind = GENERATIONS if what["protocol"] == "generation" else SCORES
        answered = args.out / kind.name / f"{evaluation}.parquet"
        note = artifacts.metadata(answered)
        target = args.out / "tasks" / f"{evaluation}.parquet"
        similar = args.out / "similarity" / f"{evaluation}.parquet"
        made_of = artifacts.made_of(what, answered, *([similar] if kind is GENERATIONS else []))
        items = args.items_folder / f"{what['items']}.parquet"
        requests = args.requests_folder / f"{evaluation}.parquet"
        asked = artifacts.metadata(requests)
        if missing := why_missing(note):
            artifacts.write(target, TASK_RESULTS, [], {"evaluation": evaluation, **missing, "fingerprint": made_of})
            notes[evaluation] = {**missing, "fingerprint": made_of}
            continue
        check_inputs(items, requests, answered, note, record)
        compared, found = [], {}
        if kind is GENERATIONS:
            compared, found = artifacts.read(similar, SIMILARITIES).to_pylist(), artifacts.metadata(similar)
            artifacts.check_made_of(similar, found.get("generations"), note["fingerprint"], "generations")
        rows, known = evaluate(
            what["protocol"],
            items_in(items),
            artifacts.read(requests, REQUESTS).to_pylist(),
            artifacts.read(answered, kind).to_pylist(),
            compared,
        )
        notes[evaluation] = {**_facts(asked, note, rows), "without": found.get("without", {}), "fingerprint": made_of}
        artifacts.write(target, TASK_RESULTS, rows, {"evaluation": evaluation, **notes[evaluation]})
        names = {key: what[key] for key in ("task", "language", "protocol", "shots", "seed", "style")}
        adapter = record.get("adapter") or {}
        facts = {"model": args.spec["model"], "adapter": adapter.get("source"), "evaluation": evaluation, **names}
        facts |= {"base": record.get("base"), "model_revision": _model_revision(record)}
        facts |= {"dataset_revision": _dataset_revision(asked["items"]["source"])}
        majority = majority_baseline(what["protocol"], rows)
        for row in values(rows, known, facts, found.get("signatures", {})):
            # of accuracies, and over all items, which it was counted over
            accuracy = row["chance"] is not None and row["metric"].partition("_")[0] not in CHANCE
            long.append({**row, "majority": majority if accuracy and not row["category"] else None})
    told = {"model": args.spec["model"], "record": record, "version": __version__, "evaluations": notes}
    told |= {"fingerprint": artifacts.made_of(args.spec, [note["fingerprint"] for note in notes.values()])}
    artifacts.write(args.out / "metrics.parquet", METRICS, long, told)
    return f"metrics: {args.spec['model']}: {len(long)} values of {len(notes)} evaluations"


def _facts(asked: dict, answered: dict, rows: list[dict]) -> dict:
    """What is to be known of an evaluation beside its values: data, prompts, engine, and what went wrong how often."""
    return {
        "dataset": asked["items"],
        "demonstrations": asked["demonstrations"],
        "unasked": asked["unasked"],
        "inference": answered,
        "items": len(rows),
        "flags": dict(Counter(_kind_of_flag(part) for row in rows for part in (row["flag"] or "").split("; ") if part)),
    }


def _model_revision(record: dict) -> str:
    """The commit of a model; of an adapter its own, after its base's. Of local files a hash."""
    adapter = record.get("adapter")
    if adapter and adapter["revision"] and record.get("revision"):
        return f"{record['revision']} + {adapter['revision']}"
    return (not adapter and record.get("revision")) or record.get("fingerprint", "")[:12]


def _dataset_revision(source: dict) -> str:
    """The commit a data set stands at; of samples and files the hash of their rows."""
    return source.get("revision") or f"{source['kind']} {source['sha256'][:12]}"


def _kind_of_flag(flag: str) -> str:
    """`truncated: 3 demonstrations left out` and `truncated: 2 …` are one kind of flag; errors are told apart."""
    return flag if flag.startswith("error") else flag.split(":")[0]
