"""Rows out of a data file: CSV, TSV, JSON, JSON lines, Parquet; every value as the file has it.

CSV and TSV are read here and not by pandas (or `datasets`, which uses it): pandas turns the texts "NA", "null" and
"nan" into nothing, turns "01" into 1, and eats quotation marks that a sentence opens with.
"""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vernacular.errors import DataError

FORMATS = {".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}

csv.field_size_limit(1 << 30)  # a very long passage is no mistake


def read_rows(path, form: str | None = None, *, name: str | None = None) -> list[dict]:
    """All rows of a data file in order, as dicts; `form` overrides what the name's ending says.

    `name` is what to call the file in a complaint. Raises DataError where the file is missing, damaged or of no known
    format.
    """
    path = Path(path)
    name = name or str(path)
    form = form or form_of(name)
    if form is None:
        raise DataError(f"{name}: cannot tell its format from its name; give format: csv, tsv, json, jsonl or parquet.")
    try:
        if form == "parquet":
            return pq.read_table(path, partitioning=None).to_pylist()
        text = _text(path, name)
        return _READERS[form](text, name)
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file.") from None
    except (pa.ArrowException, gzip.BadGzipFile, EOFError, OSError) as error:
        raise DataError(f"{name}: damaged or not {form} ({str(error).splitlines()[0]}).") from None


def form_of(name) -> str | None:
    """The format that a file's name says; None where it says none."""
    return FORMATS.get(Path(str(name).removesuffix(".gz")).suffix.lower())


def _text(path: Path, name: str) -> str:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        return data.decode("utf-8-sig")  # a byte-order mark is no part of the first column's name
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None


def _read_csv(text: str, name: str) -> list[dict]:
    first = text.split("\n", 1)[0]
    # a spreadsheet in a language with a decimal comma writes semicolons
    delimiter = max(",;\t", key=first.count) if not first.count(",") else ","
    return _rectangular(_quoted(text, delimiter, name), name)


def _quoted(text: str, delimiter: str, name: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return list(reader)
    except csv.Error as error:
        # read loosely, a quote that is never closed would swallow the rows behind it
        raise DataError(f"{name}, line {reader.line_num}: quotation marks out of place ({error}).") from None


def _read_tsv(text: str, name: str) -> list[dict]:
    """TSV whose quotation marks are text, unless the file as a whole only makes sense with quoted line breaks."""
    lines = [line.removesuffix("\r").split("\t") for line in text.split("\n")]
    lines = [[_unquoted(field) for field in line] for line in lines if line != [""]]
    if lines and any(len(line) != len(lines[0]) for line in lines):
        lines = _quoted(text, "\t", name)
    return _rectangular(lines, name)


def _unquoted(field: str) -> str:
    """`field` without the quotes a TSV writer put round it: it puts them only where it doubles some inside.

    >>> _unquoted('"He said ""no"" twice"'), _unquoted('"No," he said, "no"')
    ('He said "no" twice', '"No," he said, "no"')
    """
    inner = field[1:-1]
    if len(field) < 4 or field[0] != '"' or field[-1] != '"' or '""' not in inner or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')


def _rectangular(lines: list[list[str]], name: str) -> list[dict]:
    lines = [line for line in lines if line]
    if not lines:
        raise DataError(f"{name}: the file is empty.")
    header = [column.strip() for column in lines[0]]
    if repeated := [c for c in header if c and header.count(c) > 1]:
        raise DataError(f'{name}: the column "{repeated[0]}" is there twice.')
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(header):
            raise DataError(
                f"{name}: row {number} has {len(line)} columns, the header {len(header)}; "
                "quote texts that hold the separator."
            )
    return [dict(zip(header, line, strict=True)) for line in lines[1:]]


def _read_jsonl(text: str, name: str) -> list[dict]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: U+2028 may stand inside a text
        if line.strip():
            rows.append(_object(_json(line, f"{name}, line {number}"), f"{name}, line {number}"))
    return rows


def _read_json(text: str, name: str) -> list[dict]:
    """A list of objects, or an object with exactly one such list ({"data": […]}); JSON lines named .json too."""
    try:
        value = json.loads(text)
    except ValueError:
        if text.lstrip()[:1] == "{" and "\n" in text.strip():
            return _read_jsonl(text, name)
        value = _json(text, name)
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        value = lists[0] if len(lists) == 1 else [value]
    if not isinstance(value, list):
        raise DataError(f"{name}: expected a list of rows.")
    return [_object(row, f"{name}, row {i}") for i, row in enumerate(value)]


def _json(text: str, where: str):
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({str(error).splitlines()[0]}).") from None


def _object(value, where: str) -> dict:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a row (column: value), found {type(value).__name__}.")
    return value


_READERS = {"csv": _read_csv, "tsv": _read_tsv, "json": _read_json, "jsonl": _read_jsonl}
