"""Command `summary`: metrics and comparisons of all models -> tables, spreadsheets and notes."""

from vernacular.comparison.schema import COMPARISONS, OVERALL, RANKINGS
from vernacular.core import artifacts
from vernacular.core.errors import counted
from vernacular.core.tables import write_csv
from vernacular.metrics.schema import METRICS, RESULTS
from vernacular.summary.grid import collect, to_arrow, wide
from vernacular.summary.provenance import as_frame, data_sets_of, mixed_engines, notes_of
from vernacular.summary.workbook import write_leaderboard, write_similarity, write_surprisal
from vernacular.types import ModelRecord

try:
    from vernacular.interop.every_eval_ever import write_every_eval_ever
    from vernacular.interop.lm_eval_results import write_lm_eval_results
except ModuleNotFoundError:  # the package of export formats is optional
    write_every_eval_ever = write_lm_eval_results = None


def summary(args) -> str:
    """Write tables and spreadsheets of all models, and notes on missing, flagged, excluded and fallback results."""
    of_models = [artifacts.metadata(path) for path in args.metrics]
    long = collect([artifacts.read(path, METRICS) for path in args.metrics])
    tables = {kind.name: args.out / f"{kind.name}.parquet" for kind in (RANKINGS, COMPARISONS, OVERALL)}
    compared = {
        kind.name: artifacts.read(tables[kind.name], kind).to_pylist() for kind in (RANKINGS, COMPARISONS, OVERALL)
    }
    notes = [row for note in of_models for row in notes_of(note)]
    notes += mixed_engines(of_models)
    notes += _joined_notes(artifacts.metadata(tables["comparisons"]).get("notes", []))
    models = [_described(note["record"]) for note in of_models]
    made_of = artifacts.made_of(args.spec, *args.metrics, *tables.values())
    told = {"models": models, "notes": notes, "fingerprint": made_of}
    artifacts.write(args.out / "results.parquet", RESULTS, to_arrow(long), told)
    write_csv(args.out / "results.csv", long)
    write_csv(args.out / "wide.csv", wide(long))
    write_csv(args.out / "notes.csv", as_frame(notes))
    data_sets = {(row["task"], row["language"], row["limit"]): row for note in of_models for row in data_sets_of(note)}
    if write_lm_eval_results:
        write_lm_eval_results(args.out / "lm_eval", long)
        write_every_eval_ever(args.out / "every_eval_ever", long, models, list(data_sets.values()))
    provenance = {"evaluated models": models, "item sources": list(data_sets.values()), "notes": notes}
    rankings = compared["rankings"]
    write_similarity(args.out / "similarity_summary.xlsx", long, provenance, rankings=rankings)
    write_surprisal(args.out / "surprisal_summary.xlsx", long, provenance, rankings=rankings)
    write_leaderboard(args.out / "leaderboard.xlsx", long, provenance, **compared)
    return f"summary: {counted(len(long), 'value')} of {counted(len(of_models), 'model')} in {args.out}"


def _joined_notes(told: list[str]) -> list[dict]:
    """Return notes on matched external results as rows, from texts "name: file: evaluation …" of the comparison."""
    return [
        {"model": text.partition(":")[0], "evaluation": None, "kind": "external results", "note": text, "count": None}
        for text in told
    ]


def _described(record: ModelRecord) -> dict:
    keys = ("name", "source", "revision", "architecture", "kind", "parameters", "bytes", "fingerprint")
    adapter = record.get("adapter") or {}
    own = {"base": record.get("base")} | {f"adapter {key}": adapter[key] for key in ("source", "revision") if adapter}
    return {key: record.get(key) for key in keys} | (own if adapter else {})
