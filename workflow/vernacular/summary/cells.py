"""Worksheet cells: literal text, numbers with format and mark, comments, and shared styles.

Text from users and datasets is written as text, whatever it starts with: never as a formula, a link or an error value.

Columns are visible or collapsed into an outline. A sheet shows one metric per evaluation, and a workbook that ranks
models one mean per language; a click on the outline shows the others. A hidden column holds the same values, comments
and formats as a visible one.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from openpyxl import Workbook
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.page import PageMargins
from openpyxl.worksheet.properties import PageSetupProperties
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.artifacts import replacing
from vernacular.core.tables import format_number, plain_text, sheet_names
from vernacular.statistics.significance import BEST, NONE, SHARED
from vernacular.summary.grid import Grid

_FORMATS = {"share": "0.0%", "percent": "0.0"}  # of Excel, by unit
_DEFAULT_FORMAT = "0.000"
P_FORMAT = '[<0.001]"< 0.001";0.000'  # as in the report and in texts
# a mark is part of the number format, so the cell still holds a number; cells without one reserve the same width:
# "_x" is a space as wide as x
_MARK_FORMATS = {BEST: '" ●"', SHARED: '" ○"', NONE: "_ _●"}

FAILED = '" ▲"'  # beside a value that a failure explains

_FONT = {"name": "Calibri", "size": 11}  # LibreOffice renders a Font without a name in a serif font
BOLD, GRAY = Font(**_FONT, bold=True), Font(**_FONT, color="767676")
GREEN, BOLD_GREEN = Font(**_FONT, color="0B5D2A"), Font(**_FONT, bold=True, color="0B5D2A")
BOLD_GRAY = Font(**_FONT, bold=True, color="767676")
TITLE = Font(name="Calibri", bold=True, size=13)
CENTERED = Alignment(horizontal="center", vertical="center", wrap_text=True)
RIGHT = Alignment(horizontal="right")
LEFT_HEADER = Alignment(horizontal="right", vertical="center", wrap_text=True)
TOP, TOP_WRAPPED = Alignment(vertical="top"), Alignment(vertical="top", wrap_text=True)
TOP_CENTERED = Alignment(vertical="top", horizontal="center")
RULE = Side(style="thin", color="AAAAAA")
GROUP_START = Border(left=RULE)
_HEADER_FILL = PatternFill("solid", fgColor="DCE6F1")
_BOX = Border(left=RULE, right=RULE, top=RULE, bottom=RULE)


class Styles:
    """Cache of cell styles: openpyxl takes longer to set a style than to write the cell."""

    def __init__(self):
        self._cache = {}

    def __call__(self, cell, **attributes) -> None:
        """Set `attributes` of `cell`, constants compared by `id`; None leaves an attribute unchanged."""
        quote_prefix = cell.quotePrefix
        key = (
            quote_prefix,
            *attributes,
            *(value if isinstance(value, str) else id(value) for value in attributes.values()),
        )
        if key in self._cache:
            cell._style = copy(self._cache[key])
            return
        for name, value in attributes.items():
            if value is not None:
                setattr(cell, name, value)
        self._cache[key] = cell._style


def put_text(sheet: Worksheet, row: int, column: int, value):
    """Write `value` as text that stays text even if a user edits the cell; return the cell."""
    cell = sheet.cell(row, column)
    text = plain_text(value)
    cell.value = text
    if cell.data_type != "s":  # openpyxl detected a formula ("=…") or an error value ("#N/A")
        cell.data_type = "s"
    if text[:1] in tuple("=+-@"):
        cell.quotePrefix = True
    return cell


def put_number(sheet: Worksheet, row: int, column: int, value: float):
    """Write a number with all its digits, NaN, infinity, True and False as text; return the cell."""
    if isinstance(value, bool):
        return put_text(sheet, row, column, str(value))
    if not math.isfinite(value):  # Excel has no infinity and cannot open a file that contains one
        return put_text(sheet, row, column, format_number(value, None))
    cell = sheet.cell(row, column, repr(value))  # as text, because openpyxl writes only 16 of a float's 17 digits
    cell.data_type = "n"
    return cell


def number_format(unit, mark: int | None = None, lacks_interval: bool = False) -> str:
    """Return the Excel format of a value of `unit`, with its mark if its column has marks (None: it has none).

    A value that lacks an interval is in parentheses.
    """
    base_format = _FORMATS.get(unit, _DEFAULT_FORMAT)
    base_format = rf"\({base_format}\)" if lacks_interval else base_format
    return base_format if mark is None else base_format + _MARK_FORMATS[mark]


def style_header(cell, alignment: Alignment | None = None):
    """Apply the header style to a cell, centered by default; return it."""
    cell.font, cell.fill, cell.alignment, cell.border = BOLD, _HEADER_FILL, alignment or CENTERED, _BOX
    return cell


def comment(text: str, lines: int | None = None) -> Comment:
    """Return a comment that is high enough for its lines."""
    return Comment(text, "Vernacular", width=300, height=20 + 18 * (lines or text.count("\n") + 1))


def wrapped_height(text: str, width: float) -> int:
    """Return the height in points of a cell with wrapped text; LibreOffice does not adjust it automatically."""
    return LINE * max(1, math.ceil(1.1 * len(text) / width))


LINE = 15  # points of a row
# characters across and points of rows down a page of A4 at about half of the size (5.7 points), the smallest to read
_PAGES = {"landscape": (287, 1000), "portrait": (196, 1470)}


_LEGEND = (  # a header of a page has 255 characters at most
    "&8● best of its column   ○ not significantly different from the best   gray: includes chance   (in parentheses): "
    "no interval   blue: darker is better   ↑ higher is better   ↓ lower is better"
)


def set_print(
    sheet: Worksheet, *, has_marks: bool = False, n_columns: int | None = None, n_rows: int | None = None
) -> None:
    """Set printing on A4, upright or not: visible columns and rows on as few pages as are readable.

    `has_marks`: each page has a legend of the marks, which on the screen is a comment. `n_columns`, on one page across,
    and `n_rows`: that are printed; None: all.
    """
    is_whole, n_columns, n_rows = n_columns is None, n_columns or sheet.max_column, n_rows or sheet.max_row
    sheet.print_area = f"A1:{get_column_letter(n_columns)}{n_rows}"
    dimensions = [sheet.column_dimensions[get_column_letter(number)] for number in range(1, n_columns + 1)]
    width = sum(dimension.width for dimension in dimensions if not dimension.hidden)
    height = sum(sheet.row_dimensions[row].height or LINE for row in range(1, n_rows + 1))

    def pages(orientation: str) -> tuple[int, int]:
        across, down = _PAGES[orientation]
        n_across = max(1, math.ceil(width / across)) if is_whole else 1
        return n_across, max(1, math.ceil(height * max(1, width / across / n_across) / down))

    setup = sheet.page_setup
    setup.orientation, setup.paperSize = min(_PAGES, key=lambda name: math.prod(pages(name))), sheet.PAPERSIZE_A4
    setup.fitToWidth, setup.fitToHeight = pages(setup.orientation)
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    margins = {"left": 0.4, "right": 0.4, "top": 0.6 if has_marks else 0.4, "bottom": 0.6}
    sheet.page_margins = PageMargins(**margins, header=0.3, footer=0.25)
    sheet.oddFooter.center.text = "&A, page &P of &N"
    if has_marks:
        sheet.oddHeader.left.text = _LEGEND


def lacks_interval(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """Return (R,) True for a value without an interval: nothing is known about its distance from chance or from others.

    False for metrics without a better direction, whose values are not judged.
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    return np.isfinite(values) & ~(np.isfinite(low) & np.isfinite(high)) & (higher_is_better is not None)


def near_chance(low, high, chance) -> np.ndarray:
    """Return (R,) True if the interval includes the chance level: not distinguishable from chance with these items."""
    low, high, chance = (np.asarray(array, dtype=float) for array in (low, high, chance))
    return (low <= chance) & (chance <= high)


SCREEN_COLUMNS = 16  # that fit a screen next to the names of the models


@dataclass(frozen=True)
class SheetSize:
    """The largest sheet that is written; the rest is on further sheets."""

    rows: int
    columns: int


EXCEL = SheetSize(rows=1_048_576, columns=16_384)


@dataclass(frozen=True)
class MeanColumn:
    """A column of aggregates of the models (OVERALL rows), before the columns of its scope.

    Attributes:
        key: "mean" or "rank"
        scope: a language, or "all"
        rows: (R,) the OVERALL row of each model, None without one
    """

    key: str
    scope: str
    rows: Sequence[dict | None]


@dataclass(frozen=True)
class Columns:
    """Positions of the columns in the sheet, the first of which has the names of the models.

    Attributes:
        numbers: (C,) number in the sheet, from 1, of each column of the grid
        levels: (C,) outline level: 0 is always visible
        hidden: (C,) whether the column is collapsed
        means: number in the sheet -> column of aggregates
    """

    numbers: np.ndarray
    levels: np.ndarray
    hidden: np.ndarray
    means: dict[int, MeanColumn] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return 1 + len(self.numbers) + len(self.means)


def new_book(title: str) -> Workbook:
    """Return an empty workbook with a title."""
    book = Workbook()
    book.properties.title, book.properties.creator = title, "Vernacular"
    return book


def save(book: Workbook, path) -> Path:
    """Write a workbook, complete or not at all."""
    content = io.BytesIO()
    book.save(content)  # on a full disk, an open ZIP file prints a traceback when it is garbage-collected
    with replacing(path) as temporary:
        temporary.write_bytes(content.getvalue())
    return Path(path)


def continued(sheet: Worksheet) -> Worksheet:
    """Add a sheet after `sheet` for what does not fit it: "gl (2)" after "gl"."""
    book, title = sheet.parent, re.sub(r" \(\d+\)$", "", sheet.title)
    return book.create_sheet(sheet_names([*book.sheetnames, title])[-1], book.index(sheet) + 1)


def fitting(layout: Grid, arrange: Callable[[Grid], Columns], size: SheetSize) -> list[tuple[Grid, Columns]]:
    """Return the grid with its columns, arranged by `arrange`, in as many parts as it takes to fit sheets of `size`."""
    columns, n_columns = arrange(layout), len(layout.columns)
    if columns.count <= size.columns or n_columns == 1:
        return [(layout, columns)]
    halves = (slice(0, n_columns // 2), slice(n_columns // 2, n_columns))
    return [part for half in halves for part in fitting(layout.with_columns(half), arrange, size)]


def with_headlines(layout: Grid) -> Columns:
    """Return the columns of a sheet of all metrics: those that are not headline metrics are collapsed."""
    levels = np.where(layout.columns["headline"] | layout.columns["is_lead"], 0, 1).astype(int)
    return Columns(np.arange(len(levels)) + 2, levels, levels > 0)


def with_aggregates(layout: Grid, overall: list[dict] | None) -> Columns:
    """Return the columns of an overview: a mean per language, then its evaluations by one metric each.

    A language without a mean has its evaluations at the first level. What does not fit a screen is collapsed.

    Args:
        overall: OVERALL rows; None without aggregates.
    """
    by_scope: dict[str, dict[str, dict]] = {}
    for row in overall or []:
        if row["mean"] is not None:
            by_scope.setdefault(row["scope"], {})[row["model"]] = row
    means, numbers, number = {}, [], 1
    languages = layout.columns["language"].tolist()
    previous = None
    for language in languages:
        scopes = ["all"] if not numbers and language is not None else []
        scopes += [language] if not numbers or language != previous else []
        for scope in scopes:
            rows = [by_scope.get(scope, {}).get(model) for model in layout.models["model"]]
            for key in ("rank", "mean") if scope == "all" else ("mean",):
                if any(rows):
                    number += 1
                    means[number] = MeanColumn(key, scope, rows)
        number += 1
        numbers.append(number)
        previous = language
    has_mean = np.array([language in by_scope for language in languages], dtype=int)
    is_lead = layout.columns["is_lead"].to_numpy(dtype=bool)
    levels = has_mean + ~is_lead
    deepest = next((level for level in (2, 1) if (levels <= level).sum() + len(means) <= SCREEN_COLUMNS), 0)
    return Columns(np.array(numbers, dtype=int), levels, levels > deepest, means)


def set_outline(sheet: Worksheet, columns: Columns) -> None:
    """Group the columns by level, collapse the hidden ones, and put the buttons on the left, above what they expand."""
    sheet.sheet_properties.outlinePr.summaryRight = False
    sheet.sheet_properties.outlinePr.summaryBelow = False
    for number, level, is_hidden in zip(columns.numbers, columns.levels, columns.hidden, strict=True):
        dimension = sheet.column_dimensions[get_column_letter(number)]
        dimension.outlineLevel, dimension.hidden = int(level), bool(is_hidden)
    hidden = {int(number) for number in columns.numbers[columns.hidden]}
    for number in range(1, columns.count + 1):
        if number not in hidden and number + 1 in hidden:
            sheet.column_dimensions[get_column_letter(number)].collapsed = True
