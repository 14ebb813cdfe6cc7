"""Arrow tables as rows and pandas, CSV files, and numbers and names as the text of cells, sheets and sentences."""

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pa_types

from vernacular.core.artifacts import replacing

if TYPE_CHECKING:
    import pandas as pd  # not at run time: it takes half a second, and commands without tables do not need it

_TEXTS = {"share": (100, 1), "percent": (1, 1)}  # factor and digits of a value in %, by unit


def rows_of(table: pa.Table) -> list[dict]:
    """Return the rows of `table` as dicts, with lists as lists, maps as dicts, and null as None."""
    columns = [values_of(table[name]) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def iter_rows(table: pa.Table, size: int) -> Iterator[dict]:
    """Yield the rows of `table` as `rows_of` returns them, of which `size` are Python objects at a time."""
    for start in range(0, table.num_rows, size):
        yield from rows_of(table.slice(start, size))


def by_items(items: pa.Table, tables: Iterable[pa.Table], size: int) -> Iterator[list[pa.Table]]:
    """Yield `size` rows of `items`, and those of the other tables with the same `item_id`, until all items are read.

    An evaluation is processed in such parts, because Python's objects need about twenty times the memory of a table.
    Rows of other tables without an item are omitted; others keep their order.
    """
    ids = items["item_id"].combine_chunks()
    selections = []
    for table in tables:
        positions = pc.index_in(table["item_id"], value_set=ids)
        part_numbers = positions.fill_null(len(ids) + size).to_numpy() // size
        order = np.argsort(part_numbers, kind="stable")
        selections.append((table, order, part_numbers[order]))
    for number, start in enumerate(range(0, len(ids), size)):
        parts = [items.slice(start, size)]
        for table, order, part_numbers in selections:
            rows = order[slice(*np.searchsorted(part_numbers, [number, number + 1]))]
            in_sequence = not len(rows) or rows[-1] - rows[0] == len(rows) - 1
            parts.append(table.slice(rows[0] if len(rows) else 0, len(rows)) if in_sequence else table.take(rows))
        yield parts


def text_table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a line per row of texts, with aligned columns; `right`: the columns that are aligned on the right.

    >>> text_table([("task", "n"), ("cola", "12")], right=[1])
    ['task   n', 'cola  12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    ]
    return ["  ".join(row).rstrip() for row in aligned]


def values_of(column: pa.Array | pa.ChunkedArray) -> list:
    """Return the values of a column as Python objects.

    >>> values_of(pa.array([[1.5, None], None, []]))
    [[1.5, None], None, []]
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in values_of(chunk)]
    kind = column.type
    if pa_types.is_map(kind):
        edges, start, size = _edges(column)
        keys, items = (values_of(array.slice(start, size)) for array in (column.keys, column.items))
        values = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in edges]
    elif pa_types.is_list(kind):
        edges, start, size = _edges(column)
        elements = values_of(column.values.slice(start, size))
        values = [elements[a:b] for a, b in edges]
    elif pa_types.is_integer(kind) or pa_types.is_floating(kind):  # NumPy integers have no missing value
        values = column.fill_null(0).to_numpy(zero_copy_only=False).tolist()
    elif pa_types.is_string(kind) or pa_types.is_boolean(kind):
        return column.to_numpy(zero_copy_only=False).tolist()
    else:
        return column.to_pylist()
    if column.null_count:
        is_valid = column.is_valid().to_numpy(zero_copy_only=False).tolist()
        values = [value if valid else None for value, valid in zip(values, is_valid, strict=True)]
    return values


def _edges(column) -> tuple[pairwise, int, int]:
    """Return (start and end of each list, from 0; position of the first element; number of elements) of a column."""
    offsets = column.offsets.to_numpy()
    return pairwise((offsets - offsets[0]).tolist()), int(offsets[0]), int(offsets[-1] - offsets[0])


CELL_LIMIT = 32_767  # UTF-16 code units of one Excel cell
SHEET_LIMIT = 31  # UTF-16 code units of an Excel sheet name

# Control characters, lone surrogates and characters that XML forbids; also direction overrides and isolates, because
# they reorder the surrounding text (one name can be displayed as another), and right-to-left text does not need them.
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_FORMULA_STARTS = tuple("=+-@＝＋－＠")  # the full-width ones start a formula in East Asian versions of Excel


def plain_text(value) -> str:
    """Return `value` as the text of a cell: control, reordering and unencodable characters escaped, length limited.

    >>> plain_text("a\\x1b[31m\\tb")
    'a\\\\x1b[31m b'
    """
    text = str(value)
    if not text.isprintable():  # most texts are, and need no escapes
        text = _UNREADABLE.sub(_escape, re.sub(r"[\t\n\r]+", " ", text))
    return text if _first_units(text, CELL_LIMIT) == text else _first_units(text, CELL_LIMIT - 1) + "…"


def _first_units(text: str, limit: int) -> str:
    """Return the beginning of `text` of at most `limit` UTF-16 code units, as Excel counts: some characters have two.

    >>> _first_units("abc", 2), _first_units("a𞤀b", 2), _first_units("a𞤀b", 3)
    ('ab', 'a', 'a𞤀')
    """
    if 2 * len(text) <= limit:
        return text
    return text.encode("utf-16-le", "replace")[: 2 * limit].decode("utf-16-le", "ignore")


def formula_safe(value) -> str:
    """Return `plain_text`, after an apostrophe if a spreadsheet that opens the CSV would run it as a formula (OWASP).

    >>> formula_safe("=1+1"), formula_safe("gl-1"), formula_safe(" @SUM(A1)")
    ("'=1+1", 'gl-1', "' @SUM(A1)")
    """
    text = plain_text(value)
    return "'" + text if text.lstrip()[:1] in _FORMULA_STARTS else text


def sheet_names(texts) -> list[str]:
    """Return valid Excel sheet names, unique regardless of case, for `texts` in order.

    >>> sheet_names(["gl", "GL", "a/b", ""])
    ['gl', 'GL (2)', 'a_b', '_']
    """
    names, used = [], {"history"}  # a name that Excel reserves
    for text in texts:
        base = re.sub(r"[\[\]:*?/\\]", "_", plain_text(text)).strip("' ")
        base = _first_units(base, SHEET_LIMIT).rstrip("' ") or "_"
        name, count = base, 1
        while name.casefold() in used:
            count += 1
            suffix = f" ({count})"
            name = _first_units(base, SHEET_LIMIT - len(suffix)) + suffix
        used.add(name.casefold())
        names.append(name)
    return names


def _escape(match: re.Match) -> str:
    point = ord(match.group())
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"


def csv_text(columns: list[str], rows: Iterable[Sequence]) -> str:
    """Return a table as the text of a CSV file; text cells are escaped by `formula_safe`, numbers are unchanged."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([formula_safe(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()


def decimals(number: float, digits: int = 1, *, signed: bool = False) -> str:
    """Return a number with some decimals; a half is rounded away from 0, as in the report and in Excel.

    Without a sign if it is rounded to 0; `signed`: a positive one has a plus.

    >>> decimals(31.25), decimals(-0.5, 0), decimals(-0.04), decimals(3, signed=True), decimals(float("nan"))
    ('31.3', '-1', '0.0', '+3.0', 'nan')
    >>> decimals(2.0**100, 3)  # more digits than decimal numbers have
    '1267650600228229401496703205376.000'
    """
    number = float(number)
    if not math.isfinite(number):
        return f"{number}"
    has_fraction = abs(number) < 2**53
    rounded = Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP) if has_fraction else number
    return ("+" if signed and number > 0 else "") + (f"{rounded:.{digits}f}" if rounded else f"{0:.{digits}f}")


def percent(share: float, digits: int = 1) -> str:
    """Return a share as text for notes and sentences.

    >>> percent(0.3125), percent(0.125, 0)
    ('31.3 %', '13 %')
    """
    return f"{decimals(100 * share, digits)} %"


def format_number(value: float, unit, *, signed: bool = False) -> str:
    """Format a value for text without its unit, shares in %.

    >>> format_number(0.3125, "share"), format_number(1.5, "nats"), format_number(math.inf, "nats")
    ('31.3', '1.500', '∞')
    """
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else "∞" if value > 0 else "-∞"
    factor, digits = _TEXTS.get(unit, (1, 3))
    return decimals(factor * value, digits, signed=signed)


def format_value(value: float, unit) -> str:
    """Format a value for text.

    >>> format_value(0.3125, "share"), format_value(-1.5, "percent"), format_value(1.5, "nats")
    ('31.3%', '-1.5%', '1.500')
    """
    return format_number(value, unit) + ("%" if unit in _TEXTS and math.isfinite(value) else "")


def format_difference(value: float, unit) -> str:
    """Format a difference for text, shares in percentage points.

    >>> format_difference(-0.031, "share"), format_difference(0.5, "nats")
    ('-3.1 points', '+0.500')
    """
    return format_number(value, unit, signed=True) + (" points" if unit == "share" else "")


def p_value_text(p: float) -> str:
    """Format a p-value for text.

    >>> p_value_text(0.0421), p_value_text(1e-9)
    ('p = 0.042', 'p < 0.001')
    """
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def is_finite(value) -> bool:
    """Return whether `value` is a finite number, not None."""
    return value is not None and math.isfinite(value)


def finite_or_none(value: float | None) -> float | None:
    """Return a number as a float; None if it is missing, NaN or infinite."""
    return float(value) if is_finite(value) else None


def to_frame(table: pa.Table) -> "pd.DataFrame":
    """Convert `table` to pandas, with nullable types for integers and booleans."""
    return table.to_pandas(types_mapper=_pandas_type)


def write_csv(path, frame: "pd.DataFrame") -> Path:
    """Write `frame` as UTF-8 CSV, with unrounded numbers, empty missing values, and text escaped by `formula_safe`."""
    import pandas as pd

    safe = frame.rename(columns=formula_safe)
    for position, (_, column) in enumerate(frame.items()):
        if pd.api.types.is_string_dtype(column.dtype) or column.dtype == object:
            texts = {text: formula_safe(text) for text in column.dropna().unique()}
            safe.isetitem(position, column.map(texts))
    with replacing(path) as temporary:
        safe.to_csv(temporary, index=False, encoding="utf-8", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    return Path(path)


def _pandas_type(kind: pa.DataType):
    """Return the nullable pandas type of integers and booleans: one missing seed must not turn the others into 42.0."""
    import pandas as pd

    if pa_types.is_int32(kind):
        return pd.Int32Dtype()
    if pa_types.is_int64(kind):
        return pd.Int64Dtype()
    return pd.BooleanDtype() if pa_types.is_boolean(kind) else None
