"""Commands `verify` and `finish`: missing results of a run, and its summary on the terminal."""

import csv
from collections import Counter
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError, format_count
from vernacular.core.fields import Stage
from vernacular.metrics.metric import display_name
from vernacular.report.provenance import benchmark_files
from vernacular.summary.cells import format_p_value, format_value
from vernacular.summary.notes import split_list

MAX_SENTENCES = 5  # comparisons on the terminal; the others are in the tables
MAX_MODELS = 10  # that lack the same results
MAX_EVALUATIONS = 3  # missing for the same reason; the others are in the notes


class Verify(Stage):
    """Fail if results are missing from the summary."""

    notes: Path  # notes of the summary, as CSV
    out: Path  # written if none is missing


def verify(args: Verify) -> str:
    """Raise UserError with what is missing from the summary, which is complete otherwise."""
    with open(args.notes, encoding="utf-8-sig", newline="") as file:
        missing = [row for row in csv.DictReader(file) if row["kind"] == "unavailable"]
    if missing:
        lines = "\n".join(_missing_lines(missing))
        raise UserError(f"the summary is written, but results are missing:\n{lines}")
    with replacing(args.out) as temporary:
        temporary.write_text("No results are missing from the summary.\n")
    return "verify: no results are missing from the summary"


def _missing_lines(rows: list[dict]) -> list[str]:
    """Return the missing evaluations, grouped by models and by reason."""
    reasons: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        evaluations = reasons.setdefault(row["models"], {}).setdefault(row["note"], {})
        evaluations |= dict.fromkeys(split_list(row["evaluations"]))
    lines = []
    for models, by_note in reasons.items():
        lines.append(f"  {_first(split_list(models), MAX_MODELS)}")
        for note, names in by_note.items():  # of no evaluation, if external results are not used
            lines.append(f"    {_first(list(names), MAX_EVALUATIONS)}: {note}" if names else f"    {note}")
    return lines


def _first(names: list[str], limit: int) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


class Finish(Stage):
    """Print paths, comparisons and times at the end of a run."""

    benchmarks: Path  # directory of Snakemake's benchmark files
    results: Path  # directory of the tables


def finish(args: Finish) -> None:
    """Print where the results are, one sentence per comparison, and the time and memory of each stage."""
    paths = {
        "Report (open it in a browser)": args.results.parent / "report" / "index.html",
        "Leaderboard": args.results / "leaderboard.xlsx",
        "All values": args.results / "results.csv",
    }
    print()
    for label, path in paths.items():
        if path.exists():  # a run may have had other targets
            print(f"{label}: {path}")
    if (comparisons := args.results / "comparisons.csv").exists():
        sentences = _comparisons(comparisons)
        print("", *sentences[:MAX_SENTENCES], sep="\n")
        if more := sentences[MAX_SENTENCES:]:
            print(f"{format_count(len(more), 'other comparison')}: {comparisons}")
    rows: dict[str, list[dict]] = {}
    summary = args.results / "results.parquet"
    described = artifacts.metadata(summary).get("models", []) if summary.exists() else None
    names = (
        None if described is None else {model[key] for model in described for key in ("name", "base") if key in model}
    )
    for path in benchmark_files(args.benchmarks, names):
        with open(path, newline="") as file:
            rows.setdefault(path.parent.name, []).extend(csv.DictReader(file, delimiter="\t"))
    order = ["items", "requests", "model", "server", "encoder", "infer", "infer_server", "collect"]
    order += ["similarity", "metrics", "export", "compare", "curves", "summary", "report"]
    print(f"\n{'stage':<12}{'jobs':>5}{'wall time, s':>14}{'CPU time, s':>13}{'peak MB':>9}")
    for stage in sorted(rows, key=lambda s: order.index(s) if s in order else len(order)):
        wall, cpu, memory = (_numbers(rows[stage], column) for column in ("s", "cpu_time", "max_rss"))
        print(f"{stage:<12}{len(rows[stage]):>5}{sum(wall):>14.1f}{sum(cpu):>13.1f}{max(memory, default=0.0):>9.0f}")


def _numbers(rows: list[dict], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row[column] not in ("-", "NA")]


def _comparisons(path: Path) -> list[str]:
    """Return a sentence per pair of models: headline metrics that differ significantly, and the clearest difference."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        pairs: dict[tuple[str, str], list[dict]] = {}
        for row in csv.DictReader(file):
            if row["p_holm"] and not row["category"]:
                pairs.setdefault((row["baseline"], row["candidate"]), []).append(row)
    return [_sentence(baseline, candidate, rows) for (baseline, candidate), rows in pairs.items()]


def _sentence(baseline: str, candidate: str, rows: list[dict]) -> str:
    significant = Counter(row["better"] for row in rows if row["significant"] == "True")
    better, worse = significant["candidate"], significant["baseline"]
    clearest = min(rows, key=lambda row: float(row["p_value"]))
    unit = clearest["unit"]
    values = " -> ".join(format_value(float(clearest[side]), unit) for side in ("baseline_value", "candidate_value"))
    p, p_holm = (format_p_value(float(clearest[name])) for name in ("p_value", "p_holm"))
    n_metrics = format_count(len(rows), "headline metric")
    verdict = f"is significantly better than {baseline} in {better} of {n_metrics} and worse in {worse}"
    if not better and not worse:
        verdict = f"does not differ significantly from {baseline} in any of {n_metrics}"
    return (
        f"{candidate} {verdict}; clearest difference: {clearest['evaluation']}, {display_name(clearest['metric'])}: "
        f"{values} ({p}, {p_holm.replace('p', 'p (Holm)', 1)})."
    )
