"""Worksheets with a row per comparison, or per model and scope; each comparison also as a sentence."""

import math
from collections.abc import Callable
from typing import NamedTuple

from openpyxl.formatting.rule import ColorScaleRule
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.errors import counted
from vernacular.core.tables import is_finite, plain_text
from vernacular.summary.cells import (
    BOLD,
    TOP,
    TOP_CENTRED,
    TOP_WRAPPED,
    Styles,
    change,
    comment,
    metric_title,
    number_format,
    print_landscape,
    put_number,
    put_text,
    shown,
    style_header,
)


def in_words(row: dict) -> str:
    """Describe a COMPARISONS row in a sentence, for readers who do not use p-values.

    "mine is better than base by 3.1 points (95 % interval +1.2 points to +5.0 points)."
    "No significant difference (+0.4 points); minimum detectable difference with 500 items: 4.2 points."
    """
    baseline, candidate = plain_text(row["baseline"])[:80], plain_text(row["candidate"])[:80]
    unit, difference = row["unit"], _number(row["difference"])
    if difference is None:
        return f"Not comparable: {row['note'] or 'no item has a value for both models'}."
    if row["better"]:
        ahead, behind = (candidate, baseline) if row["better"] == "candidate" else (baseline, candidate)
        way = "better" if row["higher_is_better"] is not False else "better (lower)"
        text = f"{ahead} is {way} than {behind} by {_size(difference, unit)}{_interval(row, difference < 0)}."
    elif row["significant"]:
        differs = f"{candidate} differs from {baseline} by {change(difference, unit)}{_interval(row)}"
        text = f"{differs}; neither direction is better."
    elif _number(row["p_value"]) is None:
        text = f"Not tested: {change(difference, unit)}."
    else:
        least = _number(row["minimum_detectable_difference"])
        items = counted(row["n"], "item")
        detectable = f"; minimum detectable difference with {items}: {_size(least, unit)}" if least is not None else ""
        text = f"No significant difference ({change(difference, unit)}){detectable}."
    return text if not row["note"] else f"{text} Note: {row['note'].rstrip('.')}."


def _interval(row: dict, turned: bool = False) -> str:
    """Format the interval of the difference; `turned`: of baseline - candidate."""
    low, high = _number(row["ci_low"]), _number(row["ci_high"])
    if low is None or high is None:
        return ""
    low, high = (-high, -low) if turned else (low, high)
    return f" (95 % interval {change(low, row['unit'])} to {change(high, row['unit'])})"


def _size(value: float, unit) -> str:
    return change(abs(value), unit).removeprefix("+") if unit == "share" else shown(abs(value), unit)


def _number(value) -> float | None:
    """Return `value` as a float; None if it is missing or not finite."""
    return float(value) if is_finite(value) else None


class _Column(NamedTuple):
    title: str
    key: str | Callable[[dict], object]  # column of the row, or a function of the row
    width: int
    about: str = ""  # comment of the header
    form: str | None = None  # Excel format; "unit": that of the row's unit; "difference": the same, signed


_COMPARISONS = [
    _Column("baseline", "baseline", 24),
    _Column("candidate", "candidate", 24),
    _Column("task", "task", 20),
    _Column("language", "language", 10),
    _Column("protocol", "protocol", 14),
    _Column("shots", "shots", 7, form="0"),
    _Column("seed", "seed", 7, form="0"),
    _Column("style", "style", 12),
    _Column("metric", lambda row: metric_title(row["metric"], row["unit"], row["higher_is_better"]), 22),
    _Column("interpretation", in_words, 80),
    _Column("baseline value", "baseline_value", 10, "over the items with a value for both models", "unit"),
    _Column("candidate value", "candidate_value", 10, "over the items with a value for both models", "unit"),
    _Column("difference", "difference", 11, "candidate - baseline; percentage points for shares", "difference"),
    _Column("low", "ci_low", 10, "95 % interval of the difference: paired bootstrap", "difference"),
    _Column("high", "ci_high", 10, "95 % interval of the difference: paired bootstrap", "difference"),
    _Column("p", "p_value", 9, "paired test; see the column test", "0.0000"),
    _Column("p (Holm)", "p_holm", 9, "Holm correction over all headline comparisons of this pair of models", "0.0000"),
    _Column("tests", "n_tests", 7, "number of comparisons in the Holm correction", "0"),
    _Column("significant", lambda row: None if row["significant"] is None else ["no", "yes"][row["significant"]], 11),
    _Column("items", "n", 8, "items with a value for both models", "0"),
    _Column("only candidate correct", "candidate_only_correct", 10, form="0"),
    _Column("only baseline correct", "baseline_only_correct", 10, form="0"),
    _Column("both correct", "both_correct", 8, form="0"),
    _Column("both incorrect", "both_incorrect", 8, form="0"),
    _Column("net gain", "net_gain", 8, "only candidate correct - only baseline correct", "+0;-0;0"),
    _Column(
        "minimum detectable difference",
        "minimum_detectable_difference",
        12,
        "detectable with this number of items at a power of 0.8",
        "unit",
    ),
    _Column("test", "test", 26),
]

_OVERALL = [
    _Column("scope", "scope", 10, "a language, or all languages"),
    _Column("rank", "rank", 7, "1 + number of significantly better models; models may share a rank", "0"),
    _Column("model", "model", 34),
    _Column(
        "mean above chance",
        "mean",
        12,
        "mean of (value - chance) / (1 - chance) over the evaluations available for every model of the scope: 0 is "
        "chance, 100 % is all correct",
        "0.0%",
    ),
    _Column("low", "ci_low", 10, "95 % interval: bootstrap of the items within each evaluation", "0.0%"),
    _Column("high", "ci_high", 10, "95 % interval: bootstrap of the items within each evaluation", "0.0%"),
    _Column(
        "win rate",
        "win_rate",
        10,
        "share of (other model, evaluation) pairs that the model leads; a tie counts half",
        "0.0%",
    ),
    _Column("evaluations", "n_evaluations", 12, "number of evaluations in the mean", "0"),
    _Column("excluded", "n_excluded", 10, "evaluations not available for every model, or without a chance level", "0"),
]


def write_comparisons(sheet: Worksheet, comparisons: list[dict]) -> None:
    """Write the headline metrics over all items (COMPARISONS rows), in their order, significant differences in bold."""
    rows = [row for row in comparisons if row["headline"] and (row["category"] or "") == ""]
    if not rows:
        put_text(sheet, 1, 1, "No comparisons of headline metrics.")
        return
    _write(sheet, _COMPARISONS, rows, frozen=3)
    for line, row in enumerate(rows, 2):
        if row["significant"]:
            for title in ("difference", "interpretation"):
                sheet.cell(line, 1 + [column.title for column in _COMPARISONS].index(title)).font = BOLD


def write_across(sheet: Worksheet, overall: list[dict]) -> None:
    """Write aggregates (OVERALL rows): all languages first, then each language, by rank; means on a blue scale."""
    if not overall:
        put_text(sheet, 1, 1, "No aggregates over tasks.")
        return
    last = float("inf")

    def order(row: dict) -> tuple:
        rank = last if row["rank"] is None else row["rank"]
        return row["scope"] != "all", row["scope"], rank, -(row["mean"] or 0.0), row["model"].casefold()

    rows = sorted(overall, key=order)
    _write(sheet, _OVERALL, rows, frozen=4)
    letter = get_column_letter(1 + [column.key for column in _OVERALL].index("mean"))
    scale = ColorScaleRule(
        start_type="num", start_value=0, start_color="FFFFFF", end_type="num", end_value=1, end_color="9ECAE1"
    )
    sheet.conditional_formatting.add(f"{letter}2:{letter}{len(rows) + 1}", scale)


def _write(sheet: Worksheet, columns: list[_Column], rows: list[dict], frozen: int) -> None:
    like = Styles()
    for place, column in enumerate(columns, 1):
        header = style_header(put_text(sheet, 1, place, column.title))
        if column.about:
            header.comment = comment(column.about, lines=3)
        letter = get_column_letter(place)
        sheet.column_dimensions[letter].width = column.width
        values = [column.key(row) if callable(column.key) else row[column.key] for row in rows]
        sheet.column_dimensions[letter].hidden = all(value is None for value in values)
        for line, (value, row) in enumerate(zip(values, rows, strict=True), 2):
            if value is None:
                continue
            if isinstance(value, str):
                like(put_text(sheet, line, place, value), alignment=TOP_WRAPPED if column.width > 40 else TOP)
                lines = math.ceil(1.1 * len(value) / column.width) if column.width > 40 else 1
                if lines > 1:  # LibreOffice does not adjust the height automatically
                    sheet.row_dimensions[line].height = 15 * lines
                continue
            whole = isinstance(value, int)
            cell = put_number(sheet, line, place, value if whole else float(value))
            like(cell, number_format=_format(column.form, row), alignment=TOP_CENTRED if whole else TOP)
    sheet.row_dimensions[1].height = 45
    sheet.freeze_panes = sheet.cell(2, frozen)
    sheet.auto_filter.ref = f"A1:{get_column_letter(len(columns))}{len(rows) + 1}"
    sheet.print_title_rows = "1:1"
    print_landscape(sheet)


def _format(form: str | None, row: dict) -> str:
    if form == "unit":
        return number_format(row["unit"])
    if form == "difference":
        plain = number_format(row["unit"])
        return f"+{plain};-{plain};{plain}"
    return form or "General"
