"""One worksheet: runs down, task × metric across, each number with its format, its mark and its interval.

Other people's names are written as text, whatever they start with: never as a formula, a link or an error value.
"""

import math

import pandas as pd
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.properties import PageSetupProperties
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.summary import marks
from vernacular.summary.tables import RUN, Grid
from vernacular.summary.text import plain_text

LEGEND = [
    "Green and bold: the best value of its column.",
    "Light green: its 95 % interval holds the best value, so the two are not told apart.",
    "Grey: its 95 % interval holds the chance level.",
    "↑ higher is better, ↓ lower is better, neither: no value is marked.",
    "Intervals and numbers of items: in the comments on the sheets of the languages.",
    "n/a: asked, but no item could be scored. Empty: not asked, or not possible (then the sheet provenance says why).",
]

_FORMATS = {"share": ("0.0%", "{:.1%}"), "percent": ("0.0", "{:.1f}")}  # unit: in the cell, in a comment
_OTHER_FORMAT = ("0.000", "{:.3f}")
_RUN_TITLES = {"model_revision": "revision"}
_RUN_WIDTHS = {"model": 34, "adapter": 18, "style": 14, "model_revision": 14}
_FROZEN = RUN.index("shots") + 1  # run columns that stay in view

_HEADER_FILL = PatternFill("solid", fgColor="DCE6F1")
_FILLS = {marks.BEST: PatternFill("solid", fgColor="A9DFB0"), marks.SHARED: PatternFill("solid", fgColor="E4F5E6")}
_FONT = {"name": "Calibri", "size": 11}  # a Font without a name falls back to a serif one in LibreOffice
_BOLD, _GREY = Font(**_FONT, bold=True), Font(**_FONT, color="808080")
_BOLD_GREY = Font(**_FONT, bold=True, color="808080")
_CENTRED = Alignment(horizontal="center", vertical="center", wrap_text=True)
_RULE = Side(style="thin", color="AAAAAA")
_GROUP_START = Border(left=_RULE)


def put_text(sheet: Worksheet, row: int, column: int, value):
    """Write `value` as text that stays text, also when a person edits the cell; returns the cell."""
    cell = sheet.cell(row, column)
    text = plain_text(value)
    cell.value = text
    if cell.data_type != "s":  # openpyxl took it for a formula ("=…") or an error value ("#N/A")
        cell.data_type = "s"
    if text[:1] in tuple("=+-@"):
        cell.quotePrefix = True
    return cell


def print_one_page_wide(sheet: Worksheet) -> None:
    """Landscape, one page across and as many down as it takes."""
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.fitToHeight = 0
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)


def write_grid(sheet: Worksheet, long: pd.DataFrame, layout: Grid, *, levels: list[str], comments: bool) -> None:
    """Fill `sheet` with the runs and columns of `layout`, whose cells are positions in `long`.

    `levels` are the header rows above the metric: ["label"] on a sheet of one language, ["language", "label"] on one of
    several. With `comments`, each value carries its interval and counts.
    """
    first = len(levels) + 2  # the row of the first run
    _run_columns(sheet, layout, first)
    _headers(sheet, long, layout, levels)
    numbers = {name: layout.take(long[name]) for name in ("value", "ci_low", "ci_high", "chance")}
    counts = {name: layout.take(long[name]) for name in ("n", "n_flagged", "n_ties")}
    for position in range(len(layout.columns)):
        cells = layout.cells[:, position]
        about = long.iloc[cells[cells >= 0][0]]
        column = {name: grid[:, position] for name, grid in (numbers | counts).items()}
        standing = marks.standing(column["value"], column["ci_low"], column["ci_high"], _direction(about))
        at_chance = marks.near_chance(column["ci_low"], column["ci_high"], column["chance"])
        group_start = _starts_group(layout, position, levels)
        for run in range(len(layout.runs)):
            if group_start:
                sheet.cell(first + run, len(RUN) + position + 1).border = _GROUP_START
            if cells[run] < 0:
                continue
            here = {name: float(values[run]) for name, values in column.items()}
            cell = _put_number(sheet, first + run, len(RUN) + position + 1, here["value"], about["unit"])
            if standing[run]:
                cell.fill = _FILLS[standing[run]]
            if standing[run] == marks.BEST:
                cell.font = _BOLD_GREY if at_chance[run] else _BOLD
            elif at_chance[run]:
                cell.font = _GREY
            if comments:
                cell.comment = _comment(describe(here, about["unit"]))
    last = get_column_letter(len(RUN) + len(layout.columns))
    sheet.freeze_panes = sheet.cell(first, _FROZEN + 1)
    sheet.auto_filter.ref = f"A{first - 1}:{last}{first - 1 + len(layout.runs)}"
    sheet.print_title_rows = f"1:{first - 1}"
    print_one_page_wide(sheet)


def describe(here: dict[str, float], unit) -> str:
    """The comment of one value: its interval, chance, and what it is made of; only what is known."""
    show = _FORMATS.get(unit, _OTHER_FORMAT)[1].format
    lines = []
    if math.isfinite(here["ci_low"]) and math.isfinite(here["ci_high"]):
        lines.append(f"95 % interval {show(here['ci_low'])} to {show(here['ci_high'])}")
    if math.isfinite(here["chance"]):
        lines.append(f"chance {show(here['chance'])}")
    named = {"n": "items", "n_flagged": "flagged", "n_ties": "ties"}
    parts = [f"{name} {here[key]:.0f}" for key, name in named.items() if here[key] > 0 or key == "n"]
    return "\n".join([*lines, ", ".join(parts)])


def _put_number(sheet: Worksheet, row: int, column: int, value: float, unit):
    if not math.isfinite(value):  # Excel has no infinity, and a file that holds one does not open
        cell = put_text(sheet, row, column, "n/a" if math.isnan(value) else "∞" if value > 0 else "-∞")
        cell.alignment = Alignment(horizontal="right")
        return cell
    cell = sheet.cell(row, column, repr(value))  # as digits, because openpyxl would write a float to 16 of its 17
    cell.data_type = "n"
    cell.number_format = _FORMATS.get(unit, _OTHER_FORMAT)[0]
    return cell


def _run_columns(sheet: Worksheet, layout: Grid, first: int) -> None:
    for column, name in enumerate(RUN, 1):
        values = layout.runs[name]
        for row, value in enumerate(values, first):
            if pd.isna(value):
                continue
            if isinstance(value, str):
                put_text(sheet, row, column, value)
            else:
                sheet.cell(row, column, int(value)).alignment = _CENTRED
        dimension = sheet.column_dimensions[get_column_letter(column)]
        dimension.width = _RUN_WIDTHS.get(name, 8)
        dimension.hidden = len(values) > 0 and bool(
            values.isna().all()
        )  # nobody has an adapter: do not show that column
    longest = max((len(plain_text(model)) for model in layout.runs["model"]), default=0)
    sheet.column_dimensions["A"].width = min(60, max(12, longest + 2))


def _headers(sheet: Worksheet, long: pd.DataFrame, layout: Grid, levels: list[str]) -> None:
    last = len(levels) + 1  # the row of the metrics and of the filter's arrows
    for column, name in enumerate(RUN, 1):
        for level in range(1, last):
            _style_header(put_text(sheet, level, column, "run"))
        _style_header(put_text(sheet, last, column, _RUN_TITLES.get(name, name)))
    for level in range(1, last):
        sheet.merge_cells(start_row=level, end_row=level, start_column=1, end_column=len(RUN))
    sheet.cell(1, 1).comment = _comment("\n".join(LEGEND), lines=11)
    for position in range(len(layout.columns)):
        column = len(RUN) + 1 + position
        cells = layout.cells[:, position]
        rows = long.iloc[cells[cells >= 0]]
        about = rows.iloc[0]
        for level, key in enumerate(levels, 1):
            _style_header(put_text(sheet, level, column, layout.columns[key].iloc[position]))
        title = _style_header(put_text(sheet, last, column, _metric_title(about)))
        title.comment = _comment("\n".join(sorted({plain_text(text) for text in rows["signature"].dropna()})), lines=4)
        sheet.column_dimensions[get_column_letter(column)].width = max(10, min(22, len(_metric_title(about)) + 2))
    for level in range(1, last):
        _merge_runs_of_equals(sheet, layout, levels[:level], level)
        sheet.row_dimensions[level].height = 30 if levels[level - 1] == "label" else 18
    sheet.row_dimensions[last].height = 45


def _merge_runs_of_equals(sheet: Worksheet, layout: Grid, keys: list[str], level: int) -> None:
    """Merge neighbouring header cells that say the same, within the same headings above."""
    starts = [at for at in range(len(layout.columns)) if _starts_group(layout, at, keys)]
    for start, end in zip(starts, [*starts[1:], len(layout.columns)], strict=True):
        if end - start > 1:
            columns = {"start_column": len(RUN) + 1 + start, "end_column": len(RUN) + end}
            sheet.merge_cells(start_row=level, end_row=level, **columns)


def _starts_group(layout: Grid, position: int, keys: list[str]) -> bool:
    here, before = layout.columns[keys].iloc[position], layout.columns[keys].iloc[max(0, position - 1)]
    return position == 0 or tuple(here) != tuple(before)


def _metric_title(about: pd.Series) -> str:
    arrow = {True: "↑", False: "↓", None: ""}[_direction(about)]
    unit = "" if pd.isna(about["unit"]) or about["unit"] == about["metric"] else about["unit"]
    inside = " ".join(part for part in (unit, arrow) if part)
    return f"{about['metric']} ({inside})" if inside else about["metric"]


def _direction(about: pd.Series) -> bool | None:
    return None if pd.isna(about["higher_is_better"]) else bool(about["higher_is_better"])


def _style_header(cell):
    cell.font, cell.fill, cell.alignment = _BOLD, _HEADER_FILL, _CENTRED
    cell.border = Border(left=_RULE, right=_RULE, top=_RULE, bottom=_RULE)
    return cell


def _comment(text: str, lines: int | None = None) -> Comment:
    return Comment(text, "Vernacular", width=260, height=20 + 18 * (lines or text.count("\n") + 1))
