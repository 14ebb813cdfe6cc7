"""Table for a paper: a row per model, a column per evaluation, intervals or significance marks, and a caption."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vernacular.core.errors import DataError, suggest
from vernacular.metrics.metric import display_name
from vernacular.statistics.paired import ALPHA
from vernacular.summary import marks
from vernacular.summary.grid import Grid, build_grid
from vernacular.summary.headings import Headings

_UNITS = {"share": "%", "percent": "%", "score": "", "cosine": ""}  # of the numbers in the table, by unit of the values
_FACTORS, _DIGITS = {"share": 100}, {"share": 1, "percent": 1}


@dataclass(frozen=True)
class Cell:
    """A value as text, with its interval (None: not shown) and mark (NONE, SHARED or BEST)."""

    text: str
    interval: tuple[str, str] | None = None
    mark: int = marks.NONE


@dataclass(frozen=True)
class PaperTable:
    """Texts of a table, not escaped.

    Attributes:
        headings: rows of C headings: language, task, setting, and the metric where columns differ in it
        models: R names
        cells: R rows of C cells; None without a value
        caption: what the numbers are
    """

    headings: list[list[str]]
    models: list[str]
    cells: list[list[Cell | None]]
    caption: str


def choose(long: pd.DataFrame, column: str, names: Sequence[str] | None, option: str) -> pd.DataFrame:
    """Return the rows of `long` over all items whose `column` is one of `names`; None: all of them.

    Raises:
        DataError: A name has no results.
    """
    if names is None:
        return long
    available = long[column].dropna().unique()
    for name in names:
        if name not in available:
            raise DataError(f'{option}: no results of "{name}" in this selection.{suggest(name, available)}')
    return long[long[column].isin(names)]


def make_table(
    long: pd.DataFrame,
    headings: Headings,
    rankings: Iterable[dict],
    *,
    models: Sequence[str],
    metrics: Sequence[str] | None = None,
    intervals: bool = False,
    tests: Mapping[tuple[str, str], Iterable[str]] | None = None,
) -> PaperTable:
    """Return the table of a selection of the long table.

    Args:
        long: Rows of `grid.collect`, over all items.
        rankings: RANKINGS rows, which determine the values that do not differ significantly from the best.
        models: Names in the order of the rows.
        metrics: Metrics to show; None: for each evaluation the headline metric that represents it.
        intervals: Show intervals instead of significance marks.
        tests: Names of the tests by (evaluation, metric), as far as known.

    Raises:
        DataError: Nothing is selected.
    """
    rankings = list(rankings)
    order: dict[tuple[str, str], int] = {}
    for row in rankings:
        order.setdefault((row["evaluation"], row["metric"]), len(order))
    long = long[long["category"].fillna("") == ""]
    long = (long[long["headline"].fillna(False).astype(bool)] if metrics is None else long).reset_index(drop=True)
    layout = build_grid(long, headings, by_language=True, metric_order=order)
    shown = layout.columns["is_lead"] if metrics is None else layout.columns["metric"].isin(metrics)
    positions = np.flatnonzero(shown.to_numpy(dtype=bool))
    if not len(positions) or not len(layout.models):
        raise DataError("no headline metric in this selection; choose others with --metrics.")
    rows = {model: index for index, model in enumerate(layout.models["model"])}
    row_order = [rows[model] for model in models if model in rows]
    layout = Grid(layout.models.iloc[row_order], layout.columns.iloc[positions], layout.cells[row_order][:, positions])
    columns = [_column(long, layout, i, marks.index_rankings(rankings), intervals) for i in range(len(positions))]
    table_headings = [layout.columns[key].tolist() for key in ("language", "title", "setting")]
    table_headings[2] = [setting.replace(" · ", ", ") for setting in table_headings[2]]
    if layout.columns["metric"].nunique() > 1:
        table_headings.append([_metric_heading(*column[2:]) for column in columns])
    cells = [list(row) for row in zip(*(column[0] for column in columns), strict=True)]
    caption = _caption(long, layout, [column[1] for column in columns], intervals, tests or {})
    return PaperTable(table_headings, layout.models["label"].tolist(), cells, caption)


def _column(long: pd.DataFrame, layout: Grid, position: int, rankings: Mapping, intervals: bool) -> tuple:
    """Return the cells of a column, whether tests cover it (None: no value is best), its metric, unit and direction."""
    positions = layout.cells[:, position]
    rows = [None if cell < 0 else long.iloc[cell] for cell in positions]
    first = next(row for row in rows if row is not None)
    value, low, high = (layout.take(long[name])[:, position] for name in ("value", "ci_low", "ci_high"))
    direction = None if pd.isna(first["higher_is_better"]) else bool(first["higher_is_better"])
    without_intervals = np.full(len(value), np.nan)
    column_marks = marks.mark_by_interval(value, without_intervals, without_intervals, direction)
    keys = [None if row is None else (row["model"], row["evaluation"], row["metric"]) for row in rows]
    tested_marks, paired = marks.mark_by_test(keys, value, column_marks, rankings)
    has_best = bool((column_marks == marks.BEST).any())  # not if all values are equal
    is_tested = bool(paired[np.isfinite(value)].all()) if has_best else None
    if is_tested and not intervals:
        column_marks = tested_marks
    cells = []
    for index, row in enumerate(rows):
        if row is None:
            cells.append(None)
            continue
        has_interval = intervals and np.isfinite(low[index]) and np.isfinite(high[index])
        bounds = tuple(_number(bound[index], first["unit"]) for bound in (low, high)) if has_interval else None
        cells.append(Cell(_number(value[index], first["unit"]), bounds, int(column_marks[index])))
    return cells, is_tested, first["metric"], first["unit"], direction


def _number(value: float, unit) -> str:
    """Format a value as in the table: shares and percentages in % with one digit, others with three."""
    if not np.isfinite(value):
        return "n/a" if np.isnan(value) else "∞" if value > 0 else "-∞"
    text = f"{value * _FACTORS.get(unit, 1):.{_DIGITS.get(unit, 3)}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _metric_heading(metric: str, unit, direction: bool | None) -> str:
    arrow = {True: "↑", False: "↓", None: ""}[direction]
    return f"{display_name(metric)} {arrow}".strip()


def _caption(
    long: pd.DataFrame,
    layout: Grid,
    tested: list[bool | None],
    intervals: bool,
    tests: Mapping[tuple[str, str], Iterable[str]],
) -> str:
    """Describe metrics, units, numbers of items, and what the marks mean."""
    examples = [long.iloc[column.max()] for column in layout.cells.T]
    sentences = [f"{_describe_metrics(examples)}.", f"{_describe_items(long, layout)}."]
    has_best = any(is_tested is not None for is_tested in tested)
    best = ["Bold: best value of the column."] if has_best else []
    if intervals:
        return " ".join([*sentences, "In brackets: 95 % intervals over items.", *best])
    sentences += best
    if any(tested):
        keys = [(row["evaluation"], row["metric"]) for row in examples]
        names = [name for key, is_tested in zip(keys, tested, strict=True) if is_tested for name in tests.get(key, ())]
        test = f" ({'; '.join(dict.fromkeys(names))})" if names else ""
        sentences.append(
            f"†: not significantly different from the best: paired tests on the same items{test}, Holm correction over "
            f"all compared models of the column, significance level {ALPHA}."
        )
    if False in tested:
        columns = layout.columns[["language", "title", "setting"]].itertuples(index=False)
        untested = [
            f"{language} {title}, {setting}".replace(" · ", ", ")
            for (language, title, setting), is_tested in zip(columns, tested, strict=True)
            if is_tested is False
        ]
        suffix = f": {'; '.join(dict.fromkeys(untested))}" if any(tested) else ""
        sentences.append(f"Differences were not tested{suffix}.")
    return " ".join(sentences)


def _describe_metrics(examples: list[pd.Series]) -> str:
    """Return the metrics with unit and direction: "Accuracy in % (higher is better)"."""
    texts = []
    for row in examples:
        unit = "" if pd.isna(row["unit"]) else _UNITS.get(row["unit"], row["unit"])
        direction = row["higher_is_better"]
        better = "" if pd.isna(direction) else f" ({'higher' if direction else 'lower'} is better)"
        texts.append(f"{display_name(row['metric'])}{f' in {unit}' if unit else ''}{better}")
    return "; ".join(dict.fromkeys(texts))


def _describe_items(long: pd.DataFrame, layout: Grid) -> str:
    """Return the number of items: "n = 500 items", or by dataset where it differs."""
    counts: dict[str, set[int]] = {}
    for position, (language, title) in enumerate(zip(layout.columns["language"], layout.columns["title"], strict=True)):
        cells = layout.cells[:, position]
        counts.setdefault(f"{language} {title}", set()).update(long["n"].iloc[cells[cells >= 0]].tolist())
    ranges = {name: f"{min(n)}" if len(n) == 1 else f"{min(n)}–{max(n)}" for name, n in counts.items()}
    if len(set(ranges.values())) == 1:
        each = " in each column" if len(ranges) > 1 else ""
        return f"n = {next(iter(ranges.values()))} items{each}"
    return "Items: " + "; ".join(f"{name} n = {n}" for name, n in ranges.items())
