"""The provenance sheet: how to read the marks, what was measured with what, and whatever the workflow adds."""

import math

import pandas as pd
from openpyxl.styles import Alignment, Font
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.summary.cells import TITLE, print_landscape, put_text
from vernacular.summary.headings import LEGEND
from vernacular.summary.seeds import between_seeds
from vernacular.summary.tables import sortable

_DERIVED = {  # section: columns of the long table whose distinct rows it lists
    "models": ["model", "base", "adapter", "model_revision"],
    "data sets": ["task", "language", "dataset_revision"],
    "metrics": ["metric", "unit", "higher_is_better", "family", "signature"],
}


def write_provenance(sheet: Worksheet, long: pd.DataFrame, provenance: dict) -> None:
    """Fill `sheet` with sections: the legend, what `long` tells of models, data sets, metrics and seeds, `provenance`.

    A value of `provenance` may be one value, a dict (a row per key) or a list of dicts (a table); deeper values are
    written as text.
    """
    sections = {"how to read this": LEGEND}
    for title, columns in _DERIVED.items():
        rows = long[columns].drop_duplicates().sort_values(columns, key=sortable)
        sections[title] = rows.to_dict("records")
    spread = between_seeds(long)
    if not spread.empty:
        sections["spread between few-shot seeds"] = spread.to_dict("records")
    row = 1
    for title, content in [*sections.items(), *provenance.items()]:
        put_text(sheet, row, 1, title).font = TITLE
        for line in _lines(content):
            row += 1
            for column, (text, bold) in enumerate(line, 1):
                cell = _put(sheet, row, column, text)
                cell.alignment = Alignment(vertical="top", wrap_text=column > 1)
                if bold:
                    cell.font = Font(name="Calibri", bold=True)
        row += 2
    for letter, width in zip("ABCDE", (34, 24, 44, 20, 60), strict=True):
        sheet.column_dimensions[letter].width = width
    print_landscape(sheet)


def _lines(content):
    """Lines of (value, bold) cells for one section."""
    if isinstance(content, dict):
        return [[(key, False), (value, False)] for key, value in content.items()]
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        names = list(dict.fromkeys(name for row in content for name in row))
        return [[(name, True) for name in names], *([(row.get(name), False) for name in names] for row in content)]
    values = content if isinstance(content, list) else [content]
    return [[(value, False)] for value in values]


def _put(sheet: Worksheet, row: int, column: int, value):
    if value is None or (not isinstance(value, dict | list) and pd.isna(value)):
        return sheet.cell(row, column)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return sheet.cell(row, column, value)
    return put_text(sheet, row, column, value)
