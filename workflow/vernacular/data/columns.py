"""Access to the fields of a dataset row by the column names of a task file.

A column is written `name`, `a.b` (key b of a), `a|b` (the first that exists), `a|` (a, may be missing or empty),
`form_*` (all columns that match), `_config` (the Hub configuration of the row).
"""

import ast
import io
import json
import math
import tokenize

from vernacular.core.errors import DataError, closest

_ABSENT = object()


class LayoutError(DataError):
    """Available dataset whose layout differs from the one in the task file; another source of the task may fit."""


class Dropped(Exception):
    """Row that is not a valid item; the message is the reason, phrased so that rows can be counted by reason."""


class Cells:
    """One row, read by the fields of a `columns` mapping; `repaired` collects the repairs made to it."""

    def __init__(self, row: dict, columns: dict):
        self.row, self.columns = row, columns
        self.repaired: set[str] = set()

    def has(self, field: str) -> bool:
        return field in self.columns

    def needs(self, field: str) -> bool:
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
            Dropped: The value is a mapping; the task file must name a key of it.
        """
        wanted = self.columns.get(field, [])
        values = [find(self.row, column) for column in ([wanted] if isinstance(wanted, str) else wanted)]
        return " ".join(filter(None, (_no_mapping(value, field) for value in values)))

    def texts(self, field: str) -> list[str]:
        """Return the field as a list: several columns, a column with a list, or one text split at `separator`."""
        wanted = self.columns[field]
        if isinstance(wanted, list) or "*" in wanted:
            found = [(name, _no_mapping(find(self.row, name), field)) for name in self.names(field)]
            return [text for name, text in found if text or not name.endswith("|")]
        return [_no_mapping(value, field) for value in self._listed(find(self.row, wanted))]

    def names(self, field: str) -> list[str]:
        """Return the column names of a field in order, with * expanded."""
        wanted = self.columns[field]
        names = []
        for column in [wanted] if isinstance(wanted, str) else wanted:
            names += _matching(self.row, column) if "*" in column else [column]
        return names

    def labels(self, field: str) -> list[str] | None:
        """Return the labels of options ("A", "B") if the column of options includes them, else None."""
        value = _parsed(self.value(field)) if isinstance(self.columns.get(field), str) else None
        if isinstance(value, dict) and isinstance(value.get("label"), list):
            return [as_text(label) for label in value["label"]]
        if isinstance(value, list) and value and all(isinstance(v, dict) and "label" in v for v in value):
            return [as_text(v["label"]) for v in value]
        return None

    def _listed(self, value) -> list:
        value = _parsed(value)
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
        if value is not _ABSENT:
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


def sound(value):
    """Return `value` with lone surrogates in all its texts, which UTF-8 cannot encode, replaced by U+FFFD.

    >>> sound(["\\ud83d half", "\\ud83d\\ude00"])
    ['\ufffd half', '😀']
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [sound(v) for v in value]
    if isinstance(value, dict):
        return {sound(k): sound(v) for k, v in value.items()}
    return value


def check_columns(rows: list[dict], columns: dict, name: str) -> None:
    """Raise LayoutError if there are no rows, or if no row has a column that `columns` requires."""
    if not rows:
        raise LayoutError(f"{name}: contains no rows.")
    for wanted in _wanted(columns):
        if wanted.endswith("|") or wanted == "_config":
            continue
        if not any(_matching(row, wanted) if "*" in wanted else _has(row, wanted) for row in rows):
            have = dict.fromkeys(c for row in rows[:1000] for c in row if c != "_config")
            raise LayoutError(f'{name}: column "{wanted}" not found.{closest(wanted, have)}')


def _wanted(columns: dict) -> list[str]:
    wanted = []
    for field, value in columns.items():
        if field in ("gold_format", "separator", "mask"):
            continue
        values = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
        wanted += values
    return wanted


def _matching(row: dict, column: str) -> list[str]:
    start, _, end = column.removesuffix("|").partition("*")
    return [name for name in row if name.startswith(start) and name.endswith(end)]


def _has(row: dict, column: str) -> bool:
    return any(_walk(row, name) is not _ABSENT for name in column.split("|"))


def _walk(row: dict, name: str):
    if name in row:
        return row[name]
    value = row
    for part in name.split("."):
        value = _parsed(value)
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _no_mapping(value, field: str) -> str:
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value)):
        raise Dropped(f"{field} is a mapping, not text")
    return as_text(value)


def _parsed(value):
    """Parse a list or dict that a CSV file stores as text ("['a', 'b']"); return any other value unchanged."""
    if not (isinstance(value, str) and value[:1] in ("[", "{") and value.strip()[-1:] in ("]", "}")):
        return value
    for read in (json.loads, _printed_by_numpy, ast.literal_eval):
        try:
            return sound(read(value.strip()))
        except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
            continue
    return value  # a text that resembles a list


def _printed_by_numpy(text: str) -> list[str]:
    """Return the texts of an array, which pandas writes into a CSV without commas; Python would concatenate them.

    >>> _printed_by_numpy("['Si.' 'Si, claro.']")
    ['Si.', 'Si, claro.']
    """
    ignored = (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in ignored]
    first, *inner, last = tokens
    if first.string != "[" or last.string != "]" or len(inner) < 2 or any(t.type != tokenize.STRING for t in inner):
        raise ValueError("no such array")
    return [ast.literal_eval(t.string) for t in inner]
