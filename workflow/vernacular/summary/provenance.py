"""Provenance sheet: legend, tasks, models, datasets and metrics, and the spread between few-shot seeds."""

import math
from collections.abc import Iterable

import pandas as pd
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.metadata import MetricsMetadata
from vernacular.summary import cells
from vernacular.summary.grid import COLUMN, MODEL, Headings, sort_key
from vernacular.summary.rows import parts_of
from vernacular.summary.sheet import LEGEND
from vernacular.types import DEFAULT_PROMPT

_WIDTHS = {1: 24, 2: 20, 3: 30, 4: 14, 5: 42, 8: 24, 10: 40}  # of columns with longer texts; one page across
_WIDTH = 11
_DERIVED_SECTIONS = {  # section: columns of the long table whose distinct rows it lists
    "models": ["model", "base", "adapter", "model_revision"],
    "datasets": ["task", "language", "dataset_revision"],
    "metrics": ["metric", "unit", "higher_is_better", "metric_group", "signature"],
}


def write_provenance(
    sheet: Worksheet, long: pd.DataFrame, provenance: dict, headings: Headings, size: cells.SheetSize = cells.EXCEL
) -> None:
    """Write the legend, the tasks with their notes, sections derived from `long` (models, datasets, metrics, seeds) and
    `provenance` to `sheet`.

    A value of `provenance` may be one value, a dict (a row per key) or a list of dicts (a table); deeper values are
    written as text.
    """
    tasks = sorted(task for task in long["task"].unique() if not pd.isna(task))
    titles = [
        {"task": task, "title": headings.full_titles.get(task), "note": headings.notes.get(task)} for task in tasks
    ]
    sections = {"legend": LEGEND, "tasks": titles}
    for title, columns in _DERIVED_SECTIONS.items():
        rows = long[columns].drop_duplicates().sort_values(columns, key=sort_key)
        sections[title] = rows.to_dict("records")
    spread = seed_spread(long)
    if not spread.empty:
        unvaried = [] if (spread["prompt"] != DEFAULT_PROMPT).any() else ["prompt"]
        sections["spread between few-shot seeds"] = spread.drop(columns=unvaried).to_dict("records")
    lines: list = []
    for title, content in sections.items():
        lines += [title, *_section_lines(content), []]
    n_printed = len(lines)  # the sources of items and the notes are long: they are not printed
    for title, content in provenance.items():
        lines += [title, *_section_lines(content), []]
    for part, part_lines in parts_of(sheet, lines[:-1], size, n_headers=0):
        for row, line in enumerate(part_lines, 1):
            if isinstance(line, str):
                cells.put_text(part, row, 1, line).font = cells.TITLE
                continue
            if len(line) == 1:
                part.merge_cells(start_row=row, end_row=row, start_column=1, end_column=len(_WIDTHS))
            for column, (text, bold) in enumerate(line, 1):
                cell = _put_value(part, row, column, text)
                cell.alignment = cells.TOP_WRAPPED
                if bold:
                    cell.font = Font(name="Calibri", bold=True)
                if isinstance(cell.value, str):
                    width = sum(_WIDTHS.values()) if len(line) == 1 else _WIDTHS.get(column, _WIDTH)
                    dimension = part.row_dimensions[row]
                    dimension.height = max(dimension.height or 0, cells.wrapped_height(cell.value, width))
        for column in range(1, part.max_column + 1):
            part.column_dimensions[get_column_letter(column)].width = _WIDTHS.get(column, _WIDTH)
        cells.set_print(part, n_rows=min(max(n_printed, 1), len(part_lines)) or None)
        n_printed -= len(part_lines)


def _section_lines(content):
    """Return the lines of one section, as (value, bold) cells."""
    if isinstance(content, dict):
        return [[(key, False), (value, False)] for key, value in content.items()]
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        columns = list(dict.fromkeys(column for row in content for column in row))
        return [
            [(column, True) for column in columns],
            *([(row.get(column), False) for column in columns] for row in content),
        ]
    values = content if isinstance(content, list) else [content]
    return [[(value, False)] for value in values]


def _put_value(sheet: Worksheet, row: int, column: int, value):
    if value is None or (not isinstance(value, dict | list) and pd.isna(value)):
        return sheet.cell(row, column)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return sheet.cell(row, column, value)
    return cells.put_text(sheet, row, column, value)


_GROUP_COLUMNS = [*MODEL, *(name for name in COLUMN if name != "seed")]
_SEED_COLUMNS = [*_GROUP_COLUMNS, "seeds", "n_seeds", "mean", "sd", "lowest", "highest"]


def seed_spread(long: pd.DataFrame) -> pd.DataFrame:
    """Return one row per value that was measured with several seeds, over all items; empty if no seed was varied.

    `sd` is the sample standard deviation (n - 1) between seeds, a rough estimate with two or three seeds. `n_seeds` is
    the number of seeds that gave a value; `mean`, `lowest` and `highest` are over those.
    """
    all_items = long[(long["category"].fillna("") == "") & long["value"].notna()]
    if all_items.empty:
        return pd.DataFrame(columns=_SEED_COLUMNS)
    groups = all_items.sort_values("seed").groupby(_GROUP_COLUMNS, dropna=False, sort=True)
    spread = groups.agg(
        seeds=("seed", lambda seeds: " ".join(map(str, seeds))),
        n_seeds=("seed", "nunique"),
        mean=("value", "mean"),
        sd=("value", "std"),
        lowest=("value", "min"),
        highest=("value", "max"),
    )
    return spread[spread["n_seeds"] > 1].reset_index()


def dataset_sources(models: Iterable[MetricsMetadata]) -> list[dict]:
    """Return the source of the items by task, language and limit: repository, commit, hash, license, counts."""
    sources = {}
    for results in (results for metadata in models for results in metadata.evaluations.values()):
        if dataset := results.dataset:
            source = dataset.source
            sources[dataset.task, dataset.language, dataset.limit] = {
                **{name: getattr(dataset, name) for name in ("task", "language", "limit")},
                "kind": source.kind,
                "from": source.repository or source.url or source.file or source.kind,
                **{name: getattr(source, name) for name in ("split", "revision", "sha256", "license")},
                "citation": dataset.citation,
                "rows read": dataset.rows.read,
                "items": dataset.rows.evaluated,
            }
    return list(sources.values())
