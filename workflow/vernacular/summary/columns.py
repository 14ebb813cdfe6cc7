"""Columns of a worksheet: which are visible, which are collapsed into an outline, and means over a language.

A sheet shows one metric per evaluation, and a workbook that ranks models one mean per language; a click on the outline
shows the others. A hidden column holds the same values, comments and formats as a visible one.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.tables import sheet_names
from vernacular.summary.grid import Grid

SCREEN_COLUMNS = 16  # that fit a screen next to the names of the models


@dataclass(frozen=True)
class SheetSize:
    """The largest sheet that is written; the rest is on further sheets."""

    rows: int
    columns: int


EXCEL = SheetSize(rows=1_048_576, columns=16_384)


@dataclass(frozen=True)
class MeanColumn:
    """A column of aggregates of the models (OVERALL rows), before the columns of its scope.

    Attributes:
        key: "mean" or "rank"
        scope: a language, or "all"
        rows: (R,) the OVERALL row of each model, None without one
    """

    key: str
    scope: str
    rows: Sequence[dict | None]


@dataclass(frozen=True)
class Columns:
    """Positions of the columns in the sheet, the first of which has the names of the models.

    Attributes:
        numbers: (C,) number in the sheet, from 1, of each column of the grid
        levels: (C,) outline level: 0 is always visible
        hidden: (C,) whether the column is collapsed
        means: number in the sheet -> column of aggregates
    """

    numbers: np.ndarray
    levels: np.ndarray
    hidden: np.ndarray
    means: dict[int, MeanColumn] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return 1 + len(self.numbers) + len(self.means)


def continued(sheet: Worksheet) -> Worksheet:
    """Add a sheet after `sheet` for what does not fit it: "gl (2)" after "gl"."""
    book, title = sheet.parent, re.sub(r" \(\d+\)$", "", sheet.title)
    return book.create_sheet(sheet_names([*book.sheetnames, title])[-1], book.index(sheet) + 1)


def fitting(layout: Grid, arrange: Callable[[Grid], Columns], size: SheetSize) -> list[tuple[Grid, Columns]]:
    """Return the grid with its columns, arranged by `arrange`, in as many parts as it takes to fit sheets of `size`."""
    columns, n_columns = arrange(layout), len(layout.columns)
    if columns.count <= size.columns or n_columns == 1:
        return [(layout, columns)]
    halves = (slice(0, n_columns // 2), slice(n_columns // 2, n_columns))
    return [part for half in halves for part in fitting(layout.with_columns(half), arrange, size)]


def with_headlines(layout: Grid) -> Columns:
    """Return the columns of a sheet of all metrics: those that are not headline metrics are collapsed."""
    levels = np.where(layout.columns["headline"] | layout.columns["is_lead"], 0, 1).astype(int)
    return Columns(np.arange(len(levels)) + 2, levels, levels > 0)


def with_aggregates(layout: Grid, overall: list[dict] | None) -> Columns:
    """Return the columns of an overview: a mean per language, then its evaluations by one metric each.

    A language without a mean has its evaluations at the first level. What does not fit a screen is collapsed.

    Args:
        overall: OVERALL rows; None without aggregates.
    """
    by_scope: dict[str, dict[str, dict]] = {}
    for row in overall or []:
        if row["mean"] is not None:
            by_scope.setdefault(row["scope"], {})[row["model"]] = row
    means, numbers, number = {}, [], 1
    languages = layout.columns["language"].tolist()
    previous = None
    for language in languages:
        scopes = ["all"] if not numbers and language is not None else []
        scopes += [language] if not numbers or language != previous else []
        for scope in scopes:
            rows = [by_scope.get(scope, {}).get(model) for model in layout.models["model"]]
            for key in ("rank", "mean") if scope == "all" else ("mean",):
                if any(rows):
                    number += 1
                    means[number] = MeanColumn(key, scope, rows)
        number += 1
        numbers.append(number)
        previous = language
    has_mean = np.array([language in by_scope for language in languages], dtype=int)
    is_lead = layout.columns["is_lead"].to_numpy(dtype=bool)
    levels = has_mean + ~is_lead
    deepest = next((level for level in (2, 1) if (levels <= level).sum() + len(means) <= SCREEN_COLUMNS), 0)
    return Columns(np.array(numbers, dtype=int), levels, levels > deepest, means)


def set_outline(sheet: Worksheet, columns: Columns) -> None:
    """Group the columns by level, collapse the hidden ones, and put the buttons on the left, above what they expand."""
    sheet.sheet_properties.outlinePr.summaryRight = False
    sheet.sheet_properties.outlinePr.summaryBelow = False
    for number, level, is_hidden in zip(columns.numbers, columns.levels, columns.hidden, strict=True):
        dimension = sheet.column_dimensions[get_column_letter(number)]
        dimension.outlineLevel, dimension.hidden = int(level), bool(is_hidden)
    hidden = {int(number) for number in columns.numbers[columns.hidden]}
    for number in range(1, columns.count + 1):
        if number not in hidden and number + 1 in hidden:
            sheet.column_dimensions[get_column_letter(number)].collapsed = True
