"""The verbs that show: values and comparisons -> tables, spreadsheets, the page; and what a run left."""

import csv
from pathlib import Path

from vernacular import artifacts
from vernacular.artifacts import replacing
from vernacular.errors import UserError
from vernacular.records import read_record


def summary(args) -> str:
    """Tables and spreadsheets of all models, and the notes: what is missing, flagged, left out or fell back."""
    from vernacular.comparison.schema import COMPARISONS, OVERALL, STANDINGS
    from vernacular.metrics.schema import METRICS
    from vernacular.summary.everyeval import write_every_eval_ever
    from vernacular.summary.notes import as_frame, data_sets_of, notes_of
    from vernacular.summary.schema import RESULTS
    from vernacular.summary.seedfiles import write_harness
    from vernacular.summary.tables import collect, to_arrow, wide, write_csv
    from vernacular.summary.workbook import write_leaderboard, write_similarity, write_surprisal

    of_models = [artifacts.metadata(path) for path in args.metrics]
    long = collect([artifacts.read(path, METRICS) for path in args.metrics])
    tables = {kind.name: args.out / f"{kind.name}.parquet" for kind in (STANDINGS, COMPARISONS, OVERALL)}
    compared = {
        kind.name: artifacts.read(tables[kind.name], kind).to_pylist() for kind in (STANDINGS, COMPARISONS, OVERALL)
    }
    notes = [row for note in of_models for row in notes_of(note)]
    notes += _joined_notes(artifacts.metadata(tables["comparisons"]).get("notes", []))
    models = [_described(note["record"]) for note in of_models]
    made_of = artifacts.made_of(args.spec, *args.metrics, *tables.values())
    told = {"models": models, "notes": notes, "fingerprint": made_of}
    artifacts.write(args.out / "results.parquet", RESULTS, to_arrow(long), told)
    write_csv(args.out / "results.csv", long)
    write_csv(args.out / "wide.csv", wide(long))
    write_csv(args.out / "notes.csv", as_frame(notes))
    data_sets = {(row["task"], row["language"]): row for note in of_models for row in data_sets_of(note)}
    write_harness(args.out / "harness", long)
    write_every_eval_ever(args.out / "every_eval_ever", long, models, list(data_sets.values()))
    provenance = {"models evaluated": models, "where the items come from": list(data_sets.values()), "notes": notes}
    standings = compared["standings"]
    write_similarity(args.out / "similarity_summary.xlsx", long, provenance, standings=standings)
    write_surprisal(args.out / "surprisal_summary.xlsx", long, provenance, standings=standings)
    write_leaderboard(args.out / "leaderboard.xlsx", long, provenance, **compared)
    return f"summary: {len(long)} values of {len(of_models)} models in {args.out}"


def report(args) -> str:
    """The page: leaderboard, tasks, items, comparisons, provenance, as a folder of static files."""
    from vernacular.report.page import build

    changes = {
        (baseline, candidate): args.changes / f"{baseline}--{candidate}" / "changes.parquet"
        for baseline, candidate in args.spec["pairs"]
    }
    return build(
        args.results,
        args.out,
        models=args.spec["models"],
        evaluations=args.spec["evaluations"],
        records=[read_record(path) for path in args.models],
        changes=changes,
        benchmarks=args.benchmarks,
        processes=args.threads,
    )


def complete(args) -> str:
    """Fail, once everything that could be made is made, naming what could not."""
    with open(args.notes, encoding="utf-8-sig", newline="") as file:
        missing = [row for row in csv.DictReader(file) if row["kind"] == "unavailable"]
    if missing:
        what = dict.fromkeys(f"  {row['evaluation']}: {row['note']}" for row in missing)
        raise UserError(
            "the summary is made, but without what could not be had (the next run tries again):\n" + "\n".join(what)
        )
    with replacing(args.out) as temporary:
        temporary.write_text("Nothing is missing from the summary.\n")
    return "complete: nothing is missing from the summary"


def timings(args) -> None:
    """Print a line per stage: how many jobs, how long, how much memory; then where the results lie."""
    rows: dict[str, list[dict]] = {}
    for path in sorted(Path(args.benchmarks).glob("*/*.tsv")):
        with open(path, newline="") as file:
            rows.setdefault(path.parent.name, []).extend(csv.DictReader(file, delimiter="\t"))
    order = ["items", "requests", "model", "encoder", "infer", "answers", "similarity", "metrics"]
    order += ["compat", "compare", "summary", "report"]
    print(f"\n{'stage':<12}{'jobs':>5}{'seconds':>10}{'largest, MB':>13}")
    for stage in sorted(rows, key=lambda s: order.index(s) if s in order else len(order)):
        seconds = sum(float(row["s"]) for row in rows[stage])
        memory = max((float(row["max_rss"]) for row in rows[stage] if row["max_rss"] not in ("-", "NA")), default=0.0)
        print(f"{stage:<12}{len(rows[stage]):>5}{seconds:>10.1f}{memory:>13.0f}")
    print(f"\nThe results lie in {args.results}:")
    for path in sorted(Path(args.results).glob("*")):
        print(f"  {path}")
    page = Path(args.results).parent / "report" / "index.html"
    if page.exists():
        print(f"Open {page} in a browser to look into them.")


def _joined_notes(told: list[str]) -> list[dict]:
    """What was matched of results made elsewhere; "name: file: evaluation …" as the comparison says it."""
    return [
        {"model": text.partition(":")[0], "evaluation": None, "kind": "joined", "note": text, "count": None}
        for text in told
    ]


def _described(record: dict) -> dict:
    keys = ("name", "source", "revision", "architecture", "kind", "parameters", "bytes", "fingerprint")
    adapter = record.get("adapter") or {}
    own = {"base": record.get("base")} | {f"adapter {key}": adapter[key] for key in ("source", "revision") if adapter}
    return {key: record.get(key) for key in keys} | (own if adapter else {})
