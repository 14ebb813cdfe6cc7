"""Access to the fields of a dataset row by the column names of a task file.

A column is written `name`, `a.b` (key b of a), `a|b` (the first that exists), `a|` (a, may be missing or empty),
`form_*` (all columns that match), `_config` (the Hub configuration of the row), `_row` (its number in the file, from
0), `_cluster` (its line in the file `clusters`), `_joined.a` (a of the row with its ID in the language `join`).

Instead of a column, a template (`{a}, {b:lower}`), a constant (`{value: 0}`), or a column whose values are replaced
(`{column: a, values: {yes: 1, no: 0}}`), or corrected (`{column: a, repair: _joined.a}`).
"""

import ast
import io
import itertools
import json
import math
import re
import string
import tokenize
import unicodedata
from collections.abc import Callable, Iterator

from vernacular.core.errors import DataError, suggest
from vernacular.core.fields import as_list
from vernacular.core.languages import INVISIBLE_MARKS

_MISSING = object()


class SchemaMismatchError(DataError):
    """Available dataset whose layout differs from the one in the task file; another source of the task may fit."""


class RowRejected(Exception):
    """Row that is not a valid item: the reason, by which rows are counted, and what was found instead."""

    def __init__(self, reason: str, *values, detail: str = ""):
        """Set `detail`, the sentence about this row; by default, the reason and the `values` that were found."""
        super().__init__(reason)
        self.detail = detail or reason + (": " if values else "") + ", ".join(map(quote, values))


def quote(value) -> str:
    """Return a value as a message shows it: in quotation marks, and not longer than a line.

    >>> quote("Si."), quote(3)
    ('"Si."', '"3"')
    """
    text = " ".join(str("" if value is None else value).split())
    return f'"{text if len(text) <= 80 else text[:77] + "…"}"'


def comparable(text: str) -> str:
    """Return what two texts have in common that look the same: in NFC, without invisible marks, spaces as spaces.

    The texts of items are never changed; only comparisons use this form.

    >>> comparable("maza\\u0301\\u200b") == comparable("maz\\xe1")
    True
    >>> comparable("\\u06cc\\u200c\\u062e") == comparable("\\u06cc\\u062e")  # in Persian, ZWNJ changes the letters
    False
    """
    if text.isascii():
        return text
    return re.sub(r"[^\S\t\n]", " ", unicodedata.normalize("NFC", INVISIBLE_MARKS.sub("", text)))


class Cells:
    """One row, read by the fields of a `columns` mapping; `repaired` collects the repairs made to it.

    `is_typed`: its texts are texts, as in JSON and Parquet; otherwise, one may be a list as a CSV file stores it.
    """

    def __init__(self, row: dict, columns: dict, alphabet: dict[str, int] | None = None, *, is_typed: bool = False):
        self.row, self.columns = row, columns
        self.alphabet = alphabet or {}  # letters of options, if they are not Latin (layouts.answer_alphabet)
        self.repaired: set[str] = set()
        self.is_typed = getattr(row, "is_typed", is_typed)

    def has(self, field: str) -> bool:
        return field in self.columns

    def requires(self, field: str) -> bool:
        """Return whether the field is mapped to a column that must not be empty."""
        spec = self.columns.get(field)
        spec = spec.get("column") if isinstance(spec, dict) else spec
        return spec is not None and not (isinstance(spec, str) and spec.endswith("|"))

    def value(self, field: str):
        """Return the raw value of a one-column field; None if the field is not mapped or the row lacks the column."""
        spec = self.columns.get(field)
        return None if spec is None else self.read(spec)

    def read(self, spec: str | dict):
        """Return the value of a column, template, constant, or column with other values; None if the row lacks it.

        Raises RowRejected if a column of a template is empty, or a value has no replacement.
        """
        if isinstance(spec, str):
            return self._fill(spec) if is_template(spec) and spec not in self.row else find(self.row, spec)
        if "value" in spec:
            return spec["value"]
        value = find(self.row, spec["column"])
        repaired = find(self.row, spec["repair"]) if "repair" in spec else None
        if as_text(repaired) and as_text(repaired) != as_text(value):
            self.repaired.add(f"{spec['column']}: the value of {spec['repair']} used instead")
            value = repaired
        if "values" not in spec or not as_text(value):
            return value
        if _key(value) not in spec["values"] and (parts := self._to_list(value)) != [value]:
            return [self._replaced(part, spec) for part in parts]  # of a list, each
        return self._replaced(value, spec)

    @staticmethod
    def _replaced(value, spec: dict):
        if _key(value) not in spec["values"]:
            names = ", ".join(map(quote, spec["values"]))
            detail = f"{spec['column']}: expected {names} as under values, got {quote(value)}"
            raise RowRejected("value not among those of the task file", detail=detail)
        return spec["values"][_key(value)]

    def _fill(self, template: str) -> str:
        parts = []
        for literal, column, forms in template_parts(template):
            parts.append(literal)
            if column is None:
                continue
            value = as_text(find(self.row, column))
            if not value and not column.endswith("|"):
                raise RowRejected(f"empty {column}", template)
            for form in forms:
                value = FORMS[form](value)
            parts.append(value)
        return "".join(parts)

    def text(self, field: str) -> str:
        """Return the field as one text, "" if missing, parts joined with spaces; raise RowRejected for a mapping."""
        values = map(self.read, as_list(self.columns.get(field, [])))
        return " ".join(filter(None, (_require_text(value, field) for value in values)))

    def texts(self, field: str) -> list[str]:
        """Return the field as a list: several columns, a column with a list, or one text split at `separator`."""
        spec = self.columns[field]
        if isinstance(spec, dict) and "labels" in spec:
            return [text for _, text in spec["labels"]]
        if isinstance(spec, list) or _is_pattern(spec):
            named_texts = [(name, _require_text(self.read(name), field)) for name in self.column_names(field)]
            return [text for name, text in named_texts if text or not (isinstance(name, str) and name.endswith("|"))]
        return [_require_text(value, field) for value in self._to_list(self.read(spec))]

    def class_names(self) -> list[str] | None:
        """Return the names in the dataset of options that are the same in every row; None for other options."""
        spec = self.columns.get("choices")
        return [name for name, _ in spec["labels"]] if isinstance(spec, dict) and "labels" in spec else None

    def column_names(self, field: str) -> list[str]:
        """Return the column names of a field in order, with * expanded."""
        names = []
        for column in as_list(self.columns[field]):
            names += _matching_columns(self.row, column) if _is_pattern(column) else [column]
        return names

    def labels(self, field: str) -> list[str] | None:
        """Return the labels of options ("A", "B") if the column of options includes them, else None."""
        value = self.literal(self.value(field)) if isinstance(self.columns.get(field), str) else None
        if isinstance(value, dict) and isinstance(value.get("label"), list):
            return [as_text(label) for label in value["label"]]
        if isinstance(value, list) and value and all(isinstance(v, dict) and "label" in v for v in value):
            return [as_text(v["label"]) for v in value]
        return None

    def literal(self, value):
        """Return the list or mapping that a text of an untyped row is; any other value unchanged."""
        return value if self.is_typed else parse_literal(value)

    def _to_list(self, value) -> list:
        text, value = value, self.literal(value)
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            value = value["text"]
        if isinstance(value, set):
            if self.columns.get("gold_format") not in (None, "text"):
                raise RowRejected("options are a set, which has no order", text)
            value = sorted(value, key=str)
        if isinstance(value, list):
            return [v.get("text") if isinstance(v, dict) else v for v in value]
        separator = self.columns.get("separator")
        if not (separator or self.is_typed) and isinstance(value, str) and _PRINTED.match(value) and "..." in value:
            detail = f"{quote(value)} was shortened when it was written; write JSON Lines or Parquet instead of CSV"
            raise RowRejected("shortened list", detail=detail)
        return value.split(separator) if separator and isinstance(value, str) else [value]


def location_of(row: dict, row_index: int) -> str:
    """Return where a row stands, for messages."""
    return getattr(row, "location", f"row {row_index} (counted from 0)")


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
        if column.endswith("|") or column in ("_config", "_row"):
            continue
        if column.startswith("_joined.") and "_joined" not in rows[0]:
            continue  # the rows are joined when both languages have been read
        if not any(_matching_columns(row, column) if _is_pattern(column) else _has_column(row, column) for row in rows):
            column_names = dict.fromkeys(c for row in rows[:1000] for c in row if c != "_config")
            raise SchemaMismatchError(f'{name}: column "{column}" not found.{suggest(column, column_names)}')


# keys of `columns` that name no column
NOT_COLUMNS = ("gold_format", "separator", "mask", "number", "source_language", "target_language", "types", "joiner")


def _mapped_columns(columns: dict) -> list[str]:
    names = []
    for field, value in columns.items():
        if field in ("where", "extra"):
            names += value if field == "where" else value.values()
        elif field not in NOT_COLUMNS:
            names += [name for spec in as_list(value) for name in columns_of(spec)]
    return names


def columns_of(spec: str | dict) -> list[str]:
    """Return the columns that a column, template, constant or column with other values reads.

    >>> columns_of("{a}, {b.c:lower}"), columns_of({"column": "a", "repair": "b"}), columns_of({"value": 0})
    (['a', 'b.c'], ['a', 'b'], [])
    """
    if isinstance(spec, dict):
        return [spec[key] for key in ("column", "repair") if key in spec]
    return [column for _, column, _ in template_parts(spec) if column] if is_template(spec) else [spec]


def is_template(spec: str) -> bool:
    return "{" in spec


def _is_pattern(spec: str | dict) -> bool:
    return isinstance(spec, str) and "*" in spec and not is_template(spec)


def template_parts(template: str) -> Iterator[tuple[str, str | None, list[str]]]:
    """Yield (text, column after it, its forms) of a template; braces of the text are doubled.

    >>> list(template_parts("{premise:open} e {a|b}"))
    [('', 'premise', ['open']), (' e ', 'a|b', [])]

    Raises:
        ValueError: The braces do not pair, or a form is unknown.
    """
    for literal, column, forms, conversion in string.Formatter().parse(template):
        names = forms.split(",") if forms else []
        if column == "" or conversion or not FORMS.keys() >= set(names):
            raise ValueError(f"expected {{column}} or {{column:form}} with the form {' or '.join(FORMS)}")
        yield literal, column, names


# what a text becomes inside a sentence: its first letter, and its end
FORMS: dict[str, Callable[[str], str]] = {
    "lower": lambda text: _lower(text[:1], text) + text[1:],
    "open": lambda text: text.rstrip().rstrip(".!?…。！？؟۔।።։။").rstrip(),
}


def _lower(letter: str, text: str) -> str:
    """Return a letter of a text in lower case: of İ, i, and of I, ı beside letters of Turkish and Azerbaijani."""
    return "i" if letter == "İ" else "ı" if letter == "I" and not {"ı", "İ", "ğ"}.isdisjoint(text) else letter.lower()


def is_selected(row: dict, columns: dict) -> bool:
    """Return whether a row has the values under `where` of a task file; if there are none, every row is selected."""
    where = columns.get("where", {})
    return all(_key(find(row, column)) in map(_key, as_list(values)) for column, values in where.items())


def _key(value) -> str:
    """Return a value as a task file writes it: true, 3, text."""
    return str(value).lower() if isinstance(value, bool) else as_text(value)


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
        value = parse_literal(value)
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _require_text(value, field: str) -> str:
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value)):
        raise RowRejected(f"{field} is a mapping, not text", value)
    return as_text(value)


def parse_literal(value):
    """Parse a list or dict that a CSV file stores as text ("['a', 'b']"); return any other value unchanged."""
    if not (isinstance(value, str) and _PRINTED.match(value) and value.rstrip()[-1] in "])}"):
        return value
    for parse in (json.loads, _parse_printed):
        try:
            return replace_surrogates(parse(value.strip()))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
            continue
    return value  # a text that resembles a list


_PRINTED = re.compile(r"\s*(?:[\[({]|(?:(?:np|numpy)\.)?array\(|frozenset\(|list\(|tuple\()")
_NO_TOKENS = (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
_VALUES = (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)
_OPENING, _CLOSING = ("[", "(", "{"), ("]", ")", "}")


def _parse_printed(text: str) -> list | dict | set:
    """Parse a list or dict as Python, numpy or pandas print it: array(…, dtype=object), np.str_('a'), no commas.

    >>> _parse_printed("['Si.' 'Si, claro.']"), _parse_printed("{'text': array(['a', 'b'], dtype=object)}")
    (['Si.', 'Si, claro.'], {'text': ['a', 'b']})

    Raises:
        ValueError, SyntaxError, tokenize.TokenError: The text is something else.
    """
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _NO_TOKENS]
    lists, open_lists, with_commas = [], [], set()  # the innermost list of each token, by the index of its bracket
    for i, token in enumerate(tokens):
        if i and not open_lists and tokens[i - 1].string in _CLOSING:
            raise ValueError("more than one value")  # for example, "(a) or (b)"
        if token.string in _CLOSING and open_lists:
            open_lists.pop()
        lists.append(open_lists[-1] if open_lists else None)
        if token.string == ",":
            with_commas.add(lists[i])
        if token.string in _OPENING:
            open_lists.append(i)
    parts = [tokens[0].string]
    for i, (before, token) in enumerate(itertools.pairwise(tokens), start=1):
        # an array is printed without commas, and Python would join its texts into one
        begins = token.type in _VALUES or token.string in ("[", "{")
        is_sign = token.string == "-" and before.end != token.start and token.end == tokens[i + 1].start
        ends = before.type in _VALUES or before.string in _CLOSING
        if ends and (begins or is_sign) and lists[i] not in with_commas:
            parts.append(",")
        parts.append(token.string)
    value = _evaluate(ast.parse(" ".join(parts), mode="eval").body)
    if not isinstance(value, (list, dict, set)):
        raise ValueError("not a list")
    return value


def _evaluate(node: ast.expr):
    """Return the value of a printed literal; tuples and arrays as lists. Nothing is called."""
    match node:
        case ast.List() | ast.Tuple():
            return [_evaluate(element) for element in node.elts]
        case ast.Set():
            return set(map(_evaluate, node.elts))
        case ast.Dict() if None not in node.keys:
            return dict(zip(map(_evaluate, node.keys), map(_evaluate, node.values), strict=True))
        case ast.Call(func=ast.Name(id="array" | "list" | "tuple" | "frozenset"), args=[content, *_]):
            return _evaluate(content)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy")), args=[content, *_]):
            return _evaluate(content)
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="True_" | "False_"):
            return node.attr == "True_"
        case ast.Name(id="nan" | "NaN" | "NaT") | ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="nan"):
            return None
    return ast.literal_eval(node)


def samples_name(task: dict) -> str:
    """Return the task whose samples are used: the one whose languages are."""
    return task.get("languages_of", task["task"])
