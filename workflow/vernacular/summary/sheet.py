"""Worksheet of a grid: runs down, task × metric across; headings; numbers with format, mark and interval."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from openpyxl.formatting.rule import ColorScaleRule
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.tables import is_finite, plain_text
from vernacular.summary import cells, grid
from vernacular.summary.cells import CENTERED, comment, direction, format_value, metric_title, put_text, style_header
from vernacular.summary.grid import RUN, Grid

_N_FROZEN_COLUMNS = RUN.index("shots") + 1  # run columns that stay in view
_FONTS = {grid.BEST: cells.BOLD_GREEN, grid.SHARED: cells.GREEN}
_GRAY_FONTS = {grid.BEST: cells.BOLD_GRAY}
_BASELINES = {"chance_level": "chance level", "majority_baseline": "majority baseline"}  # column: its name in comments
_FLOATS = ("value", "ci_low", "ci_high", *_BASELINES, "n", "n_flagged", "n_ties")


def write_grid(
    sheet: Worksheet,
    long: pd.DataFrame,
    layout: Grid,
    *,
    levels: list[str],
    comments: bool,
    rankings: Mapping[grid.Key, dict],
) -> None:
    """Write the runs and columns of `layout`, whose cells are positions in `long`, to `sheet`.

    Args:
        levels: header rows above the metric: ["label"] on a sheet of one language, ["language", "label"] otherwise
        comments: whether each value has a comment with its interval and counts
        rankings: rankings by key, {} if no models were compared
    """
    first_row = len(levels) + 2  # the row of the first run
    arrays = {name: layout.take(long[name]) for name in _FLOATS}
    keys = [*zip(long["model"], long["evaluation"], long["metric"], strict=True), None]  # [-1]: missing values
    units, directions = long["unit"].tolist(), long["higher_is_better"].tolist()
    is_group_start, set_style, rules = group_starts(layout, levels), cells.Styles(), []
    for position in range(len(layout.columns)):
        positions = layout.cells[:, position]
        first_value = positions[positions >= 0][0]
        unit, higher_is_better = units[first_value], cells.direction(directions[first_value])
        column = {name: array[:, position] for name, array in arrays.items()}
        interval_marks = grid.mark_by_interval(column["value"], column["ci_low"], column["ci_high"], higher_is_better)
        run_keys = [keys[cell] for cell in positions]
        marks, paired = grid.mark_by_test(run_keys, column["value"], interval_marks, rankings)
        rules.append(_marking_rule(marks, paired, column["value"]))
        is_near_chance = grid.near_chance(column["ci_low"], column["ci_high"], column["chance_level"])
        is_near_chance |= grid.near_chance(column["ci_low"], column["ci_high"], column["majority_baseline"])
        has_marks = bool(marks.any())
        border, letter = cells.GROUP_START if is_group_start[position] else None, len(RUN) + position + 1
        for run in range(len(layout.runs)):
            if positions[run] < 0:
                if border is not None:
                    set_style(sheet.cell(first_row + run, letter), border=border)
                continue
            mark = int(marks[run]) if has_marks else None
            values = {name: float(array[run]) for name, array in column.items()}
            cell = cells.put_number(sheet, first_row + run, letter, values["value"])
            font = _GRAY_FONTS.get(mark, cells.GRAY) if is_near_chance[run] else _FONTS.get(mark)
            alignment = cells.RIGHT if cell.data_type == "s" else None  # "n/a" is aligned like numbers
            set_style(
                cell, number_format=cells.number_format(unit, mark), font=font, border=border, alignment=alignment
            )
            if comments:
                ranking = rankings[run_keys[run]] if paired[run] else None
                cell.comment = cells.comment(describe(values, unit, ranking))
        cell_range = (
            f"{get_column_letter(letter)}{first_row}:{get_column_letter(letter)}{first_row - 1 + len(layout.runs)}"
        )
        add_scale(sheet, cell_range, column["value"], unit, column["chance_level"], higher_is_better)
    write_runs(sheet, layout, first_row)
    write_headers(sheet, long, layout, levels, rules)
    last_column = get_column_letter(len(RUN) + len(layout.columns))
    sheet.freeze_panes = sheet.cell(first_row, _N_FROZEN_COLUMNS + 1)
    sheet.auto_filter.ref = f"A{first_row - 1}:{last_column}{first_row - 1 + len(layout.runs)}"
    sheet.print_title_rows = f"1:{first_row - 1}"
    sheet.print_title_cols = "A:A"
    cells.print_landscape(sheet, len(RUN) + len(layout.columns))


def describe(values: dict[str, float], unit, ranking: dict | None = None) -> str:
    """Return the comment of one value: interval, baselines, counts, difference from the best; only what is known."""
    lines = []
    low, high = values["ci_low"], values["ci_high"]
    if math.isfinite(low) and math.isfinite(high):
        lines.append(f"95 % interval {cells.format_value(low, unit)} to {cells.format_value(high, unit)}")
    levels = [
        f"{name} {cells.format_value(values[column], unit)}"
        for column, name in _BASELINES.items()
        if math.isfinite(values[column])
    ]
    lines += [", ".join(levels)] if levels else []
    labels = {"n": "items", "n_flagged": "flagged", "n_ties": "ties"}
    lines.append(
        ", ".join(f"{name} {values[key]:.0f}" for key, name in labels.items() if values[key] > 0 or key == "n")
    )
    if ranking and ranking["best"] != ranking["model"] and is_finite(ranking["difference"]):
        p = f", {cells.format_p_value(ranking['p_holm'])} (Holm)" if is_finite(ranking["p_holm"]) else ""
        difference, best = cells.format_difference(ranking["difference"], unit), plain_text(ranking["best"])[:80]
        lines.append(f"{difference} against the best, {best}{p}")
    return "\n".join(lines)


def _marking_rule(marks: np.ndarray, paired: np.ndarray, values: np.ndarray) -> str:
    """Describe how the marks of a column were determined; "" if there are none."""
    if not marks.any():
        return ""
    is_paired = paired[np.isfinite(values)]
    if is_paired.all():
        return "Best: by paired tests on the same items (Holm)."
    if is_paired.any():
        return "Best: by paired tests for runs with the same settings, by each value's own interval for the others."
    return "Best: by each value's own interval (no paired tests)."


LEGEND = [
    "● bold green: the best value of its column.",
    "○ green: not significantly different from the best. If models were compared item by item: paired test, Holm "
    "correction over the column. Otherwise: the 95 % interval of the value includes the best value. The comment on the "
    "column heading names the method.",
    "Gray: the 95 % interval includes the chance level or the majority baseline (always the most frequent answer).",
    "Blue: darker is better; shares from chance to 100 %, other units from the worst to the best value of the column.",
    "↑ higher is better, ↓ lower is better; without an arrow, no value is marked.",
    "Intervals and numbers of items: in the comments on the language sheets.",
    "n/a: evaluated, but no item could be scored. Empty: not requested or not possible (reason: sheet provenance).",
]

_RUN_TITLES = {"model_revision": "revision"}
_RUN_WIDTHS = {"model": 34, "adapter": 18, "style": 14, "model_revision": 14}


def write_runs(sheet: Worksheet, layout: Grid, first_row: int) -> None:
    """Write the run of each row, from row `first_row` on; hide a setting that no run has."""
    for column, name in enumerate(RUN, 1):
        values = layout.runs[name]
        for row, value in enumerate(values, first_row):
            if pd.isna(value):
                continue
            if isinstance(value, str):
                put_text(sheet, row, column, value)
            else:
                sheet.cell(row, column, int(value)).alignment = CENTERED
        dimension = sheet.column_dimensions[get_column_letter(column)]
        dimension.width = _RUN_WIDTHS.get(name, 8)
        dimension.hidden = len(values) > 0 and bool(values.isna().all())
    longest = max((len(plain_text(model)) for model in layout.runs["model"]), default=0)
    sheet.column_dimensions["A"].width = min(60, max(12, longest + 2))


def write_headers(sheet: Worksheet, long: pd.DataFrame, layout: Grid, levels: list[str], rules: list[str]) -> None:
    """Write the header rows: one per level, then the metrics, commented with `rules` (C,), baselines and signatures."""
    metric_row = len(levels) + 1  # the row of the metrics and the filter arrows
    for column, name in enumerate(RUN, 1):
        for level in range(1, metric_row):
            style_header(put_text(sheet, level, column, "run"))
        style_header(put_text(sheet, metric_row, column, _RUN_TITLES.get(name, name)))
    for level in range(1, metric_row):
        sheet.merge_cells(start_row=level, end_row=level, start_column=1, end_column=len(RUN))
    sheet.cell(1, 1).comment = comment("\n".join(LEGEND), lines=20)
    header_columns = ("metric", "unit", "higher_is_better", "signature", *_BASELINES)
    values_by_name = {name: long[name].astype(object).to_numpy() for name in header_columns}
    headings = {key: layout.columns[key].tolist() for key in levels}
    for position, rule in enumerate(rules):
        column = len(RUN) + 1 + position
        positions = layout.cells[:, position]
        cell_values = {name: values[positions[positions >= 0]] for name, values in values_by_name.items()}
        for level, key in enumerate(levels, 1):
            style_header(put_text(sheet, level, column, headings[key][position]))
        unit = cell_values["unit"][0]
        text = metric_title(cell_values["metric"][0], unit, direction(cell_values["higher_is_better"][0]))
        title = style_header(put_text(sheet, metric_row, column, text))
        signatures = sorted({plain_text(text) for text in set(cell_values["signature"]) if not pd.isna(text)})
        lines = [rule, *_baseline_lines(cell_values, unit), *signatures]
        title.comment = comment("\n".join(line for line in lines if line), lines=8)
        sheet.column_dimensions[get_column_letter(column)].width = max(12, min(22, len(text) + 2))
    for level in range(1, metric_row):
        _merge_equal_headings(sheet, layout, levels[:level], level)
        sheet.row_dimensions[level].height = 30 if levels[level - 1] == "label" else 18
    sheet.row_dimensions[metric_row].height = 45


def group_starts(layout: Grid, keys: list[str]) -> list[bool]:
    """Return (C,) whether each column differs in `keys` from the preceding one."""
    headings = list(zip(*(layout.columns[key].tolist() for key in keys), strict=True))
    return [index == 0 or headings[index] != headings[index - 1] for index in range(len(headings))]


def _merge_equal_headings(sheet: Worksheet, layout: Grid, keys: list[str], level: int) -> None:
    """Merge adjacent header cells with equal text, within the same headings above."""
    starts = [index for index, is_start in enumerate(group_starts(layout, keys)) if is_start]
    for start, end in zip(starts, [*starts[1:], len(layout.columns)], strict=True):
        if end - start > 1:
            columns = {"start_column": len(RUN) + 1 + start, "end_column": len(RUN) + end}
            sheet.merge_cells(start_row=level, end_row=level, **columns)


def _baseline_lines(values: dict, unit) -> list[str]:
    lines = []
    for column, name in _BASELINES.items():
        levels = sorted({format_value(level, unit) for level in set(values[column]) if not pd.isna(level)})
        if levels:
            lines.append(f"{name}: {', '.join(levels)}")
    return lines


_WORSE_COLOR, _BETTER_COLOR = "FFFFFF", "9ECAE1"


def add_scale(sheet: Worksheet, cell_range: str, values, unit, chance, higher_is_better: bool | None) -> None:
    """Add a color scale to `cell_range` (like "G3:G9") that hold `values`; values and chance are (R,), NaN if missing.

    A share for which higher is better is scaled from chance (0 without a chance level) to 1, so that equal colors mean
    equal values in every column. Other values have no natural bounds and are scaled from the column's minimum to its
    maximum, if at least three values differ: two would always span the scale. No scale if neither direction is better.
    """
    values, chance = (np.asarray(array, dtype=float) for array in (values, chance))
    if higher_is_better is None:
        return
    if unit == "share" and higher_is_better:
        levels = chance[np.isfinite(chance)]
        start = float(levels.max()) if len(levels) and levels.max() < 1 else 0.0
        scale = {"start_type": "num", "start_value": start, "end_type": "num", "end_value": 1}
    elif len(np.unique(values[np.isfinite(values)])) >= 3:
        scale = {"start_type": "min", "end_type": "max"}
    else:
        return
    low, high = (_WORSE_COLOR, _BETTER_COLOR) if higher_is_better else (_BETTER_COLOR, _WORSE_COLOR)
    sheet.conditional_formatting.add(cell_range, ColorScaleRule(**scale, start_color=low, end_color=high))
