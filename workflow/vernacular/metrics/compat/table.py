"""CSV as pandas writes it: line ends "\\n", quotes only where needed, floats in full, nothing for a missing value.

Text is safe from being read as a formula, as in every other CSV of the project.
"""

import csv
import io

from vernacular.summary.text import formula_safe

TEXT_NOTE = """\
- Text that a spreadsheet would run as a formula (it starts with =, +, - or @) has an apostrophe in front. Control
  characters are escaped, line ends are spaces, and a text of more than 32,767 characters is cut. Numbers are unchanged.
"""


def csv_text(columns: list[str], rows: list[list]) -> str:
    """Return a table as the text of a CSV file; cells that are text are made safe, numbers are left as they are."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([formula_safe(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()
