"""Diagnoses of all models, and languages of their responses, in tables: codes of a cell, worksheets, the worst one."""

from collections import Counter
from collections.abc import Collection, Iterable

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


def language_rows(models: Iterable[MetricsMetadata]) -> list[dict]:
    """Return the languages of generated texts by model and language of the items, over all evaluations.

    Keys: model, language, `answered` and `gold` (Counters of responses and of joined short ones), `undecided`.
    """
    rows: dict[tuple[str, str], dict] = {}
    for metadata in models:
        for results in metadata.evaluations.values():
            counts = results.language
            if counts is None or counts.missing or results.dataset is None:
                continue
            key = metadata.model, results.dataset.language
            row = rows.setdefault(key, {"answered": Counter(), "gold": Counter(), "undecided": 0})
            row["answered"].update(counts.answered)
            row["answered"].update(counts.blocks)
            row["gold"].update(counts.gold)
            row["gold"].update(counts.gold_blocks)
            row["undecided"] += counts.undecided
    return [{"model": model, "language": language} | row for (model, language), row in rows.items()]


def confusion_rows(models: Iterable[MetricsMetadata], classifications: Collection[str]) -> list[dict]:
    """Return the number of items by model, evaluation, correct and predicted class; None: a tie, or no class."""
    return [
        {"model": metadata.model, "evaluation": evaluation, "correct": label.label, "predicted": name, "items": count}
        for metadata in models
        for evaluation, results in metadata.evaluations.items()
        if results.profile and evaluation in classifications
        for label, counts in zip(results.profile.labels, results.profile.confusion, strict=True)
        for name, count in zip([*(each.label for each in results.profile.labels), None], counts, strict=True)
    ]


_CONFUSION = [
    Column("model", "model", 24),
    Column("evaluation", "evaluation", 36),
    Column("correct", "correct", 28),
    Column("predicted", lambda row: row["predicted"] or "none", 28, "none: a tie, or a response without a class"),
    Column("items", "items", 8, cell_format="0"),
]


def write_confusion(sheet: Worksheet, rows: list[dict], size: SheetSize) -> None:
    """Write a row per correct and predicted class, in the order of the classes."""
    write_rows(sheet, _CONFUSION, rows, 4, size)


def write_languages(sheet: Worksheet, rows: list[dict], size: SheetSize) -> None:
    """Write the shares of languages, a row per model and language of the items, beside those of the correct answers."""

    def share(name: str, counts: str = "answered"):
        return lambda row: row[counts][name or row["language"]] / total if (total := row[counts].total()) else None

    names = list(dict.fromkeys(name for row in rows for name in (row["language"], *row["answered"])))
    columns = [
        Column("model", "model", 24),
        Column("language of the items", "language", 12),
        Column("responses", lambda row: row["answered"].total(), 10, "and blocks of joined short responses", "0"),
        Column("too short", "undecided", 10, "responses below 40 letters, which are joined", "0"),
        Column("correct answers in it", share("", "gold"), 12, "the same rule on the correct answers", "0.0%"),
        *(Column(name, share(name), 10, "share of the responses in this language", "0.0%") for name in names),
    ]
    write_rows(sheet, columns, rows, 3, size)


def add_codes(sheet: Worksheet, models: list[str], rows: list[dict], header: int, column: int) -> None:
    """Add a column with the codes of each model, and in how many evaluations, below the row `header`."""
    style_header(put_text(sheet, header, column, "diagnosis"))
    sheet.column_dimensions[get_column_letter(column)].width = _WIDTH
    for number, model in enumerate(models, header + 1):
        counts = Counter(row["code"] for row in sorted(rows, key=worst_first) if row["model"] == model)
        if counts:
            text = ", ".join(f"{code} ({count})" for code, count in counts.items())
            put_text(sheet, number, column, text).alignment = TOP_WRAPPED
