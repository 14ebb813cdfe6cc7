"""Access to the fields of a dataset row by the column names of a task file.

A column is written `name`, `a.b` (key b of a), `a|b` (the first that exists), `a|` (a, may be missing or empty),
`form_*` (all columns that match), `_config` (the Hub configuration of the row).
"""

import ast
import io
import json
import math
import tokenize

from vernacular.core.errors import DataError, suggest

_MISSING = object()


class SchemaMismatchError(DataError):
    """Available dataset whose layout differs from the one in the task file; another source of the task may fit."""


class RowRejected(Exception):
    """Row that is not a valid item; the message is the reason, phrased so that rows can be counted by reason."""


class Cells:
    """One row, read by the fields of a `columns` mapping; `repaired` collects the repairs made to it."""

    def __init__(self, row: dict, columns: dict):
        self.row, self.columns = row, columns
        self.repaired: set[str] = set()

    def has(self, field: str) -> bool:
        return field in self.columns

    def requires(self, field: str) -> bool:
        """Return whether the field is mapped to a column that must not be empty."""
        column = self.columns.get(field)
        return column is not None and not (isinstance(column, str) and column.endswith("|"))

    def value(self, field: str):
        """Return the raw value of a one-column field; None if the field is not mapped or the row lacks the column."""
        column = self.columns.get(field)
        return None if column is None else find(self.row, column)

    def text(self, field: str) -> str:
        """Return the field as one text, "" if missing; several columns, and lists, are joined with spaces.

        Raises:
            RowRejected: The value is a mapping; the task file must name a key of it.
        """
        spec = self.columns.get(field, [])
        values = [find(self.row, column) for column in ([spec] if isinstance(spec, str) else spec)]
        return " ".join(filter(None, (_require_text(value, field) for value in values)))

    def texts(self, field: str) -> list[str]:
        """Return the field as a list: several columns, a column with a list, or one text split at `separator`."""
        spec = self.columns[field]
        if isinstance(spec, list) or "*" in spec:
            named_texts = [(name, _require_text(find(self.row, name), field)) for name in self.column_names(field)]
            return [text for name, text in named_texts if text or not name.endswith("|")]
        return [_require_text(value, field) for value in self._to_list(find(self.row, spec))]

    def column_names(self, field: str) -> list[str]:
        """Return the column names of a field in order, with * expanded."""
        spec = self.columns[field]
        names = []
        for column in [spec] if isinstance(spec, str) else spec:
            names += _matching_columns(self.row, column) if "*" in column else [column]
        return names

    def labels(self, field: str) -> list[str] | None:
        """Return the labels of options ("A", "B") if the column of options includes them, else None."""
        value = _parse_literal(self.value(field)) if isinstance(self.columns.get(field), str) else None
        if isinstance(value, dict) and isinstance(value.get("label"), list):
            return [as_text(label) for label in value["label"]]
        if isinstance(value, list) and value and all(isinstance(v, dict) and "label" in v for v in value):
            return [as_text(v["label"]) for v in value]
        return None

    def _to_list(self, value) -> list:
        value = _parse_literal(value)
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            value = value["text"]
        if isinstance(value, list):
            return [v.get("text") if isinstance(v, dict) else v for v in value]
        separator = self.columns.get("separator")
        return value.split(separator) if separator and isinstance(value, str) else [value]


def find(row: dict, column: str):
    """Return the value of one column; None if the row lacks it."""
    for name in column.split("|"):
        value = _walk(row, name)
        if value is not _MISSING:
            return value
    return None


def as_text(value) -> str:
    """Return `value` as text without surrounding whitespace; "" for None and NaN, "3" for 3 and 3.0.

    >>> as_text(" B "), as_text(2.0), as_text(None), as_text(["uno.", "dous."])
    ('B', '2', '', 'uno. dous.')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return " ".join(filter(None, map(as_text, value)))
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    return str(value).strip()


def replace_surrogates(value):
    """Return `value` with lone surrogates in all its texts, which UTF-8 cannot encode, replaced by U+FFFD.

    >>> replace_surrogates(["\\ud83d half", "\\ud83d\\ude00"])
    ['\ufffd half', '😀']
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [replace_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {replace_surrogates(k): replace_surrogates(v) for k, v in value.items()}
    return value


def check_columns(rows: list[dict], columns: dict, name: str) -> None:
    """Raise SchemaMismatchError if there are no rows, or if no row has a column that `columns` requires."""
    if not rows:
        raise SchemaMismatchError(f"{name}: contains no rows.")
    for column in _mapped_columns(columns):
        if column.endswith("|") or column == "_config":
            continue
        if not any(_matching_columns(row, column) if "*" in column else _has_column(row, column) for row in rows):
            column_names = dict.fromkeys(c for row in rows[:1000] for c in row if c != "_config")
            raise SchemaMismatchError(f'{name}: column "{column}" not found.{suggest(column, column_names)}')


def _mapped_columns(columns: dict) -> list[str]:
    names = []
    for field, value in columns.items():
        if field in ("gold_format", "separator", "mask"):
            continue
        values = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
        names += values
    return names


def _matching_columns(row: dict, column: str) -> list[str]:
    prefix, _, suffix = column.removesuffix("|").partition("*")
    return [name for name in row if name.startswith(prefix) and name.endswith(suffix)]


def _has_column(row: dict, column: str) -> bool:
    return any(_walk(row, name) is not _MISSING for name in column.split("|"))


def _walk(row: dict, name: str):
    if name in row:
        return row[name]
    value = row
    for key in name.split("."):
        value = _parse_literal(value)
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _require_text(value, field: str) -> str:
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value)):
        raise RowRejected(f"{field} is a mapping, not text")
    return as_text(value)


def _parse_literal(value):
    """Parse a list or dict that a CSV file stores as text ("['a', 'b']"); return any other value unchanged."""
    if not (isinstance(value, str) and value[:1] in ("[", "{") and value.strip()[-1:] in ("]", "}")):
        return value
    for parse in (json.loads, _parse_numpy_array, ast.literal_eval):
        try:
            return replace_surrogates(parse(value.strip()))
        except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
            continue
    return value  # a text that resembles a list


def _parse_numpy_array(text: str) -> list[str]:
    """Return the texts of an array, which pandas writes into a CSV without commas; Python would concatenate them.

    >>> _parse_numpy_array("['Si.' 'Si, claro.']")
    ['Si.', 'Si, claro.']
    """
    ignored = (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in ignored]
    first, *inner, last = tokens
    if first.string != "[" or last.string != "]" or len(inner) < 2 or any(t.type != tokenize.STRING for t in inner):
        raise ValueError("no such array")
    return [ast.literal_eval(t.string) for t in inner]
