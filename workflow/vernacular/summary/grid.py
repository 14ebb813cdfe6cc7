"""Worksheet grid: runs down, columns across, as positions in the long table; and the marks of the best values.

Values are marked by one of two rules. Where paired rankings compare the runs of a column on the same items, the tests
decide. Elsewhere no test is needed: the best is the highest value (the lowest if lower is better), and a value whose
own 95 % interval includes the best value counts as not significantly different. By this rule, fewer values share the
best than with overlapping intervals.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from vernacular.core.errors import ArtifactError
from vernacular.core.tables import to_frame
from vernacular.metrics.schema import METRICS

NONE, SHARED, BEST = 0, 1, 2

Key = tuple[str, str, str]  # model, evaluation, metric


def mark_by_interval(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """Return (R,) marks NONE, SHARED or BEST for the values of one column; all arrays (R,), NaN if missing.

    No value is marked if neither direction is better, if fewer than two runs have a value, or if all values are equal.
    Equal best values are all BEST. A value without an interval is BEST or NONE.

    >>> mark_by_interval([0.70, 0.66, 0.50, float("nan")], [0.65, 0.61, 0.45, 0], [0.75, 0.71, 0.55, 1], True).tolist()
    [2, 1, 0, 0]
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    marks = np.full(len(values), NONE)
    finite = np.isfinite(values)
    if higher_is_better is None or len(np.unique(values[finite])) < 2:
        return marks
    best = values[finite].max() if higher_is_better else values[finite].min()
    marks[finite & (low <= best) & (best <= high)] = SHARED
    marks[values == best] = BEST
    return marks


def index_rankings(rankings: list[dict] | None) -> dict[Key, dict]:
    """Index RANKINGS rows by model, evaluation and metric."""
    return {(row["model"], row["evaluation"], row["metric"]): row for row in rankings or []}


def mark_by_test(
    keys: list[Key | None], values, marks: np.ndarray, rankings: dict[Key, dict]
) -> tuple[np.ndarray, np.ndarray]:
    """Replace the `marks` (R,) of `mark_by_interval` where a paired test is available; return (marks, paired).

    `keys` identifies each value (None: no value); `paired` (R,) is True where the mark comes from `rankings`. A
    test applies only against the best of the entire column: runs with other settings (shots, seed, style) were not
    compared with it, and rankings with another best refer to other values.

    >>> rankings = index_rankings([
    ...     {"model": "a", "evaluation": "e", "metric": "m", "best": "a", "in_best_group": True},
    ...     {"model": "b", "evaluation": "e", "metric": "m", "best": "a", "in_best_group": False},
    ... ])
    >>> keys = [("a", "e", "m"), ("b", "e", "m")]
    >>> marks, paired = mark_by_test(keys, [0.7, 0.69], np.array([BEST, SHARED]), rankings)
    >>> marks.tolist(), paired.tolist()
    ([2, 0], [True, True])
    """
    marks, paired = marks.copy(), np.zeros(len(marks), dtype=bool)
    best = {keys[run] for run in np.flatnonzero(marks == BEST)}
    finite = np.isfinite(np.asarray(values, dtype=float))
    key_counts = Counter(keys)
    for run in np.flatnonzero(finite):
        ranking = rankings.get(keys[run])
        if ranking is None or key_counts[keys[run]] > 1 or (ranking["best"], *keys[run][1:]) not in best:
            continue
        paired[run] = True
        if marks[run] != BEST:
            marks[run] = SHARED if ranking["in_best_group"] else NONE
    return marks, paired


def near_chance(low, high, chance) -> np.ndarray:
    """Return (R,) True if the interval includes the chance level: not distinguishable from chance with these items."""
    low, high, chance = (np.asarray(array, dtype=float) for array in (low, high, chance))
    return (low <= chance) & (chance <= high)


RUN = ["model", "adapter", "shots", "seed", "style", "model_revision"]
COLUMN = ["task", "language", "protocol", "metric"]
_ORDER = ["base_model", "is_adapter", *RUN]


@dataclass(frozen=True)
class Grid:
    """Arrangement of a long table: runs down, columns across.

    Attributes:
        runs: R rows, the columns `RUN`
        columns: C rows, the columns `COLUMN` and "label", the task's heading
        cells: (R, C) positions in the long table, -1 for missing values
    """

    runs: pd.DataFrame
    columns: pd.DataFrame
    cells: np.ndarray

    def take(self, series: pd.Series) -> np.ndarray:
        """Return (R, C) floats of one numeric column of the long table, NaN for missing values."""
        values = series.to_numpy(dtype=float, na_value=np.nan)
        return np.where(self.cells < 0, np.nan, np.append(values, np.nan)[self.cells])


def collect(metrics_tables: list[pa.Table]) -> pd.DataFrame:
    """Concatenate all models' rows to one long table: unrounded, columns of METRICS in order, nullable integers.

    Sorted by task, language, protocol, category, metric and run, a base model before its adapters. Raises ArtifactError
    if a run has two values of one metric.
    """
    tables = [table.select(METRICS.schema.names).cast(METRICS.schema) for table in metrics_tables]
    combined = pa.concat_tables([METRICS.schema.empty_table(), *tables])
    long = to_frame(combined)
    identity = [*COLUMN, "category", *RUN, "prompt"]
    duplicates = long.duplicated(identity)
    if duplicates.any():
        row = long[duplicates].iloc[0]
        raise ArtifactError(
            f"{row['model']}: two values of {row['metric']} in {row['evaluation']}. Specify each metrics file once."
        )
    return sort_rows(long)


def sort_rows(long: pd.DataFrame) -> pd.DataFrame:
    """Sort the long table by task, language, protocol, category, metric and run."""
    sort_columns = ["task", "language", "protocol", "category", "metric", *_ORDER, "prompt"]
    return _with_order(long).sort_values(sort_columns, key=sort_key, ignore_index=True)[METRICS.schema.names]


def to_arrow(long: pd.DataFrame) -> pa.Table:
    """Convert the long table to Arrow, for `artifacts.write(path, RESULTS, …)`."""
    return pa.Table.from_pandas(long, schema=METRICS.schema, preserve_index=False).replace_schema_metadata(None)


def build_grid(long: pd.DataFrame, *, by_language: bool = False) -> Grid:
    """Arrange the rows over all items (category "") as runs × columns; a task's headline metrics come first.

    A task's heading names the protocol only if the table has several protocols of that task. Raises ArtifactError if
    two rows belong to one cell.
    """
    positions = np.flatnonzero((long["category"].fillna("") == "").to_numpy(dtype=bool))
    rows = long.iloc[positions]
    rows = rows.assign(is_secondary=~rows["headline"].fillna(False).astype(bool))
    order = ["language", "task"] if by_language else ["task", "language"]
    runs, row_of = _distinct(_with_order(rows), RUN, _ORDER)
    columns, column_of = _distinct(rows, COLUMN, [*order, "protocol", "is_secondary", "metric"])
    cells = np.full((len(runs), len(columns)), -1)
    cells[row_of, column_of] = positions
    if (cells >= 0).sum() != len(positions):
        raise ArtifactError("two values of one metric for the same run, task and language; see results.csv.")
    has_several_protocols = columns.groupby("task", dropna=False)["protocol"].transform("nunique") > 1
    columns["label"] = columns["task"].where(~has_several_protocols, columns["task"] + " · " + columns["protocol"])
    return Grid(runs, columns, cells)


def wide(long: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run and one column of values per task, language and metric.

    Column names include the protocol if a task has several. Rows over all items only; values by category remain in the
    long table.
    """
    layout = build_grid(long)
    column_names = (
        layout.columns["label"].str.replace(" · ", "-")
        + "-"
        + layout.columns["language"]
        + "-"
        + layout.columns["metric"]
    )
    values = pd.DataFrame(layout.take(long["value"]), columns=list(column_names))
    return pd.concat([layout.runs, values], axis=1)


def sort_key(column: pd.Series) -> pd.Series:
    """Return a sort key: missing values first (a base model precedes its adapters), text case-insensitively."""
    if pd.api.types.is_string_dtype(column.dtype):
        text = column.fillna("")
        return text.str.casefold() + "\0" + text  # the second half orders "A" and "a"
    return column.astype("Float64").fillna(float("-inf"))


def _with_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Add two columns to sort by, so that a base model precedes its adapters whatever their names."""
    return rows.assign(base_model=rows["base"].fillna(rows["model"]), is_adapter=rows["base"].notna())


def _distinct(rows: pd.DataFrame, key: list[str], order: list[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the distinct values of `key` sorted by `order`, and the position of each row's value among them."""
    distinct = rows.drop_duplicates(key).sort_values(order, key=sort_key, ignore_index=True)[key]
    position = {values: index for index, values in enumerate(_tuples(distinct))}
    return distinct, np.array([position[values] for values in _tuples(rows[key])], dtype=int)


def _tuples(frame: pd.DataFrame):
    columns = (frame[column].astype(object).where(frame[column].notna(), None) for column in frame.columns)
    return zip(*columns, strict=True)
