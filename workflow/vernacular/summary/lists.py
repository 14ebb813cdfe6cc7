"""Worksheets with a row per comparison (also as a sentence), diagnosis, model and scope, estimate or training curve.

In other tables, checkpoints have columns of their position in training, and notes on equal weights.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable

import pandas as pd
from openpyxl.formatting.rule import ColorScaleRule
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.errors import format_count
from vernacular.core.metadata import FAILURE, INFORMATION, MetricsMetadata, ResultsMetadata, encode, note
from vernacular.core.model_record import ModelRecord, recorded_model
from vernacular.core.paths import publishable
from vernacular.core.tables import finite_or_none, format_difference, format_value, plain_text
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import POSITION
from vernacular.protocols.diagnosis import CODES
from vernacular.summary import cells
from vernacular.summary.grid import sort_rows, with_columns_of
from vernacular.summary.rows import Column, columns_of, marked_options, write_rows
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT


def describe_comparison(row: dict) -> str:
    """Describe a COMPARISONS row in a sentence, for readers who do not use p-values.

    "mine is better than base by 3.1 points (95 % interval +1.2 points to +5.0 points)."
    "No significant difference (+0.4 points); minimum detectable difference with 500 items: 4.2 points."
    """
    baseline, candidate = plain_text(row["baseline"])[:80], plain_text(row["candidate"])[:80]
    unit, difference = row["unit"], finite_or_none(row["difference"])
    if difference is None:
        return f"Not comparable: {row['note'] or 'no item has a value for both models'}."
    if row["better"]:
        better_model, worse_model = (candidate, baseline) if row["better"] == "candidate" else (baseline, candidate)
        comparative = "better" if row["higher_is_better"] is not False else "better (lower)"
        size = f"{_format_magnitude(difference, unit)}{_format_interval(row, difference < 0)}"
        text = f"{better_model} is {comparative} than {worse_model} by {size}."
    elif row["significant"]:
        size = f"{format_difference(difference, unit)}{_format_interval(row)}"
        text = f"{candidate} differs from {baseline} by {size}; neither direction is better."
    elif finite_or_none(row["p_value"]) is None:
        text = f"Not tested: {format_difference(difference, unit)}."
    else:
        minimum = finite_or_none(row["minimum_detectable_difference"])
        items = format_count(row["n"], "item")
        power_note = (
            f"; minimum detectable difference with {items}: {_format_magnitude(minimum, unit)}"
            if minimum is not None
            else ""
        )
        text = f"No significant difference ({format_difference(difference, unit)}){power_note}."
    return text if not row["note"] else f"{text} Note: {row['note'].rstrip('.')}."


def _format_interval(row: dict, negate: bool = False) -> str:
    """Format the interval of the difference; `negate`: of baseline - candidate."""
    low, high = finite_or_none(row["ci_low"]), finite_or_none(row["ci_high"])
    if low is None or high is None:
        return ""
    low, high = (-high, -low) if negate else (low, high)
    return f" (95 % interval {format_difference(low, row['unit'])} to {format_difference(high, row['unit'])})"


def _format_magnitude(value: float, unit) -> str:
    return format_difference(abs(value), unit).removeprefix("+") if unit == "share" else format_value(abs(value), unit)


_PROMPT_NAMES = {ALL_PROMPTS: "mean over prompts"}
_COMPARISONS = columns_of(
    "comparisons",
    prompt_name=lambda row: _PROMPT_NAMES.get(row["prompt"], row["prompt"]),
    interpretation=describe_comparison,  # not printed: it repeats the numbers before it
    is_significant=lambda row: None if row["significant"] is None else ["no", "yes"][row["significant"]],
)
_WITHOUT_FAULTS = dict.fromkeys(f"{name}_without_faults" for name in ("difference", "ci_low", "ci_high", "n"))
_OVERALL = columns_of("overall")


def write_comparisons(sheet: Worksheet, comparisons: list[dict], size: cells.SheetSize = cells.EXCEL) -> None:
    """Write the headline metrics over all items (COMPARISONS rows), in their order, significant differences in bold."""
    rows = [_WITHOUT_FAULTS | row for row in comparisons if row["headline"] and (row["category"] or "") == ""]
    if not rows:
        cells.put_text(sheet, 1, 1, "No comparisons of headline metrics.")
        return
    has_prompts = any(row["prompt"] != DEFAULT_PROMPT for row in rows)
    columns = [column for column in _COMPARISONS if has_prompts or column.title != "prompt"]
    titles = [column.title for column in columns]
    for part, part_rows in write_rows(sheet, columns, rows, 3, size, printed="p (Holm)"):
        for row_number, row in enumerate(part_rows, 2):
            if row["significant"]:
                for title in ("difference", "interpretation"):
                    part.cell(row_number, 1 + titles.index(title)).font = cells.BOLD


def write_overall(sheet: Worksheet, overall: list[dict], size: cells.SheetSize = cells.EXCEL) -> None:
    """Write aggregates (OVERALL rows): all languages first, then each language, by rank; means on a blue scale."""
    if not overall:
        cells.put_text(sheet, 1, 1, "No aggregates over tasks.")
        return
    worst_rank = float("inf")

    def sort_key(row: dict) -> tuple:
        rank = worst_rank if row["rank"] is None else row["rank"]
        return row["scope"] != "all", row["scope"], rank, -(row["mean"] or 0.0), row["model"].casefold()

    rows = sorted(overall, key=sort_key)
    mean_column = get_column_letter(1 + [column.key for column in _OVERALL].index("mean"))
    scale = ColorScaleRule(
        start_type="num", start_value=0, start_color="FFFFFF", end_type="num", end_value=1, end_color="9ECAE1"
    )
    for part, part_rows in write_rows(sheet, _OVERALL, rows, 5, size):
        part.conditional_formatting.add(f"{mean_column}2:{mean_column}{len(part_rows) + 1}", scale)


def with_values_without_faults(values: pd.DataFrame, without: list[dict]) -> pd.DataFrame:
    """Return the table of results with further columns: the value without confirmed faults, its n, the difference."""
    rows = [row | {f"{name}_without_faults": row[name] for name in ("value", "n")} for row in without]
    values = with_columns_of(values, rows, {"value_without_faults": float, "n_without_faults": "Int64"})
    return values.assign(difference_without_faults=values["value_without_faults"] - values["value"])


def without_faults_sheet(values: pd.DataFrame):
    """Return the function that fills a sheet with both values of each evaluation with confirmed faults."""
    shown = values[values["n_without_faults"].notna() & (values["category"].fillna("") == "")]
    rows = shown.astype(object).where(shown.notna(), None).to_dict("records")
    return lambda sheet, size: write_rows(sheet, columns_of("without faults"), rows, 2, size)


_WIDTH = 44  # of the column of codes


def diagnosis_codes(results: ResultsMetadata) -> str | None:
    """Return the codes of an evaluation's diagnoses, worst first, failures in capitals; None without any."""
    known = [each for each in results.diagnoses if each.severity != INFORMATION]
    return ", ".join(each.code.upper() if each.severity == FAILURE else each.code for each in known) or None


def diagnosis_rows(models: Iterable[MetricsMetadata]) -> list[dict]:
    """Return a row per model, evaluation and diagnosis, information excepted."""
    return [
        {"model": metadata.model, "evaluation": evaluation, "items": results.items} | publishable(encode(diagnosis))
        for metadata in models
        for evaluation, results in metadata.evaluations.items()
        for diagnosis in results.diagnoses
        if diagnosis.severity != INFORMATION
    ]


def worst_first(row: dict) -> tuple:
    """Return the sort key of a row: failures first, then causes before effects, then by the number of items."""
    return row["severity"] != FAILURE, CODES.index(row["code"]), -(row.get("count") or row["n"])


_DIAGNOSES = columns_of(
    "diagnoses",
    n_symptoms=lambda row: row.get("count"),
    example_items=lambda row: ", ".join(each["item"] for each in row["examples"]) or None,
)


def write_diagnoses(sheet: Worksheet, rows: list[dict], size: cells.SheetSize) -> None:
    """Write a row per diagnosis, worst first."""
    write_rows(sheet, _DIAGNOSES, sorted(rows, key=worst_first), 3, size, printed="of")


def language_rows(models: Iterable[MetricsMetadata]) -> list[dict]:
    """Return the languages of generated texts by model and language of the items, over all evaluations.

    Keys: model, language, `answered` and `gold` (Counters of responses and of joined short ones), `undecided`.
    """
    rows: dict[tuple[str, str], dict] = {}
    for metadata in models:
        for results in metadata.evaluations.values():
            counts = results.language
            if counts is None or counts.missing or results.dataset is None:
                continue
            key = metadata.model, results.dataset.language
            row = rows.setdefault(key, {"answered": Counter(), "gold": Counter(), "undecided": 0})
            row["answered"].update(counts.answered)
            row["answered"].update(counts.blocks)
            row["gold"].update(counts.gold)
            row["gold"].update(counts.gold_blocks)
            row["undecided"] += counts.undecided
    return [{"model": model, "language": language} | row for (model, language), row in rows.items()]


def confusion_rows(models: Iterable[MetricsMetadata], classifications: Collection[str]) -> list[dict]:
    """Return the number of items by model, evaluation, correct and predicted class; None: a tie, or no class."""
    return [
        {"model": metadata.model, "evaluation": evaluation, "correct": label.label, "predicted": name, "items": count}
        for metadata in models
        for evaluation, results in metadata.evaluations.items()
        if results.profile and evaluation in classifications
        for label, counts in zip(results.profile.labels, results.profile.confusion, strict=True)
        for name, count in zip([*(each.label for each in results.profile.labels), None], counts, strict=True)
    ]


def write_confusion(sheet: Worksheet, rows: list[dict], size: cells.SheetSize) -> None:
    """Write a row per correct and predicted class, in the order of the classes."""
    columns = columns_of("confusion", predicted_class=lambda row: row["predicted"] or "none")
    write_rows(sheet, columns, rows, 4, size)


def write_languages(sheet: Worksheet, rows: list[dict], size: cells.SheetSize) -> None:
    """Write the shares of languages, a row per model and language of the items, beside those of the correct answers."""

    def share(name: str, counts: str = "answered"):
        return lambda row: row[counts][name or row["language"]] / total if (total := row[counts].total()) else None

    names = list(dict.fromkeys(name for row in rows for name in (row["language"], *row["answered"])))
    columns = [
        Column("model", "model", 24),
        Column("language of the items", "language", 12),
        Column("responses", lambda row: row["answered"].total(), 10, "and blocks of joined short responses", "0"),
        Column("too short", "undecided", 10, "responses below 40 letters, which are joined", "0"),
        Column("correct answers in it", share("", "gold"), 12, "the same rule on the correct answers", "0.0%"),
        *(Column(name, share(name), 10, "share of the responses in this language", "0.0%") for name in names),
    ]
    write_rows(sheet, columns, rows, 3, size)


def add_codes(sheet: Worksheet, models: list[str], rows: list[dict], header: int, column: int) -> None:
    """Add a column with the codes of each model, and in how many evaluations, below the row `header`."""
    cells.style_header(cells.put_text(sheet, header, column, "diagnosis"))
    sheet.column_dimensions[get_column_letter(column)].width = _WIDTH
    for number, model in enumerate(models, header + 1):
        counts = Counter(row["code"] for row in sorted(rows, key=worst_first) if row["model"] == model)
        if counts:
            text = ", ".join(f"{code} ({count})" for code, count in counts.items())
            cells.put_text(sheet, number, column, text).alignment = cells.TOP_WRAPPED


# further columns of results.csv
_ESTIMATE_COLUMNS = dict.fromkeys(("n_labels", "n_scored"), "Int64")
_ESTIMATE_COLUMNS |= dict.fromkeys(
    ("rho", "weight", "ratio", "labels_only", "labels_only_low", "labels_only_high"), float
)


def add_estimates(long: pd.DataFrame, estimates: list[dict]) -> pd.DataFrame:
    """Return the long table with a row for each estimate of a model (ESTIMATES rows without a baseline).

    The row is that of another metric of the evaluation, with the estimate in place of its value.
    """
    own = long[long["category"].fillna("") == ""].drop_duplicates(["model", "evaluation"])
    by_evaluation = {(row["model"], row["evaluation"]): row for row in own.to_dict("records")}
    rows = [
        by_evaluation[row["model"], row["evaluation"]]
        | {name: row[name] for name in ("metric", "value", "ci_low", "ci_high", "unit", "headline")}
        | {"n": row["n_labels"], "n_flagged": 0, "higher_is_better": True, "signature": _estimate_signature(row)}
        | dict.fromkeys(("n_ties", "chance_level", "majority_baseline"))
        for row in estimates
        if row["baseline"] is None
    ]
    if not rows:
        return long
    return sort_rows(pd.concat([long, pd.DataFrame(rows).astype(long.dtypes)], ignore_index=True))


def _estimate_signature(row: dict) -> str:
    parts = [row["metric"], f"labels:{row['n_labels']}", f"items:{row['n']}", f"score:{row['score'] or 'none'}"]
    return "|".join(parts)


def with_estimate_columns(values: pd.DataFrame, estimates: list[dict]) -> pd.DataFrame:
    """Return the table of results with what an estimate is made of in further columns, empty in other rows."""
    rows = [row | {"category": ""} for row in estimates if row["baseline"] is None]
    return with_columns_of(values, rows, _ESTIMATE_COLUMNS)


_BETWEEN = columns_of(
    "between languages",
    subtracted=lambda row: row["baseline"] or None,
    metric_name=lambda row: display_name(row["metric"]),
    excluded_or_none=lambda row: row["n_excluded"] or None,
)
_LANGUAGE_ITEMS = columns_of(
    "language items",
    n_wrong_here=lambda row: len(row["models"]),
    options_here=lambda row: marked_options(row["choices"], row["gold"]),
    options_there=lambda row: marked_options(row["reference_choices"], row["gold"]),
    predicted_here=lambda row: "\n".join(
        f"{m}: {p or '–'}" for m, p in zip(row["models"], row["predictions"], strict=True)
    ),
)


def between_languages_sheets(rows: list[dict], items: list[dict]) -> dict:
    """Return sheets by name, from BETWEEN_LANGUAGES and LANGUAGE_ITEMS rows: values first, then differences."""
    rows = sorted(rows, key=lambda row: bool(row["baseline"]))
    if not rows:
        return {}
    return {
        "between languages": lambda sheet, size: write_rows(sheet, _BETWEEN, rows, 2, size),
        "language items": lambda sheet, size: write_rows(sheet, _LANGUAGE_ITEMS, items, 3, size),
    }


def estimates_sheet(estimates: list[dict]):
    """Return the function that fills a sheet with all estimates: values of models, then differences."""
    rows = sorted(estimates, key=lambda row: row["baseline"] is not None)
    columns = columns_of("labels", score_name=lambda row: row["score"] or "labels alone")
    return lambda sheet, size: write_rows(sheet, columns, rows, 5, size)


_UNPAIRED_FORMATS = dict.fromkeys(
    ("outside_value", "outside_low", "outside_high", "value", "ci_low", "ci_high"), "unit"
)
_UNPAIRED_FORMATS |= dict.fromkeys(("difference", "difference_low", "difference_high"), "difference")


def unpaired_sheet(rows: list[dict]):
    """Return the function that fills a sheet with values from outside without items (UNPAIRED rows)."""
    columns = [Column(name.replace("_", " "), name, 16, cell_format=_UNPAIRED_FORMATS.get(name)) for name in rows[0]]
    return lambda sheet, size: write_rows(sheet, columns, rows, 5, size)


_CURVES = columns_of(
    "curves",
    category_or_none=lambda row: row["category"] or None,
    missing_or_none=lambda row: row["n_missing"] or None,
)
_TRUST = columns_of("task trust")
_DECIDING = columns_of("deciding metrics", chosen_mark=lambda row: "●" if row["is_chosen"] else None)


def deciding_sheets(rows: list[dict]) -> dict[str, Callable[..., None]]:
    """Return the sheet of DECIDING_METRICS rows with a decision accuracy by its name; {} without any."""
    rows = [row for row in rows if row["decision_accuracy"] is not None]
    fill = {"deciding metrics": lambda sheet, size=cells.EXCEL: _fill(sheet, _DECIDING, rows, "", size)}
    return fill if rows else {}


def curve_sheets(statistics: list[dict], trust: list[dict], text: str) -> dict[str, Callable[..., None]]:
    """Return sheets of the leaderboard by name, from rows of the curve tables and the sentence on tasks."""
    return {
        "curves": lambda sheet, size=cells.EXCEL: _fill(sheet, _CURVES, statistics, "No curves.", size),
        "task trust": lambda sheet, size=cells.EXCEL: write_trust(sheet, trust, text, size),
    }


def write_trust(sheet: Worksheet, rows: list[dict], text: str, size: cells.SheetSize = cells.EXCEL) -> None:
    """Write TASK_TRUST rows, and below them the sentence on which tasks to look at."""
    sheet, n_rows = _fill(sheet, _TRUST, rows, "No curve statistics.", size)
    if rows and text:
        sheet, number = (sheet, n_rows + 3) if n_rows + 3 <= size.rows else (cells.continued(sheet), 1)
        cells.put_text(sheet, number, 1, text).alignment = cells.TOP_WRAPPED
        sheet.merge_cells(start_row=number, end_row=number, start_column=1, end_column=10)
        sheet.row_dimensions[number].height = 60


def _fill(
    sheet: Worksheet, columns: list, rows: list[dict], message: str, size: cells.SheetSize
) -> tuple[Worksheet, int]:
    """Write the rows, or a message without any; return the last sheet and its number of rows."""
    if not rows:
        cells.put_text(sheet, 1, 1, message)
        return sheet, 0
    has_prompts = any(row["prompt"] != DEFAULT_PROMPT for row in rows)
    shown = [column for column in columns if has_prompts or column.title != "prompt"]
    last, last_rows = write_rows(sheet, shown, rows, 2, size)[-1]
    return last, len(last_rows)


def add_positions(table: pd.DataFrame, checkpoints: dict[str, dict]) -> pd.DataFrame:
    """Return a table with a column `model`, and the columns of `POSITION` added; null for models of no series.

    checkpoints: model -> series, curve, step, tokens, words.
    """
    positions = [checkpoints.get(model, {}) for model in table["model"]]
    columns = {name: [position.get(name) for position in positions] for name, _ in POSITION}
    types = {name: object if name in ("series", "curve") else "Int64" for name in columns}
    return table.assign(**{name: pd.array(values, dtype=types[name]) for name, values in columns.items()})


def equal_weight_notes(models: list[MetricsMetadata], checkpoints: dict[str, dict]) -> list[dict]:
    """Return a note for each set of checkpoints with the same weights: one may be stored under a wrong name."""
    by_weights: dict[tuple, list[str]] = {}
    for metadata in models:
        if metadata.model in checkpoints and (weights := _weights(recorded_model(metadata))):
            by_weights.setdefault(weights, []).append(metadata.model)
    text = "checkpoints with the same weights, which training changes: one may be stored under a wrong name: "
    return [
        note("same weights", text + ", ".join(names), model=names[0]) for names in by_weights.values() if len(names) > 1
    ]


def _weights(record: ModelRecord) -> tuple:
    """Return the hashes of the files with weights, which are the adapter's if there is one."""
    files = record.own_contents.files if record.own_contents else {}
    is_single_file = "." in files
    suffixes = (".safetensors", ".bin")
    hashes = [entry["sha256"] for name, entry in files.items() if is_single_file or name.endswith(suffixes)]
    return tuple(sorted(hashes))
