"""Worksheet cells: literal text, numbers with format and mark, comments, and shared styles.

Text from users and datasets is written as text, whatever it starts with: never as a formula, a link or an error value.

The best values of a column are marked by one of two rules, and values near chance. Where paired rankings compare the
models of a column on the same items, the tests decide. Elsewhere no test is needed: the best is the highest value (the
lowest if lower is better), and a value whose own 95 % interval includes the best value counts as not significantly
different. By this rule, fewer values share the best than with overlapping intervals.
"""

import math
from collections import Counter
from copy import copy
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pandas as pd
from openpyxl.comments import Comment
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.page import PageMargins
from openpyxl.worksheet.properties import PageSetupProperties
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.tables import plain_text
from vernacular.metrics.metric import display_name

NONE, SHARED, BEST = 0, 1, 2

Key = tuple[str, str, str]  # model, evaluation, metric


_FORMATS = {"share": "0.0%", "percent": "0.0"}  # of Excel, by unit
_DEFAULT_FORMAT = "0.000"
_TEXTS = {"share": (100, 1, "%"), "percent": (1, 1, "%")}  # factor, digits and sign of a value as text, by unit
# a mark is part of the number format, so the cell still holds a number; cells without one reserve the same width:
# "_x" is a space as wide as x
_MARK_FORMATS = {BEST: '" ●"', SHARED: '" ○"', NONE: "_ _●"}

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
    """Write a number with all its digits, NaN and infinity as text; return the cell."""
    if not math.isfinite(value):  # Excel has no infinity and cannot open a file that contains one
        return put_text(sheet, row, column, "n/a" if math.isnan(value) else "∞" if value > 0 else "-∞")
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


def format_value(value: float, unit) -> str:
    """Format a value for text; a half is rounded up, as in the report and in Excel.

    >>> format_value(0.3125, "share"), format_value(-1.5, "percent"), format_value(1.5, "nats")
    ('31.3%', '-1.5%', '1.500')
    >>> format_value(2.0**100, "perplexity")  # more digits than decimal numbers have
    '1267650600228229401496703205376.000'
    """
    factor, digits, sign = _TEXTS.get(unit, (1, 3, ""))
    if not math.isfinite(value):
        return f"{value}"
    if abs(factor * value) >= 2**53:  # has no fraction
        return f"{factor * value:.{digits}f}{sign}"
    rounded = Decimal(float(factor * value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded}{sign}".removeprefix("-" if rounded == 0 else "")


def format_difference(value: float, unit) -> str:
    """Format a difference for text, shares in percentage points.

    >>> format_difference(-0.031, "share"), format_difference(0.5, "nats")
    ('-3.1 points', '+0.500')
    """
    if unit == "share":
        return f"{100 * value:+.1f} points"
    return f"{value:+.1f}" if unit == "percent" else f"{value:+.3f}"


def format_p_value(value: float) -> str:
    """Format a p-value for text.

    >>> format_p_value(0.0421), format_p_value(1e-9)
    ('p 0.042', 'p < 0.001')
    """
    return f"p {value:.3f}" if value >= 0.001 else "p < 0.001"


def metric_title(metric, unit, higher_is_better: bool | None) -> str:
    """Return a metric's display name with unit and direction; no unit for shares, whose cells are displayed in %.

    >>> metric_title("accuracy", "share", True), metric_title("loss", "nats", False), metric_title("x", "cosine", None)
    ('Accuracy (↑)', 'Loss (nats ↓)', 'X')
    """
    arrow = {True: "↑", False: "↓", None: ""}[higher_is_better]
    unit = "" if pd.isna(unit) else {"share": "", "score": "", "cosine": ""}.get(unit, unit)
    details = " ".join(part for part in (unit, arrow) if part)
    name = display_name(metric)
    return f"{name} ({details})" if details else name


def direction(higher_is_better) -> bool | None:
    """Convert `higher_is_better` to a bool, any missing value to None."""
    return None if pd.isna(higher_is_better) else bool(higher_is_better)


def style_header(cell, alignment: Alignment | None = None):
    """Apply the header style to a cell, centered by default; return it."""
    cell.font, cell.fill, cell.alignment, cell.border = BOLD, _HEADER_FILL, alignment or CENTERED, _BOX
    return cell


def comment(text: str, lines: int | None = None) -> Comment:
    """Return a comment that is high enough for its lines."""
    return Comment(text, "Vernacular", width=300, height=20 + 18 * (lines or text.count("\n") + 1))


def wrapped_height(text: str, width: float) -> int:
    """Return the height in points of a cell with wrapped text; LibreOffice does not adjust it automatically."""
    return _LINE * max(1, math.ceil(1.1 * len(text) / width))


_LINE = 15  # points of a row
_PAGE_HEIGHT = 840  # points of rows down a landscape page at the same size
_PAGE_WIDTH = 260  # characters across a landscape page at somewhat under 60 % of the size, about the smallest to read


_LEGEND = (  # a header of a page has 255 characters at most
    "&8● best of its column   ○ not significantly different from the best   gray: includes chance   (in parentheses): "
    "no interval   blue: darker is better   ↑ higher is better   ↓ lower is better"
)


def print_landscape(sheet: Worksheet, *, has_marks: bool = False, n_columns: int | None = None) -> None:
    """Set printing on A4 landscape: visible columns and rows on as few pages as are readable.

    `has_marks`: each page has a legend of the marks, which on the screen is a comment. `n_columns`: that are printed,
    on one page across; None: all.
    """
    is_whole, n_columns = n_columns is None, n_columns or sheet.max_column
    sheet.print_area = f"A1:{get_column_letter(n_columns)}{sheet.max_row}"
    dimensions = [sheet.column_dimensions[get_column_letter(number)] for number in range(1, n_columns + 1)]
    visible_width = sum(dimension.width for dimension in dimensions if not dimension.hidden)
    sheet.page_setup.orientation, sheet.page_setup.paperSize = "landscape", sheet.PAPERSIZE_A4
    sheet.page_setup.fitToWidth = max(1, math.ceil(visible_width / _PAGE_WIDTH)) if is_whole else 1
    height = sum(sheet.row_dimensions[row].height or _LINE for row in range(1, sheet.max_row + 1))
    sheet.page_setup.fitToHeight = max(1, math.ceil(height / _PAGE_HEIGHT))
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    sheet.page_margins = PageMargins(left=0.4, right=0.4, top=0.6 if has_marks else 0.5, bottom=0.8, header=0.3)
    sheet.oddFooter.center.text = "&A, page &P of &N"
    if has_marks:
        sheet.oddHeader.left.text = _LEGEND


def mark_by_interval(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """Return (R,) marks NONE, SHARED or BEST for the values of one column; all arrays (R,), NaN if missing.

    No value is marked if neither direction is better, if fewer than two models have a value, or if all values are
    equal. Equal best values are all BEST. A value without an interval is BEST or NONE.

    >>> mark_by_interval([0.70, 0.66, 0.50, float("nan")], [0.65, 0.61, 0.45, 0], [0.75, 0.71, 0.55, 1], True).tolist()
    [2, 1, 0, 0]
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    marks = np.full(len(values), NONE)
    finite = np.isfinite(values)
    if higher_is_better is None or len(np.unique(values[finite])) < 2:
        return marks
    best = values[finite].max() if higher_is_better else values[finite].min()
    marks[finite & (low <= best) & (best <= high)] = SHARED
    marks[values == best] = BEST
    return marks


def index_rankings(rankings: list[dict] | None) -> dict[Key, dict]:
    """Index RANKINGS rows by model, evaluation and metric."""
    return {(row["model"], row["evaluation"], row["metric"]): row for row in rankings or []}


def mark_by_test(
    keys: list[Key | None], values, marks: np.ndarray, rankings: dict[Key, dict]
) -> tuple[np.ndarray, np.ndarray]:
    """Replace the `marks` (R,) of `mark_by_interval` where a paired test is available; return (marks, paired).

    `keys` identifies each value (None: no value); `paired` (R,) is True where the mark comes from `rankings`. A
    test applies only against the best of the entire column: rankings with another best refer to other values.

    >>> rankings = index_rankings([
    ...     {"model": "a", "evaluation": "e", "metric": "m", "best": "a", "in_best_group": True},
    ...     {"model": "b", "evaluation": "e", "metric": "m", "best": "a", "in_best_group": False},
    ... ])
    >>> keys = [("a", "e", "m"), ("b", "e", "m")]
    >>> marks, paired = mark_by_test(keys, [0.7, 0.69], np.array([BEST, SHARED]), rankings)
    >>> marks.tolist(), paired.tolist()
    ([2, 0], [True, True])
    """
    marks, paired = marks.copy(), np.zeros(len(marks), dtype=bool)
    best = {keys[row] for row in np.flatnonzero(marks == BEST)}
    finite = np.isfinite(np.asarray(values, dtype=float))
    key_counts = Counter(keys)
    for row in np.flatnonzero(finite):
        ranking = rankings.get(keys[row])
        if ranking is None or key_counts[keys[row]] > 1 or (ranking["best"], *keys[row][1:]) not in best:
            continue
        paired[row] = True
        if marks[row] != BEST:
            marks[row] = SHARED if ranking["in_best_group"] else NONE
    return marks, paired


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
