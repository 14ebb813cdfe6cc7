"""Diagnoses of all models in tables: codes of a cell, a worksheet with their sentences, and the worst one."""

from collections import Counter
from collections.abc import Iterable

from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.metadata import FAILURE, INFORMATION, MetricsMetadata, ResultsMetadata, encode
from vernacular.core.publication import publishable
from vernacular.protocols.diagnosis import CODES
from vernacular.summary.cells import TOP_WRAPPED, put_text, style_header
from vernacular.summary.columns import SheetSize
from vernacular.summary.rows import Column, write_rows

_WIDTH = 44  # of the column of codes


def diagnosis_codes(results: ResultsMetadata) -> str | None:
    """Return the codes of an evaluation's diagnoses, worst first, failures in capitals; None without any."""
    known = [each for each in results.diagnoses if each.severity != INFORMATION]
    return ", ".join(each.code.upper() if each.severity == FAILURE else each.code for each in known) or None


def diagnosis_rows(models: Iterable[MetricsMetadata]) -> list[dict]:
    """Return a row per model, evaluation and diagnosis, information excepted."""
    return [
        {"model": metadata.model, "evaluation": evaluation, "items": results.items} | publishable(encode(diagnosis))
        for metadata in models
        for evaluation, results in metadata.evaluations.items()
        for diagnosis in results.diagnoses
        if diagnosis.severity != INFORMATION
    ]


def worst_first(row: dict) -> tuple:
    """Return the sort key of a row: failures first, then causes before effects, then by the number of items."""
    return row["severity"] != FAILURE, CODES.index(row["code"]), -(row.get("count") or row["n"])


_COLUMNS = [
    Column("model", "model", 24),
    Column("evaluation", "evaluation", 36),
    Column("code", "code", 14),
    Column("severity", "severity", 10),
    Column("diagnosis", "sentence", 80),
    Column("count", lambda row: row.get("count"), 8, "responses, items or prompts with the symptom", "0"),
    Column("of", "n", 8, cell_format="0"),
    Column("reported from", "threshold", 60),
    Column("examples", lambda row: ", ".join(each["item"] for each in row["examples"]) or None, 24, "IDs of items"),
]


def write_diagnoses(sheet: Worksheet, rows: list[dict], size: SheetSize) -> None:
    """Write a row per diagnosis, worst first."""
    write_rows(sheet, _COLUMNS, sorted(rows, key=worst_first), 3, size)


def add_codes(sheet: Worksheet, models: list[str], rows: list[dict], header: int, column: int) -> None:
    """Add a column with the codes of each model, and in how many evaluations, below the row `header`."""
    style_header(put_text(sheet, header, column, "diagnosis"))
    sheet.column_dimensions[get_column_letter(column)].width = _WIDTH
    for number, model in enumerate(models, header + 1):
        counts = Counter(row["code"] for row in sorted(rows, key=worst_first) if row["model"] == model)
        if counts:
            text = ", ".join(f"{code} ({count})" for code, count in counts.items())
            put_text(sheet, number, column, text).alignment = TOP_WRAPPED
