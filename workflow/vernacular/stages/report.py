"""Command `report`: metrics, comparisons and per-item results -> HTML report."""

from pathlib import Path

from vernacular.config.specs import ReportSpec
from vernacular.core.fields import Stage
from vernacular.core.model_record import read_model
from vernacular.report.page import build


class Report(Stage):
    """Write the HTML report."""

    spec: ReportSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    models: list[Path]  # their records
    changes: Path  # directory of the improved and regressed items, by pair
    benchmarks: Path | None = None  # directory of Snakemake's benchmark files
    out: Path  # directory of the report


def report(args: Report) -> str:
    """Build the report, a directory of static files: leaderboard, tasks, items, comparisons, provenance."""
    changes = {tuple(pair): args.changes / "--".join(pair) / "changes.parquet" for pair in args.spec.pairs}
    return build(
        args.results,
        args.out,
        models=args.spec.models,
        evaluations=args.spec.evaluations,
        records=[read_model(path) for path in args.models],
        changes=changes,
        benchmarks=args.benchmarks,
        tasks=args.spec.tasks,
        prompts=args.spec.prompts or None,
        processes=args.threads,
        checkpoints=args.spec.positions,
        audit=args.spec.audit,
        estimates=args.spec.estimates,
        languages=args.spec.languages,
        external=args.spec.external,
    )
