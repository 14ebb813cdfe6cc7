"""The grid of a worksheet: runs down, columns across, as positions in the long table; and which values stand out.

Two rules mark values. Where paired standings compare the runs of a column on the same items, those decide. Elsewhere no
test is needed: the best is the highest value (the lowest where lower is better), and a value whose own 95 % interval
holds the best value is not told apart from it. That rule errs on the side of sharing the place less often than
overlapping intervals would.
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


def standing(values, low, high, higher_is_better: bool | None) -> np.ndarray:
    """(R,) of NONE, SHARED or BEST for the values of one column, all arrays (R,), NaN where missing.

    Nothing stands out where neither direction is better, where fewer than two runs have a value, or where all values
    are the same. Equal bests are all BEST. A value without an interval is BEST or NONE.

    >>> standing([0.70, 0.66, 0.50, float("nan")], [0.65, 0.61, 0.45, 0], [0.75, 0.71, 0.55, 1], True).tolist()
    [2, 1, 0, 0]
    """
    values, low, high = (np.asarray(array, dtype=float) for array in (values, low, high))
    marks = np.full(len(values), NONE)
    known = np.isfinite(values)
    if higher_is_better is None or len(np.unique(values[known])) < 2:
        return marks
    best = values[known].max() if higher_is_better else values[known].min()
    marks[known & (low <= best) & (best <= high)] = SHARED
    marks[values == best] = BEST
    return marks


def by_key(standings: list[dict] | None) -> dict[Key, dict]:
    """Rows of the standings by model, evaluation and metric."""
    return {(row["model"], row["evaluation"], row["metric"]): row for row in standings or []}


def judge(keys: list[Key | None], values, marks: np.ndarray, places: dict[Key, dict]) -> tuple[np.ndarray, np.ndarray]:
    """`marks` of one column (R,) as `standing` gave them, mended where a paired test knows better: (marks, paired).

    `keys` says whose value each is (None: no value), `paired` (R,) is True where the mark rests on `places`. A test
    decides only against the best of the whole column: runs asked otherwise than that one (other shots, seed, style)
    were not compared with it, and where the standings name another best they speak of other values.

    >>> places = by_key([
    ...     {"model": "a", "evaluation": "e", "metric": "m", "best": "a", "shares_best": True},
    ...     {"model": "b", "evaluation": "e", "metric": "m", "best": "a", "shares_best": False},
    ... ])
    >>> marks, paired = judge([("a", "e", "m"), ("b", "e", "m")], [0.7, 0.69], np.array([BEST, SHARED]), places)
    >>> marks.tolist(), paired.tolist()
    ([2, 0], [True, True])
    """
    marks, paired = marks.copy(), np.zeros(len(marks), dtype=bool)
    best = {keys[run] for run in np.flatnonzero(marks == BEST)}
    known = np.isfinite(np.asarray(values, dtype=float))
    times = Counter(keys)
    for run in np.flatnonzero(known):
        place = places.get(keys[run])
        if place is None or times[keys[run]] > 1 or (place["best"], *keys[run][1:]) not in best:
            continue
        paired[run] = True
        if marks[run] != BEST:
            marks[run] = SHARED if place["shares_best"] else NONE
    return marks, paired


def near_chance(low, high, chance) -> np.ndarray:
    """(R,) True where the interval holds the chance level: so few items do not show that the model knows anything."""
    low, high, chance = (np.asarray(array, dtype=float) for array in (low, high, chance))
    return (low <= chance) & (chance <= high)


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
