"""CSV as pandas writes it: line ends "\\n", quotes only where needed, floats in full, nothing for a missing value."""

import csv
import io


def csv_text(columns: list[str], rows: list[list]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return out.getvalue()
