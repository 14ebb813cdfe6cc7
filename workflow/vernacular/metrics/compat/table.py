"""CSV as pandas writes it: line ends "\\n", quotes only where needed, floats in full, nothing for a missing value."""

import csv
import io


def csv_text(columns: list[str], rows: list[list]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()
