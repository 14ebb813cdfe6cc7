"""Headings of a worksheet: languages, tasks, settings and metrics, with notes, baselines and signatures as comments."""

import math
from collections import Counter

import pandas as pd
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.errors import format_count
from vernacular.core.tables import plain_text
from vernacular.summary.cells import LEFT_HEADER, comment, direction, format_value, metric_title, put_text, style_header
from vernacular.summary.columns import Columns, MeanColumn
from vernacular.summary.grid import Grid
from vernacular.summary.headings import Headings

BASELINES = {"chance_level": "chance level", "majority_baseline": "majority baseline"}  # column: its name in comments
LEGEND = [
    "● bold green: the best value of its column.",
    "○ green: not significantly different from the best. If models were compared item by item: paired test, Holm "
    "correction over the column. Otherwise: the 95 % interval of the value includes the best value. The comment on the "
    "column heading names the method.",
    "Gray: the 95 % interval includes the chance level or the majority baseline (always the most frequent answer).",
    "(In parentheses): no 95 % interval, so that the difference from chance is unknown (reason: sheet provenance).",
    "Blue: darker is better; shares from chance to 100 %, other units from the worst to the best value of the column.",
    "↑ higher is better, ↓ lower is better; without an arrow, no value is marked.",
    "Units: shares are shown in %; the heading names any other unit.",
    "+ above the columns: further metrics, or the tasks of a language.",
    "Intervals and numbers of items: in the comments on the language sheets.",
    "n/a: evaluated, but no item could be scored. Empty: not requested or not possible (reason: sheet provenance).",
]
_LEVEL_TITLES = {"language": "language", "title": "task", "setting": "protocol"}
_MEAN_TITLES = {"mean": "Mean above chance (↑)", "rank": "Rank (↓)"}
_MIN_WIDTH, _MAX_WIDTH = 9, 22
_LINE_HEIGHT = 15  # points


def write_headers(
    sheet: Worksheet,
    long: pd.DataFrame,
    layout: Grid,
    columns: Columns,
    *,
    levels: list[str],
    rules: list[str],
    headings: Headings,
) -> None:
    """Write the header rows: one per level, then the metrics.

    Args:
        levels: columns of `layout.columns` above the metric: "language", "title", "setting", or some of them
        rules: (C,) how the marks of each column were determined, for the comment on its metric
    """
    metric_row = len(levels) + 1  # the row of the metrics and the filter arrows
    for row, title in enumerate([*(_LEVEL_TITLES[level] for level in levels), "model"], 1):
        style_header(put_text(sheet, row, 1, title), LEFT_HEADER if row < metric_row else None)
    sheet.cell(1, 1).comment = comment("\n".join(LEGEND), lines=24)
    for row in range(1, metric_row + 1):
        for number in range(2, columns.count + 1):
            style_header(sheet.cell(row, number))
    widths = _write_metrics(sheet, long, layout, columns, metric_row, rules)
    for number, mean in columns.means.items():
        widths[number] = _write_mean(sheet, number, mean, metric_row)
    for level, key in enumerate(levels, 1):
        _write_level(sheet, layout, columns, levels[:level], level, widths, headings)
        if key == "language":
            sheet.row_dimensions[level].height = 18
        if level == 2 and columns.means:  # "19 of 23 evaluations"
            sheet.row_dimensions[level].height = max(sheet.row_dimensions[level].height, 2 * _LINE_HEIGHT + 3)
    for number, width in widths.items():
        sheet.column_dimensions[get_column_letter(number)].width = width


def _write_metrics(sheet: Worksheet, long: pd.DataFrame, layout: Grid, columns: Columns, row: int, rules) -> dict:
    """Write the metric of each column of the grid; return the width of each, by its number in the sheet."""
    names = ("metric", "unit", "higher_is_better", "signature", *BASELINES)
    values_by_name = {name: long[name].astype(object).to_numpy() for name in names}
    widths, lines = {}, 1
    settings, titles = layout.columns["setting"].tolist(), layout.columns["title"].tolist()
    is_narrow = _only_visible_column_of_task(layout, columns)
    for position, (number, rule) in enumerate(zip(columns.numbers.tolist(), rules, strict=True)):
        positions = layout.cells[:, position]
        cell_values = {name: values[positions[positions >= 0]] for name, values in values_by_name.items()}
        unit = cell_values["unit"][0]
        text = metric_title(cell_values["metric"][0], unit, direction(cell_values["higher_is_better"][0]))
        title = put_text(sheet, row, number, text)
        signatures = sorted({plain_text(text) for text in set(cell_values["signature"]) if not pd.isna(text)})
        title.comment = comment(
            "\n".join(line for line in [rule, *_baseline_lines(cell_values, unit), *signatures] if line), lines=8
        )
        headings = f"{plain_text(settings[position])[:200]} {text}"
        if is_narrow[position]:
            headings += f" {plain_text(titles[position])[:200]}"
        longest = max(map(len, headings.split()))
        widths[number] = max(_MIN_WIDTH, min(_MAX_WIDTH, math.ceil(1.15 * longest) + 1))  # bold text is wider
        lines = max(lines, _n_lines(text, widths[number]))
    sheet.row_dimensions[row].height = _LINE_HEIGHT * max(3, lines)
    return widths


def _write_mean(sheet: Worksheet, number: int, mean: MeanColumn, row: int) -> int:
    """Write the heading of a column of aggregates; return its width."""
    example = next(row for row in mean.rows if row)
    count, excluded = format_count(example["n_evaluations"], "evaluation"), example["n_excluded"]
    if mean.key == "mean" and row > 2:
        total = example["n_evaluations"] + excluded
        put_text(sheet, 2, number, f"{example['n_evaluations']} of {format_count(total, 'evaluation')}")
    text = (
        "Mean of (value - chance) / (1 - chance): 0 % is chance, 100 % is all correct. Over the "
        f"{count} that all models have; {excluded} excluded. Details: sheet overall."
    )
    if mean.key == "rank":
        text = "1 + number of models with a significantly better mean; models may share a rank. "
        text += "Comments contain the worst possible rank. Details: sheet overall."
    put_text(sheet, row, number, _MEAN_TITLES[mean.key]).comment = comment(text, lines=8)
    if mean.scope == "all" and row > 1:
        put_text(sheet, 1, number, "all languages")
    return 7 if mean.key == "rank" else 12


def _write_level(
    sheet: Worksheet, layout: Grid, columns: Columns, keys: list[str], row: int, widths: dict, headings: Headings
) -> None:
    """Write one row of headings, merged where adjacent columns agree in `keys`; a language covers its mean."""
    texts, tasks = layout.columns[keys[-1]].tolist(), layout.columns["task"].tolist()
    hidden = dict(zip(columns.numbers.tolist(), columns.hidden.tolist(), strict=True))
    starts = [index for index, is_start in enumerate(group_starts(layout, keys)) if is_start]
    lines = 1
    for start, end in zip(starts, [*starts[1:], len(texts)], strict=True):
        first, last = int(columns.numbers[start]), int(columns.numbers[end - 1])
        if keys == ["language"] and (mean := columns.means.get(first - 1)) and mean.scope == texts[start]:
            first -= 1
        cell = put_text(sheet, row, first, texts[start])
        if keys[-1] == "title":
            cell.comment = comment("\n".join(headings.about(tasks[start])), lines=6)
        if last > first:
            sheet.merge_cells(start_row=row, end_row=row, start_column=first, end_column=last)
        visible = sum(widths[number] for number in range(first, last + 1) if not hidden.get(number))
        lines = max(lines, _n_lines(plain_text(texts[start]), visible)) if visible else lines
    if keys == ["language"]:
        numbers = [number for number, mean in columns.means.items() if mean.scope == "all"]
        if len(numbers) > 1:
            sheet.merge_cells(start_row=row, end_row=row, start_column=numbers[0], end_column=numbers[-1])
    sheet.row_dimensions[row].height = _LINE_HEIGHT * min(5, lines) + 3


def group_starts(layout: Grid, keys: list[str]) -> list[bool]:
    """Return (C,) whether each column differs in `keys` from the preceding one."""
    headings = list(zip(*(layout.columns[key].tolist() for key in keys), strict=True))
    return [index == 0 or headings[index] != headings[index - 1] for index in range(len(headings))]


def _only_visible_column_of_task(layout: Grid, columns: Columns) -> list[bool]:
    """Return (C,) whether the heading of a column's task is not wider than this column."""
    tasks = list(zip(layout.columns["language"], layout.columns["task"], strict=True))
    visible = Counter(task for task, is_hidden in zip(tasks, columns.hidden, strict=True) if not is_hidden)
    return [visible[task] <= 1 for task in tasks]


def _n_lines(text: str, width: float) -> int:
    """Return the number of lines of a wrapped text in a column of `width` characters."""
    lines, used = 1, 0
    for word in text.split():
        length = math.ceil(len(word) * 1.05)
        if used and used + 1 + length > width:
            lines, used = lines + 1, 0
        used += length + (1 if used else 0)
        lines, used = lines + int(used // (width + 1)), used % (width + 1)
    return lines


def _baseline_lines(values: dict, unit) -> list[str]:
    lines = []
    for column, name in BASELINES.items():
        levels = sorted({format_value(level, unit) for level in set(values[column]) if not pd.isna(level)})
        if levels:
            lines.append(f"{name}: {', '.join(levels)}")
    return lines
