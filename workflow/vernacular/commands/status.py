"""Commands `verify` and `timings`: missing results, and resource usage, of a run."""

import csv
from pathlib import Path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError


def verify(args) -> str:
    """Raise UserError with what is missing from the summary, which is complete otherwise."""
    with open(args.notes, encoding="utf-8-sig", newline="") as file:
        missing = [row for row in csv.DictReader(file) if row["kind"] == "unavailable"]
    if missing:
        lines = dict.fromkeys(f"  {row['evaluation']}: {row['note']}" for row in missing)
        raise UserError(
            "the summary is written, but results are missing. Run snakemake again to retry:\n" + "\n".join(lines)
        )
    with replacing(args.out) as temporary:
        temporary.write_text("No results are missing from the summary.\n")
    return "verify: no results are missing from the summary"


def timings(args) -> None:
    """Print a line per stage (number of jobs, seconds, peak memory in MB), then the paths of the results."""
    rows: dict[str, list[dict]] = {}
    for path in sorted(Path(args.benchmarks).glob("*/*.tsv")):
        with open(path, newline="") as file:
            rows.setdefault(path.parent.name, []).extend(csv.DictReader(file, delimiter="\t"))
    order = ["items", "requests", "model", "encoder", "infer", "collect", "similarity", "metrics"]
    order += ["export", "compare", "summary", "report"]
    print(f"\n{'stage':<12}{'jobs':>5}{'seconds':>10}{'peak MB':>13}")
    for stage in sorted(rows, key=lambda s: order.index(s) if s in order else len(order)):
        seconds = sum(float(row["s"]) for row in rows[stage])
        memory = max((float(row["max_rss"]) for row in rows[stage] if row["max_rss"] not in ("-", "NA")), default=0.0)
        print(f"{stage:<12}{len(rows[stage]):>5}{seconds:>10.1f}{memory:>13.0f}")
    print(f"\nResults in {args.results}:")
    for path in sorted(Path(args.results).glob("*")):
        print(f"  {path}")
    report_path = Path(args.results).parent / "report" / "index.html"
    if report_path.exists():
        print(f"To browse the report, open {report_path}.")
