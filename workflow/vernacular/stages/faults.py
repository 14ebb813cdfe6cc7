"""Stage `faults`: verdicts of speakers on items -> values and differences without the confirmed faults."""

from pathlib import Path

from vernacular.comparison import sheets
from vernacular.comparison.compare import compare_all, compare_pairs
from vernacular.comparison.over_prompts import by_documents
from vernacular.comparison.schema import COMPARISONS_WITHOUT_FAULTS, WITHOUT_FAULTS
from vernacular.config.specs import FaultsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.metadata import note
from vernacular.protocols.evaluate import declared_metrics
from vernacular.protocols.lm_eval.metrics import tool_documents, tool_metrics
from vernacular.stages.common import items_in
from vernacular.stages.sides import read_sides, sides_files


class Faults(Stage):
    """Compute values and differences without the items that speakers have confirmed to be faulty."""

    spec: FaultsSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    items_dir: Path  # directory of the items files
    matched: Path | None = None  # directory of the matched external results
    out: Path  # directory of the tables


def faults(args: Faults) -> str:
    """Write what the values of each evaluation with confirmed faults are over its other items."""
    spec = args.spec
    found, notes = _confirmed_faults(args)
    sides = read_sides(args.results, spec, args.matched)
    results = {name: sheets.WithoutFaults(tables, found) for name, tables in sides.items()}
    settings = {name: vars(evaluation) for name, evaluation in spec.evaluations.items()}
    documents = {name: tool_documents(args.results, spec.models, name) for name in found}
    grouped, _ = by_documents({name: settings[name] for name in found}, documents)
    metrics = {name: tool_metrics(args.results, spec.models, name) for name in found}
    common = {"tool_metrics": metrics, "threads": args.threads}
    models = {name: results[name] for name in spec.models}
    inner, outer = [], []
    for pair in spec.pairs:
        (outer if {*pair} & {*spec.external} else inner).append(tuple(pair))
    without = compare_all(inner, models, grouped, **common)
    values = [
        {name: row.get(name) for name in WITHOUT_FAULTS.schema.names} | {"category": row.get("category") or ""}
        for row in without.prompts
        if row["baseline"] is None
    ]
    for model, tables in models.items():
        for name, table in tables.items():
            known = [*declared_metrics(spec.evaluations[name].protocol).values(), *metrics[name]]
            values += sheets.values_without(model, name, table, known) if table.num_rows else []
    rows = without.comparisons + compare_pairs(outer, results, grouped, **common)
    sources = sides_files(args.results, spec, args.matched)
    metadata = {"notes": notes, "fingerprint": artifacts.input_fingerprint(to_json(spec), *sources)}
    artifacts.write(args.out / "without_faults.parquet", WITHOUT_FAULTS, values, metadata)
    artifacts.write(args.out / "comparisons_without_faults.parquet", COMPARISONS_WITHOUT_FAULTS, rows, metadata)
    n_found, n_rows = format_count(len(found), "evaluation"), format_count(len(rows), "difference")
    return f"faults: {n_found} with confirmed faults, {n_rows}"


def _confirmed_faults(args: Faults) -> tuple[dict[str, frozenset[str]], list[dict]]:
    """Return the confirmed faults of each evaluation that has any, and notes on all verdicts."""
    verdicts = [verdict for path in args.spec.verdicts for verdict in sheets.read_verdicts(Path(path))]
    faults, notes, by_items = {}, [], {}
    for name, spec in args.spec.evaluations.items():
        own = [verdict for verdict in verdicts if (verdict.task, verdict.language) == (spec.task, spec.language)]
        if own and spec.items_stem not in by_items:
            items = items_in(args.items_dir / f"{spec.items_stem}.parquet")
            by_items[spec.items_stem] = sheets.confirmed(own, {item["item_id"]: item for item in items})
        if own:
            found = by_items[spec.items_stem]
            faults |= {name: found.faults} if found.faults else {}
            notes += [note("verdicts", text, evaluation=name) for text in found.notes]
    tasks = {(spec.task, spec.language) for spec in args.spec.evaluations.values()}
    others = sorted({f"{each.task}.{each.language}" for each in verdicts if (each.task, each.language) not in tasks})
    if others:
        notes.append(note("verdicts", f"verdicts on items that are not evaluated: {', '.join(others)}."))
    return faults, notes
