"""The verbs that tell: scores and generations -> per-item results, values, the source tools' files.

Each takes the parsed arguments and gives back the line that says what was made, as in `asking`.
"""

from collections import Counter
from pathlib import Path

from tqdm import tqdm

from vernacular import __version__, artifacts
from vernacular.asking import items_in
from vernacular.records import read_record
from vernacular.requests.schema import REQUESTS


def similarity(args) -> str:
    """How similar each generated answer is to every option, for all evaluations of one model."""
    from vernacular.inference.schema import GENERATIONS
    from vernacular.metrics.schema import SIMILARITIES
    from vernacular.metrics.similarity.compute import similarities

    known = {path.name.removesuffix(".json"): read_record(path) for path in args.encoders}
    model = read_record(args.model)
    generations = {path.stem: path for path in args.generations}
    # evaluations of the same items in a row: they share their options, whose vectors are kept
    wanted = sorted(args.spec["evaluations"].items(), key=lambda each: each[1]["items"])
    for evaluation, what in tqdm(wanted, desc="similarity", disable=None):
        target = args.out / f"{evaluation}.parquet"
        encoders = {metric: known[name] for metric, name in what["encoders"].items()}
        if what["style"].startswith("simil-eval"):
            encoders["cosine"] = model  # as that tool does, which is why its cosines compare no two models
        made_of = artifacts.made_of(
            what, [record.get("fingerprint") for record in encoders.values()], generations[evaluation]
        )
        items = args.items_folder / f"{what['items']}.parquet"
        requests = args.requests_folder / f"{evaluation}.parquet"
        answered = artifacts.metadata(generations[evaluation])
        if missing := _missing(answered):
            artifacts.write(target, SIMILARITIES, [], {**missing, "fingerprint": made_of})
            continue
        _check(items, requests, generations[evaluation], answered, model)
        rows, found = similarities(
            items_in(items),
            artifacts.read(generations[evaluation], GENERATIONS).to_pylist(),
            what["metrics"],
            encoders,
            requests=artifacts.read(requests, REQUESTS).to_pylist(),
            style=what["style"],
            language=what["language"],
            threads=args.threads,
        )
        artifacts.write(
            target,
            SIMILARITIES,
            rows,
            {"evaluation": evaluation, **found, "generations": answered["fingerprint"], "fingerprint": made_of},
        )
    return f"similarity: {len(generations)} evaluations"


def metrics(args) -> str:
    """Per-item results and values of one model; an evaluation that was not possible gets a file that says why."""
    from vernacular.comparison.levels import majority_baseline
    from vernacular.inference.schema import GENERATIONS, SCORES
    from vernacular.metrics.aggregate import CHANCE
    from vernacular.metrics.evaluate import evaluate, values
    from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS

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
        if missing := _missing(note):
            artifacts.write(target, TASK_RESULTS, [], {"evaluation": evaluation, **missing, "fingerprint": made_of})
            notes[evaluation] = {**missing, "fingerprint": made_of}
            continue
        _check(items, requests, answered, note, record)
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


def compat(args) -> str:
    """One model's results in the files of PalmX, the Serbian cloze scripts and Grew-TSE; a folder per evaluation."""
    from vernacular.metrics.compat import write
    from vernacular.metrics.schema import TASK_RESULTS

    args.out.mkdir(parents=True, exist_ok=True)
    written = []
    for path in args.tasks:
        what = args.spec["evaluations"][path.stem]
        if _missing(artifacts.metadata(path)):
            continue
        rows = artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
        written += write(
            args.out / path.stem, what["protocol"], items_in(args.items_folder / f"{what['items']}.parquet"), rows
        )
    return f"compat: {len(written)} files in {args.out}"


def _check(items: Path, requests: Path, answers: Path, answered: dict, model: dict) -> None:
    """Raises ArtifactError unless the answers are this model's to these requests, made of these items."""
    asked = artifacts.metadata(requests)
    artifacts.check_made_of(requests, asked["items"]["fingerprint"], artifacts.metadata(items)["fingerprint"], "items")
    artifacts.check_made_of(answers, answered.get("requests"), asked["fingerprint"], "requests")
    artifacts.check_made_of(answers, answered["model"]["fingerprint"], model["fingerprint"], "models")


def _missing(note: dict) -> dict:
    """The metadata that says why an evaluation was not possible; {} where it was."""
    return {key: note[key] for key in ("unavailable", "not_applicable") if key in note}


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
