"""Worksheet of a grid: runs down, task × metric across; headings; numbers with format, mark and interval."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from openpyxl.formatting.rule import ColorScaleRule
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.tables import is_finite, plain_text
from vernacular.summary import cells as looks
from vernacular.summary import grid
from vernacular.summary.cells import CENTRED, comment, direction, metric_title, put_text, shown, style_header
from vernacular.summary.grid import RUN, Grid

_FROZEN = RUN.index("shots") + 1  # run columns that stay in view
_FONTS = {grid.BEST: looks.BOLD_GREEN, grid.SHARED: looks.GREEN}
_GREY_FONTS = {grid.BEST: looks.BOLD_GREY}
_FLOATS = ("value", "ci_low", "ci_high", "chance_level", "majority_baseline", "n", "n_flagged", "n_ties")


def write_grid(
    sheet: Worksheet,
    long: pd.DataFrame,
    layout: Grid,
    *,
    levels: list[str],
    comments: bool,
    places: Mapping[grid.Key, dict],
) -> None:
    """Write the runs and columns of `layout`, whose cells are positions in `long`, to `sheet`.

    Args:
        levels: header rows above the metric: ["label"] on a sheet of one language, ["language", "label"] otherwise
        comments: whether each value has a comment with its interval and counts
        places: rankings by key, {} if no models were compared
    """
    first = len(levels) + 2  # the row of the first run
    numbers = {name: layout.take(long[name]) for name in _FLOATS}
    keys = [*zip(long["model"], long["evaluation"], long["metric"], strict=True), None]  # [-1]: missing values
    units, directions = long["unit"].tolist(), long["higher_is_better"].tolist()
    starts, like, rules = group_starts(layout, levels), looks.Styles(), []
    for position in range(len(layout.columns)):
        at = layout.cells[:, position]
        some = at[at >= 0][0]
        unit, better = units[some], looks.direction(directions[some])
        column = {name: grid[:, position] for name, grid in numbers.items()}
        by_interval = grid.standing(column["value"], column["ci_low"], column["ci_high"], better)
        names = [keys[cell] for cell in at]
        standing, paired = grid.judge(names, column["value"], by_interval, places)
        rules.append(_rule(standing, paired, column["value"]))
        at_chance = grid.near_chance(column["ci_low"], column["ci_high"], column["chance_level"])
        at_chance |= grid.near_chance(column["ci_low"], column["ci_high"], column["majority_baseline"])
        marked = bool(standing.any())
        border, letter = looks.GROUP_START if starts[position] else None, len(RUN) + position + 1
        for run in range(len(layout.runs)):
            if at[run] < 0:
                if border is not None:
                    like(sheet.cell(first + run, letter), border=border)
                continue
            mark = int(standing[run]) if marked else None
            here = {name: float(values[run]) for name, values in column.items()}
            cell = looks.put_number(sheet, first + run, letter, here["value"])
            font = _GREY_FONTS.get(mark, looks.GREY) if at_chance[run] else _FONTS.get(mark)
            right = looks.RIGHT if cell.data_type == "s" else None  # "n/a" is aligned like numbers
            like(cell, number_format=looks.number_format(unit, mark), font=font, border=border, alignment=right)
            if comments:
                place = places[names[run]] if paired[run] else None
                cell.comment = looks.comment(describe(here, unit, place))
        span = f"{get_column_letter(letter)}{first}:{get_column_letter(letter)}{first - 1 + len(layout.runs)}"
        add_scale(sheet, span, column["value"], unit, column["chance_level"], better)
    write_runs(sheet, layout, first)
    write_headers(sheet, long, layout, levels, rules)
    last = get_column_letter(len(RUN) + len(layout.columns))
    sheet.freeze_panes = sheet.cell(first, _FROZEN + 1)
    sheet.auto_filter.ref = f"A{first - 1}:{last}{first - 1 + len(layout.runs)}"
    sheet.print_title_rows = f"1:{first - 1}"
    sheet.print_title_cols = "A:A"
    looks.print_landscape(sheet, len(RUN) + len(layout.columns))


def describe(here: dict[str, float], unit, place: dict | None = None) -> str:
    """Return the comment of one value: interval, baselines, counts, difference from the best; only what is known."""
    lines = []
    if math.isfinite(here["ci_low"]) and math.isfinite(here["ci_high"]):
        lines.append(f"95 % interval {looks.shown(here['ci_low'], unit)} to {looks.shown(here['ci_high'], unit)}")
    levels = [
        f"{name.replace('_', ' ')} {looks.shown(here[name], unit)}"
        for name in ("chance_level", "majority_baseline")
        if math.isfinite(here[name])
    ]
    lines += [", ".join(levels)] if levels else []
    named = {"n": "items", "n_flagged": "flagged", "n_ties": "ties"}
    lines.append(", ".join(f"{name} {here[key]:.0f}" for key, name in named.items() if here[key] > 0 or key == "n"))
    if place and place["best"] != place["model"] and is_finite(place["difference"]):
        p = f", {looks.p_shown(place['p_holm'])} (Holm)" if is_finite(place["p_holm"]) else ""
        lines.append(f"{looks.change(place['difference'], unit)} against the best, {plain_text(place['best'])[:80]}{p}")
    return "\n".join(lines)


def _rule(standing: np.ndarray, paired: np.ndarray, values: np.ndarray) -> str:
    """Describe how the marks of a column were determined; "" if there are none."""
    if not standing.any():
        return ""
    judged = paired[np.isfinite(values)]
    if judged.all():
        return "Best: by paired tests on the same items (Holm)."
    if judged.any():
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


def write_runs(sheet: Worksheet, layout: Grid, first: int) -> None:
    """Write the run of each row, from row `first` on; hide a setting that no run has."""
    for column, name in enumerate(RUN, 1):
        values = layout.runs[name]
        for row, value in enumerate(values, first):
            if pd.isna(value):
                continue
            if isinstance(value, str):
                put_text(sheet, row, column, value)
            else:
                sheet.cell(row, column, int(value)).alignment = CENTRED
        dimension = sheet.column_dimensions[get_column_letter(column)]
        dimension.width = _RUN_WIDTHS.get(name, 8)
        dimension.hidden = len(values) > 0 and bool(values.isna().all())
    longest = max((len(plain_text(model)) for model in layout.runs["model"]), default=0)
    sheet.column_dimensions["A"].width = min(60, max(12, longest + 2))


def write_headers(sheet: Worksheet, long: pd.DataFrame, layout: Grid, levels: list[str], rules: list[str]) -> None:
    """Write the header rows: one per level, then the metrics, commented with `rules` (C,), baselines and signatures."""
    last = len(levels) + 1  # the row of the metrics and the filter arrows
    for column, name in enumerate(RUN, 1):
        for level in range(1, last):
            style_header(put_text(sheet, level, column, "run"))
        style_header(put_text(sheet, last, column, _RUN_TITLES.get(name, name)))
    for level in range(1, last):
        sheet.merge_cells(start_row=level, end_row=level, start_column=1, end_column=len(RUN))
    sheet.cell(1, 1).comment = comment("\n".join(LEGEND), lines=20)
    names = ("metric", "unit", "higher_is_better", "signature", "chance_level", "majority_baseline")
    facts = {name: long[name].astype(object).to_numpy() for name in names}
    headings = {key: layout.columns[key].tolist() for key in levels}
    for position, rule in enumerate(rules):
        column = len(RUN) + 1 + position
        cells = layout.cells[:, position]
        here = {name: values[cells[cells >= 0]] for name, values in facts.items()}
        for level, key in enumerate(levels, 1):
            style_header(put_text(sheet, level, column, headings[key][position]))
        unit = here["unit"][0]
        text = metric_title(here["metric"][0], unit, direction(here["higher_is_better"][0]))
        title = style_header(put_text(sheet, last, column, text))
        signatures = sorted({plain_text(text) for text in set(here["signature"]) if not pd.isna(text)})
        lines = [rule, *_baselines(here, unit), *signatures]
        title.comment = comment("\n".join(line for line in lines if line), lines=8)
        sheet.column_dimensions[get_column_letter(column)].width = max(12, min(22, len(text) + 2))
    for level in range(1, last):
        _merge_runs_of_equals(sheet, layout, levels[:level], level)
        sheet.row_dimensions[level].height = 30 if levels[level - 1] == "label" else 18
    sheet.row_dimensions[last].height = 45


def group_starts(layout: Grid, keys: list[str]) -> list[bool]:
    """Return (C,) whether each column differs in `keys` from the preceding one."""
    said = list(zip(*(layout.columns[key].tolist() for key in keys), strict=True))
    return [at == 0 or said[at] != said[at - 1] for at in range(len(said))]


def _merge_runs_of_equals(sheet: Worksheet, layout: Grid, keys: list[str], level: int) -> None:
    """Merge adjacent header cells with equal text, within the same headings above."""
    starts = [at for at, new in enumerate(group_starts(layout, keys)) if new]
    for start, end in zip(starts, [*starts[1:], len(layout.columns)], strict=True):
        if end - start > 1:
            columns = {"start_column": len(RUN) + 1 + start, "end_column": len(RUN) + end}
            sheet.merge_cells(start_row=level, end_row=level, **columns)


def _baselines(here: dict, unit) -> list[str]:
    found = []
    for name in ("chance_level", "majority_baseline"):
        levels = sorted({shown(level, unit) for level in set(here[name]) if not pd.isna(level)})
        if levels:
            found.append(f"{name.replace('_', ' ')}: {', '.join(levels)}")
    return found


_WORSE, _BETTER = "FFFFFF", "9ECAE1"


def add_scale(sheet: Worksheet, cells: str, values, unit, chance, higher_is_better: bool | None) -> None:
    """Add a color scale to `cells` (like "G3:G9") that hold `values`; values and chance are (R,), NaN if missing.

    A share for which higher is better is scaled from chance (0 without a chance level) to 1, so that equal colors mean
    equal values in every column. Other values have no natural bounds and are scaled from the column's minimum to its
    maximum, if at least three values differ: two would always span the scale. No scale if neither direction is better.
    """
    values, chance = (np.asarray(array, dtype=float) for array in (values, chance))
    if higher_is_better is None:
        return
    if unit == "share" and higher_is_better:
        levels = chance[np.isfinite(chance)]
        lowest = float(levels.max()) if len(levels) and levels.max() < 1 else 0.0
        ends = {"start_type": "num", "start_value": lowest, "end_type": "num", "end_value": 1}
    elif len(np.unique(values[np.isfinite(values)])) >= 3:
        ends = {"start_type": "min", "end_type": "max"}
    else:
        return
    low, high = (_WORSE, _BETTER) if higher_is_better else (_BETTER, _WORSE)
    sheet.conditional_formatting.add(cells, ColorScaleRule(**ends, start_color=low, end_color=high))
