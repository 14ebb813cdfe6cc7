"""Rows of data files in CSV, TSV, JSON, JSON Lines and Parquet, with all values as stored in the file.

CSV and TSV are not read with pandas (nor with `datasets`, which uses it): pandas turns the texts "NA", "null" and "nan"
into missing values and "01" into 1, and removes quotation marks at the start of a sentence.
"""

import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vernacular.core.errors import DataError, first_line, format_count
from vernacular.core.fingerprint import file_fingerprint

_LocatedRows = Iterator[tuple[str, dict]]  # ("rows.csv, line 3", row)
FORMATS = {".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_WORKBOOKS = (".xlsx", ".xls", ".ods", ".numbers")

_MAX_BYTES = 10_000_000_000  # of a file, also unpacked: a few MB can unpack to more than the memory holds
_MAX_DEPTH = 100  # levels of nesting: rows are processed recursively

csv.field_size_limit(1 << 30)  # very long passages are valid


class Row(dict):
    """Row of a data file, with its location for messages ("rows.csv, line 3").

    `is_typed`: its format tells texts from lists and numbers, so that no text is one of these.
    """

    __slots__ = ("is_typed", "location")


def typed(rows: list[dict]) -> list[Row]:
    """Return rows whose texts are texts, also those that look like a list."""
    rows = list(map(Row, rows))
    for row in rows:
        row.is_typed = True
    return rows


def read_rows(
    path, file_format: str | None = None, *, name: str | None = None, header: list[str] | None = None
) -> list[Row]:
    """Return all rows of a data file in order; see `located_rows`."""
    rows = []
    for location, content in located_rows(path, file_format, name=name, header=header):
        rows.append(Row(content))
        rows[-1].location = location
        rows[-1].is_typed = (file_format or detect_format(name or path)) not in ("csv", "tsv")
    return rows


def located_rows(
    path, file_format: str | None = None, *, name: str | None = None, header: list[str] | None = None
) -> _LocatedRows:
    """Yield the rows of a data file in order, each with its location for messages: ("rows.csv, line 3", row).

    `name`: in messages; `header`: the columns of a CSV or TSV file without names. Raises DataError if it cannot be
    read.
    """
    path, name = Path(path), name or str(path)
    file_format = file_format or detect_format(name)
    if file_format is None and Path(name).suffix.lower() in _WORKBOOKS:
        raise DataError(f"{name}: expected CSV, TSV, JSON or Parquet, got a workbook; export it as CSV.")
    if file_format is None:
        raise DataError(f"{name}: unknown file name extension; set format: {', '.join(_READERS)} or parquet.")
    data = _read_bytes(path, name, file_format)
    if header and file_format not in ("csv", "tsv", "iob"):
        raise DataError(f"{name}: header: expected a CSV, TSV or IOB file, got {file_format}.")
    if file_format == "parquet":
        yield from _read_parquet(data, name)
    elif header:
        yield from _READERS[file_format](_decode_text(data, name, file_format), name, header)
    else:
        yield from _READERS[file_format](_decode_text(data, name, file_format), name)


def detect_format(name) -> str | None:
    """Return the format for a file's extension; None if it is unknown."""
    return FORMATS.get(Path(str(name).lower().removesuffix(".gz")).suffix)


def read_text(path, name: str, file_format: str) -> str:
    """Return the text of a file, also gzipped, without byte-order mark; raise DataError without one, or if empty."""
    return _decode_text(_read_bytes(Path(path), name, file_format), name, file_format)


def digest_of(path, name: str, sha256: str | None) -> str:
    """Return the SHA-256 of a local file; raise DataError if it cannot be read, or a task file states another."""
    try:
        digest = file_fingerprint(path)
    except FileNotFoundError:
        raise DataError(f"{name}: file not found.") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}).") from None
    if sha256 not in (None, digest):
        raise DataError(f"{name}: checksum mismatch (expected sha256 {sha256} as in the task file, got {digest}).")
    return digest


def _read_bytes(path: Path, name: str, file_format: str) -> bytes:
    try:
        if path.is_dir():
            raise DataError(f"{name}: expected a file, got a directory; give the path of a file in it.")
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise DataError(f"{name}: is not a regular file.")
        if path.stat().st_size > _MAX_BYTES:
            raise DataError(f"{name}: has {path.stat().st_size:,} bytes; expected at most {_MAX_BYTES:,}.")
        data = path.read_bytes()
        if data.startswith(b"version https://git-lfs.github.com/spec/"):
            raise DataError(f"{name}: is a Git LFS pointer, not the file; fetch the file with `git lfs pull`.")
        if data[:100].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise DataError(f"{name}: expected {file_format}, got a web page; check whether its URL requires a login.")
        if data[:2] != b"\x1f\x8b":
            return data
        with gzip.open(io.BytesIO(data)) as unpacked:
            data = unpacked.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise DataError(f"{name}: has more than {_MAX_BYTES:,} bytes when unpacked.")
        return data
    except FileNotFoundError:
        raise DataError(f"{name}: file not found.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name}: damaged or not {file_format} ({error}).") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}).") from None


def _decode_text(data: bytes, name: str, file_format: str) -> str:
    if data[:4] == b"PK\x03\x04":
        raise DataError(
            f"{name}: expected {file_format}, got a zip archive or workbook; unpack it, or export it as CSV."
        )
    if b"\0" in data[:4]:
        raise DataError(f"{name}: expected UTF-8 text, got UTF-16 or binary data; save it as UTF-8.")
    try:
        text = data.decode("utf-8-sig")  # without a byte-order mark, which is not part of the first column's name
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    if not text.strip():
        raise DataError(f"{name}: the file is empty.")
    return text


def _read_parquet(data: bytes, name: str) -> _LocatedRows:
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()
        check_header(table.column_names, name)
        rows = pa.table([_binary_to_text(column) for column in table.columns], table.column_names).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: damaged or not parquet ({first_line(error)}).") from None
    return _numbered(rows, name)


def _numbered(rows: list, name: str) -> _LocatedRows:
    """Yield rows that have no line of a file, with their numbers as in pandas and on the Hub."""
    for number, row in enumerate(rows):
        location = f"{name}, row {number} (counted from 0)"
        yield location, _check_row(row, location)


def _binary_to_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a binary column of UTF-8 to text: old Parquet writers do not mark text as such."""
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return column
    with contextlib.suppress(pa.ArrowInvalid):  # for example, images
        return column.cast(pa.large_string())
    return column


_SEPARATOR_LINE = re.compile(r'\s*"?sep=(.)"?(?=[\r\n])', re.IGNORECASE)  # Excel's first line, for example sep=;


def _read_csv(text: str, name: str, columns: list[str] | None = None) -> _LocatedRows:
    if declared := _SEPARATOR_LINE.match(text):  # the line stays, empty, so that the numbers of lines are correct
        return _to_rows(_parse_quoted(text[declared.end() :], declared[1], name), name, columns)
    header = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    unquoted_header = re.sub(r'"[^"]*"', "", header)
    # spreadsheets in locales with a decimal comma write semicolons
    delimiter = max(",;\t", key=unquoted_header.count) if "," not in unquoted_header else ","
    return _to_rows(_parse_quoted(text, delimiter, name), name, columns)


def _parse_quoted(text: str, delimiter: str, name: str) -> list[tuple[int, list[str]]]:
    """Return (number of the last line, fields) of each row."""
    reader, rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), []
    try:
        for fields in reader:
            rows.append((reader.line_num, fields))
    except csv.Error as error:
        # hence strict=True: an unclosed quotation mark would otherwise include the rows after it
        row_start = (rows[-1][0] if rows else 0) + 1
        hint = f"; the row begins in line {row_start}" if row_start < reader.line_num else ""
        raise DataError(f"{name}, line {reader.line_num}: misplaced quotation mark ({error}{hint}).") from None
    return rows


def _read_tsv(text: str, name: str, columns: list[str] | None = None) -> _LocatedRows:
    """Read TSV, with quotation marks as text unless the file shows that they enclose fields.

    That is in a header, around rows of unequal length, and, in a file of one column, where one has no pair; if some are
    misplaced then, they are text.
    """
    if _SEPARATOR_LINE.match(text):
        return _read_csv(text, name, columns)
    newline = "\n" if "\n" in text else "\r"
    lines = [(n, line.removesuffix("\r").split("\t")) for n, line in enumerate(text.split(newline), start=1)]
    lines = [(n, line) for n, line in lines if line != [""]]
    header = columns or lines[0][1]
    quoted_header = all(len(column) > 2 and column[0] == column[-1] == '"' for column in header)
    unclosed = header[1:] == [] and any(line[0][0] == '"' and line[0].count('"') % 2 for _, line in lines)
    lines = [(n, [_unquote(field) for field in line]) for n, line in lines]
    if quoted_header or unclosed or any(len(line) != len(header) for _, line in lines):
        with contextlib.suppress(DataError):  # then they are text, and the row of another length is the error
            lines = _parse_quoted(text, "\t", name)
    return _to_rows(lines, name, columns)


def _unquote(field: str) -> str:
    """Remove the quotes that a TSV writer puts around `field`, which it does only if it doubles quotes inside.

    >>> _unquote('"He said ""no"" twice"'), _unquote('"No," he said, "no"')
    ('He said "no" twice', '"No," he said, "no"')
    """
    inner = field[1:-1]
    if len(field) < 4 or field[0] != '"' or field[-1] != '"' or '""' not in inner or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')


def _to_rows(lines: list[tuple[int, list[str]]], name: str, columns: list[str] | None) -> _LocatedRows:
    lines = [(line_number, fields) for line_number, fields in lines if fields]
    header = columns or [column.strip() for column in lines[0][1]]
    check_header(header, name)
    names = [column.casefold() for column in header]
    for row_number, (line_number, fields) in enumerate(lines if columns else lines[1:], start=1 if columns else 2):
        if len(fields) != len(header):
            raise DataError(
                f"{name}, line {line_number}: row {row_number}: expected {format_count(len(header), 'column')} as in "
                f"the header, got {len(fields)}; quote texts that contain the separator."
            )
        # also with the byte-order mark of a joined file, after which quotes are text, or in another case
        if [field.removeprefix("\ufeff").strip().strip('"').casefold() for field in fields] == names:
            raise DataError(
                f"{name}, line {line_number}: repeats the header; the file may be joined from several. Remove the "
                "line, or name the column differently if it is an item."
            )
        yield f"{name}, line {line_number}", dict(zip(header, fields, strict=True))


def check_header(header: list[str], name: str) -> None:
    """Raise DataError if there are no column names, or one occurs twice."""
    if not any(header):
        raise DataError(f"{name}: the first line contains no column names.")
    if duplicates := [column for column, count in Counter(header).items() if column and count > 1]:
        raise DataError(f'{name}: duplicate column "{duplicates[0]}".')


def _read_jsonl(text: str, name: str) -> _LocatedRows:
    # a JSON text cannot contain a line break, but U+2028, at which splitlines would split
    lines = text.replace("\r", "\n" if "\n" not in text else "").split("\n")
    lines = [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]
    with contextlib.suppress(ValueError):  # JSON that is named .jsonl: several lines, or all rows in one
        value = _decode(text)
        if isinstance(value, list):
            is_json = bool(value) and isinstance(value[0], dict)
        else:
            columns = value.values() if isinstance(value, dict) and _depth(value) <= _MAX_DEPTH else [None]
            is_json = isinstance(value, dict) and (len(lines) > 1 or all(isinstance(v, list) for v in columns))
        if is_json:
            return _numbered(_json_rows(value, name), name)
    locations = ((f"{name}, line {number}", line) for number, line in lines)
    return ((location, _check_row(parse_json(line, location), location)) for location, line in locations)


def _read_json(text: str, name: str) -> _LocatedRows:
    """Read the rows of a JSON text, see `_json_rows`, or JSON Lines named .json."""
    try:
        value = _decode(text)
    except ValueError:
        if text.lstrip()[:1] == "{" and "\n" in text.strip():
            return _read_jsonl(text, name)
        value = parse_json(text, name)
    return _numbered(_json_rows(value, name), name)


def _json_rows(value, name: str) -> list:
    """Return the rows of a list of objects, an object with exactly one such list ({"data": […]}), or one of columns.

    Columns are lists ({"good": ["a", "b"], "bad": ["c", "d"]}), or as pandas writes them: `to_json` with the `orient`
    columns, index, split or table. Any other object is one row.

    >>> _json_rows({"good": ["a", "b"], "bad": ["c", "d"]}, "x.json")
    [{'good': 'a', 'bad': 'c'}, {'good': 'b', 'bad': 'd'}]
    >>> _json_rows({"good": {"0": "a", "1": "b"}}, "x.json") == _json_rows({"0": {"good": "a"}, "1": {"good": "b"}}, "")
    True

    Raises:
        DataError: The object can be read in several ways, or its columns differ in length.
    """
    advice = 'save it as a list of rows, for example by pandas.DataFrame.to_json(…, orient="records").'
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise DataError(f"{name}: expected a list of rows, got {type(value).__name__}.")
    values = list(value.values())
    if {"columns", "data"} <= value.keys() <= {"columns", "data", "index"} and all(isinstance(v, list) for v in values):
        lengths = {len(row) if isinstance(row, list) else None for row in value["data"]} - {len(value["columns"])}
        if not lengths:
            return [dict(zip(value["columns"], row, strict=True)) for row in value["data"]]
    lists = [key for key, v in value.items() if isinstance(v, list) and v and isinstance(v[0], dict)]
    if values and all(isinstance(v, list) for v in values) and (len(lists) < len(values) or not lists):
        lengths = {len(v) for v in values}
        if len(lengths) == 1:
            return [dict(zip(value, row, strict=True)) for row in zip(*values, strict=True)]
        if not lists:
            columns = ", ".join(f'"{key}" has {len(v)}' for key, v in value.items())
            raise DataError(f"{name}: expected columns of equal length, got {columns} values; {advice}")
    if len(lists) > 1:
        names = " and ".join(f'"{key}"' for key in lists)
        raise DataError(f"{name}: expected one list of rows, got {names}; save each in a file of its own.")
    if lists:
        return value[lists[0]]
    if values and all(isinstance(v, dict) and v.keys() == values[0].keys() for v in values):
        outer, inner = (all(str(key).isdecimal() for key in keys) for keys in (value, values[0]))
        if outer and not inner:
            return values
        if inner and not outer:
            return [dict(zip(value, row, strict=True)) for row in zip(*(v.values() for v in values), strict=True)]
        if len(values) > 1:
            raise DataError(f"{name}: expected a list of rows, got an object of objects; {advice}")
    return [value]


def parse_object(data: bytes, location: str) -> dict:
    """Return an object of strict JSON that others wrote: NaN, infinity and lone surrogates are errors, too."""
    try:
        value = _decode(data.decode("utf-8"), _STRICT_DECODER)
        if _SURROGATE.search(data):  # otherwise the bytes could not be decoded
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise DataError(f"{location}: not UTF-8 text (byte {error.start}).") from None
    except UnicodeEncodeError:
        raise DataError(f"{location}: contains a lone surrogate, which is not text.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}: not valid JSON ({first_line(error)}).") from None
    return _check_row(value, location, is_deep=data.count(b"[") + data.count(b"{") > _MAX_DEPTH)


def parse_json(text: str, location: str):
    """Return a value of JSON; raise DataError with `location` if it is not valid, or an object repeats a key."""
    try:
        return _decode(text)
    except ValueError as error:
        raise DataError(f"{location}: not valid JSON ({first_line(error)}).") from None


def _decode(text: str, decoder: json.JSONDecoder | None = None):
    try:
        return (decoder or _DECODER).decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict:
    result = dict(pairs)
    if len(result) < len(pairs):  # the JSON standard does not define which one is used
        duplicate = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f'duplicate key "{duplicate}"')
    return result


def _reject_constant(name: str):
    raise ValueError(f"{name} is not a number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys)
_STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _check_row(value, location: str, *, is_deep: bool = True) -> dict:
    """Return a row, whose depth is counted unless it has too few brackets for it (`is_deep`)."""
    if not isinstance(value, dict):
        raise DataError(f"{location}: expected a row (column: value), got {type(value).__name__}.")
    if is_deep and _depth(value) > _MAX_DEPTH:
        raise DataError(f"{location}: nested too deeply.")
    return value


def _depth(value, depth: int = 0) -> int:
    """Return the depth of nested lists and mappings, counted until it exceeds the limit."""
    if depth > _MAX_DEPTH:
        return depth
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(v, depth + 1) for v in inner if isinstance(v, (dict, list))), default=depth)


_EMPTY_LINES = re.compile(r"\n(?:[ \t]*\n)+")


def _read_text(text: str, name: str) -> _LocatedRows:
    """Yield one row, whose column `text` is the whole file; lines end in \\n."""
    yield name, {"text": _with_unix_lines(text)}


def _read_paragraphs(text: str, name: str) -> _LocatedRows:
    """Yield a row per paragraph, with its location for messages.

    >>> list(_read_paragraphs("a\\nb\\n\\n \\nc\\n", "f.txt"))
    [('f.txt, paragraph 1', {'text': 'a\\nb'}), ('f.txt, paragraph 2', {'text': 'c'})]
    """
    paragraphs = filter(None, (part.strip("\n") for part in _EMPTY_LINES.split(_with_unix_lines(text))))
    for number, paragraph in enumerate(paragraphs, start=1):
        yield f"{name}, paragraph {number}", {"text": paragraph}


def _read_lines(text: str, name: str) -> _LocatedRows:
    """Yield a row per line, also of empty ones, so that files of several languages stay aligned."""
    for number, line in enumerate(_with_unix_lines(text).removesuffix("\n").split("\n"), start=1):
        yield f"{name}, line {number}", {"text": line}


_COMMENT = re.compile(r"# ?(\w[\w ]*?) = (.*)")


def is_document_marker(token: str) -> bool:
    """Return whether a token is no word, but where a document begins in CoNLL's files."""
    return re.fullmatch(r"\ufeff?-+DOC(START|END)-.*", token, re.IGNORECASE) is not None


def _read_iob(text: str, name: str, columns: list[str] | None = None) -> _LocatedRows:
    """Yield a row per sentence: a list per column, and the comments `# key = value` before it.

    Columns are separated by tabs, or by spaces if a line has no tab.

    >>> next(_read_iob("# id = s1\\nRosalía B-PER\\nde I-PER\\n\\n", "f.iob"))[1]
    {'id': 's1', 'token': ['Rosalía', 'de'], 'tag': ['B-PER', 'I-PER']}
    """
    columns = columns or ["token", "tag"]
    sentence, comments, start = [], {}, 0
    for number, line in enumerate([*_with_unix_lines(text).split("\n"), ""], start=1):
        fields = line.split("\t") if "\t" in line else re.split(" +", line.rstrip(" "))
        is_marker = is_document_marker(fields[0])
        if not line.strip() or is_marker:
            if sentence:
                lists = map(list, zip(*sentence, strict=True))
                yield f"{name}, line {start}", comments | dict(zip(columns, lists, strict=True))
            sentence, comments = [], {}
            if is_marker:  # a row of its own, which is counted, whatever its columns
                yield (
                    f"{name}, line {number}",
                    {column: [fields[0] if not i else "O"] for i, column in enumerate(columns)},
                )
        elif comment := _COMMENT.fullmatch(line):
            comments[comment[1]] = comment[2]
        elif len(fields) == len(columns):
            start = start if sentence else number
            sentence.append(fields)
        elif not line.startswith("#"):
            expected = f"{format_count(len(columns), 'column')} ({', '.join(columns)})"
            raise DataError(f"{name}, line {number}: expected {expected}, got {len(fields)}.")


def _with_unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


_READERS = {"csv": _read_csv, "tsv": _read_tsv, "json": _read_json, "jsonl": _read_jsonl}
_READERS |= {"txt": _read_text, "paragraphs": _read_paragraphs, "lines": _read_lines, "iob": _read_iob}
