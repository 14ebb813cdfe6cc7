"""Command `table`: a table of chosen results for a paper, as LaTeX or Markdown."""

import sys
from pathlib import Path

from vernacular.comparison.schema import COMPARISONS, PROMPTS, RANKINGS
from vernacular.config.dependencies import task_titles
from vernacular.config.directories import check_written
from vernacular.config.load import load
from vernacular.core import artifacts
from vernacular.core.errors import UserError, check_at_least, suggest
from vernacular.core.metadata import FAILURE
from vernacular.core.paths import display_path
from vernacular.core.tables import to_frame
from vernacular.metrics.schema import RESULTS
from vernacular.summary.grid import as_questions, make_headings
from vernacular.summary.paper import TEXT_WIDTH, choose, make_table, to_latex, to_markdown

_POINTS = 72.27 / 2.54  # of TeX, in a centimeter
_COLUMN = 7.7 * _POINTS  # of the class acl, and about that of others with two columns
_SELECTED = ("task", "language", "protocol")  # columns by which evaluations can be chosen


def table(args) -> None:
    """Print the table of the config's models and evaluations, or of those chosen, from the results of the run.

    Evaluations that differ in the prompt only are shown as their mean over prompts. Models and evaluations of the
    config without results are named on standard error. Raises UserError if the results do not exist, a chosen name has
    none, or the width is less than 0.
    """
    check_at_least(0, width=args.width)
    config = load([args.config])
    summary = Path(config.output, "summary")
    table, metadata = artifacts.read_all(check_written(summary / "results.parquet", args.config), RESULTS)
    long = to_frame(table)
    for name in args.models or ():
        if name not in config.models:
            raise UserError(f'--models: "{name}" is not a model of {args.config}.{suggest(name, config.models)}')
    headings = make_headings(long, task_titles(config))
    prompts = artifacts.read(summary / "prompts.parquet", PROMPTS).to_pylist()
    prompts = [row for row in prompts if config.evaluations.keys() >= set(row["evaluations"])]
    selected = {*config.evaluations, *(row["evaluation"] for row in prompts)}
    long = long[long["evaluation"].isin(selected) & (long["category"].fillna("") == "")]
    models = list(dict.fromkeys(args.models or config.models))
    long = choose(long[long["model"].isin(models)], "model", args.models, "--models")
    for column in _SELECTED:
        long = choose(long, column, getattr(args, f"{column}s"), f"--{column}s")
    choose(long, "metric", args.metrics, "--metrics")
    _report_missing(config, args, summary, set(long["model"]), set(long["evaluation"]))
    long = as_questions(long, prompts)
    rankings = artifacts.read(summary / "rankings.parquet", RANKINGS).to_pylist()
    is_dense = args.preset == "column"
    paper_table = make_table(
        long,
        headings,
        rankings,
        models=models,
        metrics=args.metrics,
        intervals=args.marks == "interval",
        tests=_tests(summary),
        prompts=prompts,
        transpose=args.transpose or is_dense,
        chance=args.chance or is_dense,
        dense=is_dense,
        failures=_failures(metadata.get("notes", [])),
    )
    default = _COLUMN if is_dense else TEXT_WIDTH
    width = None if args.width == 0 else default if args.width is None else args.width * _POINTS
    text = to_latex(paper_table, args.label, width) if args.format == "latex" else to_markdown(paper_table)
    print(text, end="")


def _report_missing(config, args, summary: Path, models: set[str], evaluations: set[str]) -> None:
    """Print the models and evaluations of the selection that have no results, which the table cannot show."""
    missing = [f"model {name}" for name in args.models or config.models if name not in models]
    for name, evaluation in config.evaluations.items():
        chosen = ((getattr(args, f"{field}s"), getattr(evaluation, field)) for field in _SELECTED)
        if name not in evaluations and all(names is None or value in names for names, value in chosen):
            missing.append(name)
    if missing:
        path = display_path(summary / "notes.csv")
        print(f"table: no results of {', '.join(missing)}; see {path}", file=sys.stderr)


def _failures(notes: list[dict]) -> dict[tuple[str, str], str]:
    """Return the sentence about a failure of each (model, evaluation), from the notes of the run."""
    failed = [note for note in notes if note["kind"] == "diagnosis" and f"({FAILURE})" in note["note"]]
    return {(note["model"], note["evaluation"]): note["note"].partition(": ")[2] for note in failed}


def _tests(summary: Path) -> dict[tuple[str, str], dict[str, None]]:
    """Return the names of the tests of each (evaluation, metric) over all items, as far as pairs were compared."""
    tests: dict[tuple[str, str], dict[str, None]] = {}
    for row in artifacts.read(summary / "comparisons.parquet", COMPARISONS).to_pylist():
        if row["test"] and not row["category"]:
            tests.setdefault((row["evaluation"], row["metric"]), {})[row["test"]] = None
    return tests
