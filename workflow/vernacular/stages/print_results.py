"""Stage `print-results`: the end of a run on the terminal, its times, values, comparisons and paths."""

import csv
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.compute as pc

from vernacular.comparison.schema import PROMPTS, RANKINGS
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage
from vernacular.core.tables import format_value, p_value_text, plain_text, text_table, to_frame
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import ABOUT_SAMPLES, RESULTS, is_from_samples
from vernacular.report.provenance import benchmark_files
from vernacular.statistics.significance import FAMILIES
from vernacular.summary.grid import Grid, as_questions, build_grid, direction, make_headings, metric_title
from vernacular.types import OPTIONS_ONLY

MAX_VALUES = 100  # on the terminal, each on a line with its interval; more are printed as a column per evaluation
MAX_COLUMNS = 20  # evaluations; more are shortened to one per task, and tasks to MAX_VALUES
MAX_SENTENCES = 5  # comparisons on the terminal; the others are in the tables


class PrintResults(Stage):
    """Print values, comparisons, times and paths at the end of a run."""

    benchmarks: Path  # directory of Snakemake's benchmark files
    results: Path  # directory of the tables
    tasks: dict[str, dict] = field(default_factory=dict)  # title of each task
    languages: list[str] = field(default_factory=list)  # in the order of the config


def print_results(args: PrintResults) -> None:
    """Print time and memory of each stage, values, a sentence per comparison, the worst diagnosis, and the paths."""
    summary = args.results / "results.parquet"
    stated = artifacts.metadata(summary) if summary.exists() else None
    described = stated and stated.get("models", [])
    _print_times(args.benchmarks, described)
    if described is not None:
        print("", *_value_lines(args, stated.get("notes", [])), sep="\n")
    comparisons = args.results / "comparisons.csv"
    if sentences := _comparisons(comparisons) if comparisons.exists() else []:
        print("", f"Significance: {FAMILIES}.", *sentences[:MAX_SENTENCES], sep="\n")
        if more := sentences[MAX_SENTENCES:]:
            print(f"{format_count(len(more), 'other comparison')}: {comparisons}")
    notes = (note["note"] for note in (stated or {}).get("notes", []) if note["kind"] == "judge")
    if judges := sorted({note.partition(" (")[0] for note in notes if ": unvalidated," in note}):
        print(f"\nUnvalidated: values of {', '.join(judges)}; no speaker has labeled what they judge.")
    if worst := stated and stated.get("worst_diagnosis"):
        print(f"\nWhy this score? {worst['model']}, {worst['evaluation']}: {worst['sentence']}")
    paths = {
        "Report (open it in a browser)": args.results.parent / "report" / "index.html",
        "Leaderboard": args.results / "leaderboard.xlsx",
        "All values": args.results / "results.csv",
    }
    print()
    for label, path in paths.items():
        if path.exists():  # a run may have had other targets
            print(f"{label}: {path}")


def _print_times(benchmarks: Path, described: list[dict] | None) -> None:
    """Print the time and memory of each stage; `described`: the models of the summary, None without one."""
    rows: dict[str, list[dict]] = {}
    named = [model[key] for model in described or () for key in ("name", "base") if key in model]
    for path in benchmark_files(benchmarks, None if described is None else set(named)):
        with open(path, newline="") as file:
            rows.setdefault(path.parent.name, []).extend(csv.DictReader(file, delimiter="\t"))
    order = ["items", "requests", "model", "server", "encoder", "infer", "infer_server", "collect", "similarity",
             "judge_requests", "judge", "judge_server", "judge_collect", "metrics", "export", "compare", "external",
             "changes", "faults", "estimates", "curves", "between_languages", "audit_lists",
             "summary", "report"]  # fmt: skip
    print(f"\n{'stage':<12}{'jobs':>5}{'wall time, s':>14}{'CPU time, s':>13}{'peak MB':>9}")
    for stage in sorted(rows, key=lambda s: order.index(s) if s in order else len(order)):
        wall, cpu, memory = (_numbers(rows[stage], column) for column in ("s", "cpu_time", "max_rss"))
        print(f"{stage:<12}{len(rows[stage]):>5}{sum(wall):>14.1f}{sum(cpu):>13.1f}{max(memory, default=0.0):>9.0f}")


def _numbers(rows: list[dict], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row[column] not in ("-", "NA")]


class _Value(NamedTuple):
    """A value of one model as texts; each field is a column on the terminal."""

    task: str  # title
    language: str
    setting: str  # protocol, shots, and what else distinguishes the evaluation
    metric: str  # with unit and direction
    model: str
    value: str
    interval: str  # of 95 %
    n: str  # number of items

    @property
    def question(self) -> tuple[str, ...]:
        """What all models have in common."""
        return self[:4]


_NAMES = {"setting": "protocol, shots", "interval": "95% interval"}  # of columns, where they are not those of fields


def _value_lines(args: PrintResults, notes: list[dict]) -> list[str]:
    """Return the values of headline metrics as lines: all, one per evaluation, or one per task, whichever fit."""
    results = artifacts.read(args.results / "results.parquet", RESULTS)
    over_items = pc.equal(pc.fill_null(results["category"], ""), "")  # categories have most of the rows
    long = _last_checkpoints(to_frame(results.filter(over_items)))
    prompts, rankings = (
        artifacts.read(path, kind).to_pylist() if (path := args.results / f"{kind.name}.parquet").exists() else []
        for kind in (PROMPTS, RANKINGS)
    )
    long = as_questions(long.reset_index(drop=True), prompts)
    order: dict[tuple[str, str], int] = {}
    for row in rankings:
        order.setdefault((row["evaluation"], row["metric"]), len(order))
    layout = build_grid(long, make_headings(long, args.tasks), metric_order=order)
    is_alone = layout.columns["style"].fillna("").str.endswith(OPTIONS_ONLY)  # no value of the task
    headlines = layout.columns[(layout.columns["headline"] | layout.columns["is_lead"]) & ~is_alone]
    leads = headlines[headlines["is_lead"]]
    ranks = leads["language"].map({language: rank for rank, language in enumerate(args.languages)})
    one_per_task = leads.iloc[ranks.to_numpy().argsort(kind="stable")].drop_duplicates("task").sort_index()
    everything = _values(long, layout, headlines.index)
    values = everything if len(everything) <= MAX_VALUES else _values(long, layout, leads.index)
    if len(values) <= MAX_VALUES:
        lines = _in_rows(values)
    else:
        shown = leads if len(leads) <= MAX_COLUMNS else one_per_task[:MAX_VALUES]
        values = _values(long, layout, shown.index)
        lines = _in_columns(values)
    if others := len(everything) - len(values):
        counted = f"{format_count(others, 'other value')} of headline metrics"
        lines.append(f"{counted}, and intervals: {args.results / 'results.csv'}")
    if long["dataset_revision"].map(is_from_samples).any():
        lines.append(ABOUT_SAMPLES)
    missing = [note for note in notes if note["kind"] in ("unavailable", "not applicable") and note["evaluation"]]
    if missing:
        models, evaluations = (
            format_count(len({note[noun] for note in missing}), noun) for noun in ("model", "evaluation")
        )
        lines.append(f"Without a value: {evaluations} of {models}; reasons: {args.results / 'notes.csv'}")
    return lines


def _last_checkpoints(long: pd.DataFrame) -> pd.DataFrame:
    """Return the long table without earlier checkpoints of a series, which are in the training curves."""
    last = long.groupby("series")["step"].transform("max")
    return long[long["series"].isna() | (long["step"] == last)]


def _values(long: pd.DataFrame, layout: Grid, columns: Iterable[int]) -> list[_Value]:
    """Return the values of some columns of a grid, in its order."""
    values = []
    for position in columns:
        column = layout.columns.loc[position]
        for model, cell in zip(layout.models["label"], layout.cells[:, position], strict=True):
            if cell < 0:
                continue
            row = long.iloc[cell]
            unit, numbers = row["unit"], (row[name] for name in ("value", "ci_low", "ci_high"))
            number, low, high = ("" if pd.isna(value) else format_value(value, unit) for value in numbers)
            title = metric_title(row["metric"], None if unit == "percent" else unit, direction(row["higher_is_better"]))
            question = [column["title"], column["language"], column["setting"].replace(" · ", ", "), title]
            interval = f"{low} to {high}" if low and high else "none"
            values.append(_Value(*map(plain_text, (*question, model, number or "none", interval, row["n"]))))
    return values


def _in_rows(values: list[_Value]) -> list[str]:
    """Return a line per value, with its interval; what a line has in common with the one above is left empty."""
    n_models = len({value.model for value in values})
    names = [name for name in _Value._fields if n_models > 1 or name != "model"]
    rows, above = [[_NAMES.get(name, name) for name in names]], ("",)
    for value in values:
        texts = [getattr(value, name) for name in names]
        n_common = next((i for i, (a, b) in enumerate(zip(value.question, above, strict=False)) if a != b), 4)
        rows.append(["" if i < n_common else text for i, text in enumerate(texts)])
        above = value.question
    lines = text_table(rows, right=[names.index(name) for name in ("value", "n")])
    return [f"{values[0].model}:", *lines] if n_models == 1 else lines if values else ["no values"]


def _in_columns(values: list[_Value]) -> list[str]:
    """Return a numbered line per evaluation, and its values in a column below, as many as the terminal is wide."""
    questions = list(dict.fromkeys(value.question for value in values))
    numbers = {question: str(number) for number, question in enumerate(questions, 1)}
    by_model: dict[str, dict[str, str]] = {}
    for value in values:
        by_model.setdefault(value.model, {})[numbers[value.question]] = value.value
    header = ["", "task", "language", _NAMES["setting"], "metric"]
    lines = text_table([header, *([numbers[question], *question] for question in questions)], right=[0])
    width, pending = shutil.get_terminal_size((120, 24)).columns, [*numbers.values()]
    while pending:
        for n_columns in range(len(pending), 0, -1):
            shown = pending[:n_columns]
            rows = [[model, *(by_number.get(number, "") for number in shown)] for model, by_number in by_model.items()]
            block = text_table([["model", *shown], *rows], right=range(1, n_columns + 1))
            if max(map(len, block)) <= width:
                break
        lines += ["", *block]
        pending = pending[n_columns:]
    return lines


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
    p, p_holm = (p_value_text(float(clearest[name])) for name in ("p_value", "p_holm"))
    n_metrics = format_count(len(rows), "headline metric")
    verdict = f"is significantly better than {baseline} in {better} of {n_metrics} and worse in {worse}"
    if not better and not worse:
        verdict = f"does not differ significantly from {baseline} in any of {n_metrics}"
    return (
        f"{candidate} {verdict}; clearest difference: {clearest['evaluation']}, {display_name(clearest['metric'])}: "
        f"{values} ({p}, {p_holm} after Holm's correction)."
    )
