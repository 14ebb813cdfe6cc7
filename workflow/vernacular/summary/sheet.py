"""One worksheet: runs down, task × metric across, each number with its format, its mark and its interval."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.summary import cells as looks
from vernacular.summary import marks
from vernacular.summary.headings import group_starts, write_headers, write_runs
from vernacular.summary.scales import add_scale
from vernacular.summary.tables import RUN, Grid
from vernacular.summary.text import plain_text

_FROZEN = RUN.index("shots") + 1  # run columns that stay in view
_FONTS = {marks.BEST: looks.BOLD_GREEN, marks.SHARED: looks.GREEN}
_GREY_FONTS = {marks.BEST: looks.BOLD_GREY}
_FLOATS = ("value", "ci_low", "ci_high", "chance", "majority", "n", "n_flagged", "n_ties")


def write_grid(
    sheet: Worksheet,
    long: pd.DataFrame,
    layout: Grid,
    *,
    levels: list[str],
    comments: bool,
    places: Mapping[marks.Key, dict],
) -> None:
    """Fill `sheet` with the runs and columns of `layout`, whose cells are positions in `long`.

    `levels` are the header rows above the metric: ["label"] on a sheet of one language, ["language", "label"] on one of
    several. With `comments`, each value carries its interval and counts. `places` are the standings by key, {} where no
    models were compared.
    """
    first = len(levels) + 2  # the row of the first run
    numbers = {name: layout.take(long[name]) for name in _FLOATS}
    keys = [*zip(long["model"], long["evaluation"], long["metric"], strict=True), None]  # [-1] is the missing one
    units, directions = long["unit"].tolist(), long["higher_is_better"].tolist()
    starts, like, rules = group_starts(layout, levels), looks.Styles(), []
    for position in range(len(layout.columns)):
        at = layout.cells[:, position]
        some = at[at >= 0][0]
        unit, better = units[some], looks.direction(directions[some])
        column = {name: grid[:, position] for name, grid in numbers.items()}
        by_interval = marks.standing(column["value"], column["ci_low"], column["ci_high"], better)
        names = [keys[cell] for cell in at]
        standing, paired = marks.judge(names, column["value"], by_interval, places)
        rules.append(_rule(standing, paired, column["value"]))
        at_chance = marks.near_chance(column["ci_low"], column["ci_high"], column["chance"])
        at_chance |= marks.near_chance(column["ci_low"], column["ci_high"], column["majority"])
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
            right = looks.RIGHT if cell.data_type == "s" else None  # "n/a" stands where numbers do
            like(cell, number_format=looks.number_format(unit, mark), font=font, border=border, alignment=right)
            if comments:
                place = places[names[run]] if paired[run] else None
                cell.comment = looks.comment(describe(here, unit, place))
        span = f"{get_column_letter(letter)}{first}:{get_column_letter(letter)}{first - 1 + len(layout.runs)}"
        add_scale(sheet, span, column["value"], unit, column["chance"], better)
    write_runs(sheet, layout, first)
    write_headers(sheet, long, layout, levels, rules)
    last = get_column_letter(len(RUN) + len(layout.columns))
    sheet.freeze_panes = sheet.cell(first, _FROZEN + 1)
    sheet.auto_filter.ref = f"A{first - 1}:{last}{first - 1 + len(layout.runs)}"
    sheet.print_title_rows = f"1:{first - 1}"
    sheet.print_title_cols = "A:A"
    looks.print_landscape(sheet, len(RUN) + len(layout.columns))


def describe(here: dict[str, float], unit, place: dict | None = None) -> str:
    """The comment of one value: its interval, baselines, what it is made of, its place; only what is known."""
    lines = []
    if math.isfinite(here["ci_low"]) and math.isfinite(here["ci_high"]):
        lines.append(f"95 % interval {looks.shown(here['ci_low'], unit)} to {looks.shown(here['ci_high'], unit)}")
    levels = [f"{name} {looks.shown(here[name], unit)}" for name in ("chance", "majority") if math.isfinite(here[name])]
    lines += [", ".join(levels)] if levels else []
    named = {"n": "items", "n_flagged": "flagged", "n_ties": "ties"}
    lines.append(", ".join(f"{name} {here[key]:.0f}" for key, name in named.items() if here[key] > 0 or key == "n"))
    if place and place["best"] != place["model"] and looks.finite(place["difference"]):
        p = f", {looks.p_shown(place['p_holm'])} (Holm)" if looks.finite(place["p_holm"]) else ""
        lines.append(f"{looks.change(place['difference'], unit)} against the best, {plain_text(place['best'])[:80]}{p}")
    return "\n".join(lines)


def _rule(standing: np.ndarray, paired: np.ndarray, values: np.ndarray) -> str:
    """How the marks of a column were decided, in words; "" where there are none."""
    if not standing.any():
        return ""
    judged = paired[np.isfinite(values)]
    if judged.all():
        return "Best: by paired tests on the same items (Holm)."
    if judged.any():
        return "Best: by paired tests among the runs asked alike, by their own intervals for the others."
    return "Best: by each value's own interval (no paired tests)."
