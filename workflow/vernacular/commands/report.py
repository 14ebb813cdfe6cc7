"""Command `report`: values, comparisons and per-item results -> the HTML report."""

from vernacular.core.records import read_record
from vernacular.report.page import build


def report(args) -> str:
    """The page: leaderboard, tasks, items, comparisons, provenance, as a folder of static files."""
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
