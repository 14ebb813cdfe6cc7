"""From the models' metrics to one long table, and from that to grids of runs × columns.

A *run* is a model as it was asked: model, adapter, revision, shots, seed, style. Two runs are two rows, everywhere.
A *column* is what was measured: task, language, protocol, metric.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.types as arrow

from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError
from vernacular.core.tables import formula_safe
from vernacular.metrics.schema import METRICS

RUN = ["model", "adapter", "shots", "seed", "style", "model_revision"]
COLUMN = ["task", "language", "protocol", "metric"]
_ORDER = ["family_of_models", "is_adapter", *RUN]


@dataclass(frozen=True)
class Grid:
    """Where each value of a long table stands: runs down, columns across.

    runs      R rows, the columns `RUN`
    columns   C rows, the columns `COLUMN` and "label", the task's heading
    cells     (R, C) positions in the long table, -1 where the run has no such value
    """

    runs: pd.DataFrame
    columns: pd.DataFrame
    cells: np.ndarray

    def take(self, series: pd.Series) -> np.ndarray:
        """(R, C) floats of one numeric column of the long table, NaN where there is none."""
        values = series.to_numpy(dtype=float, na_value=np.nan)
        return np.where(self.cells < 0, np.nan, np.append(values, np.nan)[self.cells])


def collect(metrics_tables: list[pa.Table]) -> pd.DataFrame:
    """All models' rows in one long table, unrounded, columns of METRICS in order, missing whole numbers kept missing.

    Sorted by task, language, protocol, category, metric and run, a base before its adapters. Raises ArtifactError if a
    run has one value twice.
    """
    tables = [table.select(METRICS.schema.names).cast(METRICS.schema) for table in metrics_tables]
    merged = pa.concat_tables([METRICS.schema.empty_table(), *tables])
    long = to_frame(merged)
    identity = [*COLUMN, "category", *RUN]
    twice = long.duplicated(identity)
    if twice.any():
        row = long[twice].iloc[0]
        raise ArtifactError(
            f"{row['model']}: two values of {row['metric']} in {row['evaluation']}; were the same results given twice?"
        )
    order = ["task", "language", "protocol", "category", "metric", *_ORDER]
    return _with_order(long).sort_values(order, key=sortable, ignore_index=True)[METRICS.schema.names]


def to_frame(table: pa.Table) -> pd.DataFrame:
    """`table` in pandas, with whole numbers and booleans still so where some are missing."""
    return table.to_pandas(types_mapper=_pandas_type)


def to_arrow(long: pd.DataFrame) -> pa.Table:
    """The long table as `artifacts.write(path, RESULTS, …)` takes it."""
    return pa.Table.from_pandas(long, schema=METRICS.schema, preserve_index=False).replace_schema_metadata(None)


def grid(long: pd.DataFrame, *, by_language: bool = False) -> Grid:
    """Lay the rows over all items (category "") out as runs × columns; a task's headline metrics come first.

    A task's heading names the protocol only if the table holds several protocols of that task. Raises ArtifactError if
    two rows fall into one cell.
    """
    whole = np.flatnonzero((long["category"].fillna("") == "").to_numpy(dtype=bool))
    rows = long.iloc[whole]
    rows = rows.assign(rest=~rows["headline"].fillna(False).astype(bool))
    order = ["language", "task"] if by_language else ["task", "language"]
    runs, row_of = _distinct(_with_order(rows), RUN, _ORDER)
    columns, column_of = _distinct(rows, COLUMN, [*order, "protocol", "rest", "metric"])
    cells = np.full((len(runs), len(columns)), -1)
    cells[row_of, column_of] = whole
    if (cells >= 0).sum() != len(whole):
        raise ArtifactError("a run has two values of one metric in one task and language; see results.csv.")
    several = columns.groupby("task", dropna=False)["protocol"].transform("nunique") > 1
    columns["label"] = columns["task"].where(~several, columns["task"] + " · " + columns["protocol"])
    return Grid(runs, columns, cells)


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """One row per run; a column of values per task-language-metric, the task with its protocol where it has several.

    Rows over all items only; values by category stay in the long table.
    """
    layout = grid(long)
    names = (
        layout.columns["label"].str.replace(" · ", "-")
        + "-"
        + layout.columns["language"]
        + "-"
        + layout.columns["metric"]
    )
    values = pd.DataFrame(layout.take(long["value"]), columns=list(names))
    return pd.concat([layout.runs, values], axis=1)


def write_csv(path, frame: pd.DataFrame) -> Path:
    """Write `frame` as UTF-8 CSV, numbers unrounded, missing values empty, text safe from being read as a formula."""
    safe = frame.rename(columns=formula_safe)
    for position, (_, column) in enumerate(frame.items()):
        if pd.api.types.is_string_dtype(column.dtype) or column.dtype == object:
            texts = {text: formula_safe(text) for text in column.dropna().unique()}
            safe.isetitem(position, column.map(texts))
    with replacing(path) as temporary:
        safe.to_csv(temporary, index=False, encoding="utf-8", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    return Path(path)


def _pandas_type(kind: pa.DataType):
    """Nullable whole numbers and booleans: one missing seed must not turn every other into 42.0."""
    if arrow.is_int32(kind):
        return pd.Int32Dtype()
    if arrow.is_int64(kind):
        return pd.Int64Dtype()
    return pd.BooleanDtype() if arrow.is_boolean(kind) else None


def sortable(column: pd.Series) -> pd.Series:
    """A sort key: missing first (a base stands before its adapters), text whatever its case."""
    if pd.api.types.is_string_dtype(column.dtype):
        text = column.fillna("")
        return text.str.casefold() + "\0" + text  # the second half only so that "A" and "a" have an order
    return column.astype("Float64").fillna(float("-inf"))


def _with_order(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with two columns to sort by, so that a base stands before its adapters whatever their names."""
    return rows.assign(family_of_models=rows["base"].fillna(rows["model"]), is_adapter=rows["base"].notna())


def _distinct(rows: pd.DataFrame, key: list[str], order: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """The distinct values of `key` in `order`, and for each of `rows` the position of its own among them."""
    distinct = rows.drop_duplicates(key).sort_values(order, key=sortable, ignore_index=True)[key]
    position = {values: at for at, values in enumerate(_tuples(distinct))}
    return distinct, np.array([position[values] for values in _tuples(rows[key])], dtype=int)


def _tuples(frame: pd.DataFrame):
    columns = (frame[name].astype(object).where(frame[name].notna(), None) for name in frame.columns)
    return zip(*columns, strict=True)
