"""Arrow tables as rows, rows as tables, and texts that are safe in a cell of a CSV file or a spreadsheet."""

import itertools
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.types as kinds

_ROWS_AT_A_TIME = 500


def rows_of(table: pa.Table) -> list[dict]:
    """The rows of `table` as dicts, lists as lists, maps as dicts, null as None."""
    columns = [values_of(table[name]) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: pa.Array | pa.ChunkedArray) -> list:
    """The values of a column as Python objects.

    >>> values_of(pa.array([[1.5, None], None, []]))
    [[1.5, None], None, []]
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in values_of(chunk)]
    kind = column.type
    if kinds.is_map(kind):
        keys, items = values_of(column.keys), values_of(column.items)
        found = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in _edges(column)]
    elif kinds.is_list(kind):
        inside = values_of(column.values)
        found = [inside[a:b] for a, b in _edges(column)]
    elif kinds.is_integer(kind) or kinds.is_floating(kind):  # numpy knows no missing whole number
        found = column.fill_null(0).to_numpy(zero_copy_only=False).tolist()
    elif kinds.is_string(kind) or kinds.is_boolean(kind):
        return column.to_numpy(zero_copy_only=False).tolist()
    else:
        return column.to_pylist()
    if column.null_count:
        there = column.is_valid().to_numpy(zero_copy_only=False).tolist()
        found = [value if known else None for value, known in zip(found, there, strict=True)]
    return found


def _edges(column) -> pairwise:
    return pairwise(column.offsets.to_numpy().tolist())


def iter_rows(table: pa.Table) -> Iterator[dict]:
    """Yield the rows of `table` as dicts; few exist at a time."""
    for start in range(0, table.num_rows, _ROWS_AT_A_TIME):
        yield from table.slice(start, _ROWS_AT_A_TIME).to_pylist()


def rows_to_table(rows: Iterator[dict], schema: pa.Schema) -> pa.Table:
    """Return `rows` as a table of that schema; few exist as Python objects at a time."""
    parts = [schema.empty_table()]
    while some := list(itertools.islice(rows, _ROWS_AT_A_TIME)):
        parts.append(pa.Table.from_pylist(some, schema=schema))
    return pa.concat_tables(parts)
