"""Worksheets with one row per record: titles, widths, comments and formats of the columns."""

import csv
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.paths import WORKFLOW
from vernacular.statistics.significance import FAMILIES
from vernacular.summary import cells
from vernacular.summary.grid import metric_title


class Column(NamedTuple):
    title: str
    key: str | Callable[[dict], object]  # column of the row, or a function of the row
    width: int
    description: str = ""  # comment of the header
    cell_format: str | None = None  # Excel format; "unit": that of the row's unit; "difference": the same, signed; "p"


@functools.cache
def _entries() -> list[dict[str, str]]:
    with open(WORKFLOW / "sheets.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def columns_of(sheet: str, **functions: Callable[[dict], object]) -> list[Column]:
    """Return the columns of a worksheet, which `workflow/sheets.csv` lists.

    An entry without a title stands for the columns of another sheet, that of its key. Other keys are those of a row, or
    name one of `functions` of it; that of "metric_title" is the title of its metric.
    """
    functions = {"metric_title": _metric_title} | functions
    columns: list[Column] = []
    for entry in (entry for entry in _entries() if entry["sheet"] == sheet):
        if not entry["title"]:
            columns += columns_of(entry["key"])
            continue
        key, description = functions.get(entry["key"], entry["key"]), entry["description"].format(families=FAMILIES)
        columns.append(Column(entry["title"], key, int(entry["width"]), description, entry["format"] or None))
    return columns


def _metric_title(row: dict) -> str:
    return metric_title(row["metric"], row["unit"], row["higher_is_better"])


def marked_options(choices: list[str], gold: list[int]) -> str | None:
    """Return options in one text, the correct ones with a check mark."""
    return "   ".join(f"{'✓' if i in gold else '·'} {option}" for i, option in enumerate(choices)) or None


def parts_of(
    sheet: Worksheet, rows: list, size: cells.SheetSize, n_headers: int = 1
) -> Iterator[tuple[Worksheet, list]]:
    """Yield the sheet with the rows that fit it below the headers, then further sheets with the others."""
    step = size.rows - n_headers
    for start in range(0, max(len(rows), 1), step):
        sheet = cells.continued(sheet) if start else sheet
        yield sheet, rows[start : start + step]


def write_rows(
    sheet: Worksheet,
    columns: list[Column],
    rows: list[dict],
    frozen: int,
    size: cells.SheetSize = cells.EXCEL,
    printed: str | None = None,
) -> list[tuple[Worksheet, list[dict]]]:
    """Write a header and a row per record; return the sheets with their rows, several if the rows do not fit one.

    Columns without any value are hidden, those before `frozen` stay. `printed`: title of the last column on paper.
    """
    parts = list(parts_of(sheet, rows, size))
    for part, part_rows in parts:
        _write_part(part, columns, part_rows, frozen)
        if printed:
            cells.set_print(part, n_columns=1 + [column.title for column in columns].index(printed))
    return parts


def _write_part(sheet: Worksheet, columns: list[Column], rows: list[dict], frozen: int) -> None:
    set_style = cells.Styles()
    for index, column in enumerate(columns, 1):
        header = cells.style_header(cells.put_text(sheet, 1, index, column.title))
        if column.description:
            header.comment = cells.comment(column.description, lines=3)
        column_letter = get_column_letter(index)
        sheet.column_dimensions[column_letter].width = column.width
        values = [column.key(row) if callable(column.key) else row[column.key] for row in rows]
        sheet.column_dimensions[column_letter].hidden = all(value is None for value in values)
        for row_number, (value, row) in enumerate(zip(values, rows, strict=True), 2):
            if value is None:
                continue
            if isinstance(value, str):
                set_style(
                    cells.put_text(sheet, row_number, index, value),
                    alignment=cells.TOP_WRAPPED if column.width > 40 else cells.TOP,
                )
                dimension = sheet.row_dimensions[row_number]
                if column.width > 40:
                    dimension.height = max(dimension.height or 0, cells.wrapped_height(value, column.width))
                continue
            is_integer = isinstance(value, int)
            cell = cells.put_number(sheet, row_number, index, value if is_integer else float(value))
            set_style(
                cell,
                number_format=_format(column.cell_format, row),
                alignment=cells.TOP_CENTERED if is_integer else cells.TOP,
            )
    sheet.row_dimensions[1].height = 45
    sheet.freeze_panes = sheet.cell(2, frozen)
    sheet.auto_filter.ref = f"A1:{get_column_letter(len(columns))}{len(rows) + 1}"
    sheet.print_title_rows = "1:1"
    if frozen > 1:
        sheet.print_title_cols = f"A:{get_column_letter(frozen - 1)}"
    cells.set_print(sheet)


def _format(cell_format: str | None, row: dict) -> str:
    if cell_format == "p":
        return cells.P_FORMAT
    if cell_format == "unit":
        return cells.number_format(row["unit"])
    if cell_format == "difference":
        base_format = cells.number_format(row["unit"])
        return f"+{base_format};-{base_format};{base_format}"
    return cell_format or "General"
