"""Command `report`: metrics, comparisons and per-item results -> HTML report."""

from vernacular.commands.common import checkpoints_in
from vernacular.core.model_record import read_model
from vernacular.report.page import build


def report(args) -> str:
    """Build the report, a directory of static files: leaderboard, tasks, items, comparisons, provenance."""
    changes = {
        (baseline, candidate): args.changes / f"{baseline}--{candidate}" / "changes.parquet"
        for baseline, candidate in args.spec["pairs"]
    }
    return build(
        args.results,
        args.out,
        models=args.spec["models"],
        evaluations=args.spec["evaluations"],
        records=[read_model(path) for path in args.models],
        changes=changes,
        benchmarks=args.benchmarks,
        tasks=args.spec["tasks"],
        prompts=args.spec.get("prompts"),
        processes=args.threads,
        checkpoints=checkpoints_in(args.spec),
    )
