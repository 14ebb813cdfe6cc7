"""Spreadsheets: similarity, surprisal, and a leaderboard with the headline metrics of both.

Each has an overview (headline metrics, all languages), a sheet per language, and the provenance: legend, tasks, models,
datasets and metrics, and the spread between few-shot seeds. The overview repeats
values of the language sheets, whose cells have the intervals as comments; that of the leaderboard shows a mean per
language and ranks the models by their mean over all languages. If models were compared, the leaderboard has two more
sheets: aggregates over tasks, and the comparisons of pairs.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.metadata import FAILURE, MetricsMetadata
from vernacular.core.tables import sheet_names
from vernacular.metrics.schema import ABOUT_SAMPLES, is_from_samples
from vernacular.statistics.significance import index_rankings
from vernacular.summary import cells
from vernacular.summary.grid import COLUMN, MODEL, Grid, Headings, build_grid, make_headings, sorted_by
from vernacular.summary.lists import add_codes, write_comparisons, write_diagnoses, write_languages, write_overall
from vernacular.summary.prompts import write_prompts
from vernacular.summary.rows import parts_of
from vernacular.summary.sheet import LEGEND, write_grid
from vernacular.types import DEFAULT_PROMPT


def write_group(path, long: pd.DataFrame, provenance: dict, *, group: str, **arguments) -> Path:
    """Write the metrics of generated outputs ("similarity") or of log-probabilities ("surprisal"), as in `_write`."""
    return _write(path, group.capitalize(), long, long["metric_group"] == group, provenance, **arguments)


def write_leaderboard(
    path,
    long: pd.DataFrame,
    provenance: dict,
    *,
    comparisons: list[dict] | None = None,
    overall: list[dict] | None = None,
    prompts: list[dict] | None = None,
    diagnoses: list[dict] | None = None,
    languages: list[dict] | None = None,
    extra_sheets: dict | None = None,
    **arguments,
) -> Path:
    """Write `leaderboard.xlsx`: the headline metrics of every task; other arguments as in `_write`.

    `comparisons` (COMPARISONS rows), `overall` (OVERALL rows) and `prompts` (PROMPTS rows) get a sheet each; None, or
    no prompts: no sheet. Without `overall`, there are no means. `diagnoses` (see `diagnosis_rows`) get a sheet, and a
    column in the overview; `languages` (see `language_rows`) a sheet.
    `extra_sheets`: name of a further sheet -> function that fills it, and those that follow if it is full.
    """
    extra = dict(extra_sheets or {})
    if overall is not None:
        extra["overall"] = lambda sheet, size: write_overall(sheet, overall, size)
    if comparisons is not None:
        extra["comparisons"] = lambda sheet, size: write_comparisons(sheet, comparisons, size)
    if prompts:
        extra["prompts"] = lambda sheet, size: write_prompts(sheet, prompts, size)
    if diagnoses:
        extra["diagnoses"] = lambda sheet, size: write_diagnoses(sheet, diagnoses, size)
    if languages:
        extra["languages"] = lambda sheet, size: write_languages(sheet, languages, size)
    arguments |= {"extras": extra, "overall": overall, "diagnoses": diagnoses}
    return _write(path, "Leaderboard", long, is_headline(long), provenance, **arguments)


def is_headline(long: pd.DataFrame) -> pd.Series:
    """Return which rows are of headline metrics; if none is, those of every metric that has a better direction."""
    marked = long["headline"].fillna(False).astype(bool)
    return marked if marked.any() else long["higher_is_better"].notna()


def _write(
    path,
    title: str,
    long: pd.DataFrame,
    is_shown: pd.Series,
    provenance: dict,
    *,
    rankings: list[dict] | None = None,
    headings: Headings | None = None,
    size: cells.SheetSize = cells.EXCEL,
    extras: dict | None = None,
    overall: list[dict] | None = None,
    diagnoses: list[dict] | None = None,
) -> Path:
    """Write a workbook.

    Args:
        long: The table of `grid.combine_tables`, of which the rows `is_shown` are written.
        rankings: RANKINGS rows, which determine the values that do not differ significantly from the best.
        headings: Names of models, tasks and evaluations; by default those of `long`.
        size: The largest sheet; what does not fit it is on further sheets, "gl (2)".
        extras: Name of a sheet between the overview and the languages -> function that fills it.
    """
    headings, long = headings or make_headings(long, {}), long[is_shown]
    extras = extras or {}
    all_items = long[long["category"].fillna("") == ""].reset_index(drop=True)
    order: dict[tuple[str, str], int] = {}  # the metrics of an evaluation, in the order of its protocol
    for row in rankings or []:
        order.setdefault((row["evaluation"], row["metric"]), len(order))
    failures = {(row["model"], row["evaluation"]) for row in diagnoses or () if row["severity"] == FAILURE}
    common = {"rankings": index_rankings(rankings), "headings": headings, "failures": failures}
    book = cells.new_book(f"{title} summary")
    languages = sorted(all_items["language"].fillna("").unique())
    # fixed names first, so that no language uses them
    overview, provenance_name, *inner_names = sheet_names(["overview", "provenance", *extras, *languages])
    book.active.title = overview
    headline_rows = all_items[is_headline(all_items)].reset_index(drop=True)
    if headline_rows.empty:
        cells.put_text(book.active, 1, 1, f"No {title.lower()} results" + (" to rank." if len(all_items) else "."))
    else:
        layout = build_grid(headline_rows, headings, by_language=True, metric_order=order)
        layout = _best_first(layout, overall or [])
        parts = cells.fitting(layout, lambda part: cells.with_aggregates(part, overall), size)
        levels = ["language", "title", "setting"]
        _write_grids(book.active, headline_rows, parts, levels=levels, comments=False, **common)
        if all_items["dataset_revision"].map(is_from_samples).any():
            cells.put_text(book.active, len(levels) + len(layout.models) + 3, 1, ABOUT_SAMPLES)
        if diagnoses and parts[0][1].count < size.columns:
            models = layout.models["model"].tolist()
            add_codes(book.active, models, diagnoses, len(levels) + 1, parts[0][1].count + 1)
    for fill, name in zip(extras.values(), inner_names, strict=False):
        fill(book.create_sheet(name), size)
    for language, name in zip(languages, inner_names[len(extras) :], strict=True):
        rows = all_items[all_items["language"].fillna("") == language].reset_index(drop=True)
        parts = cells.fitting(build_grid(rows, headings, metric_order=order), cells.with_headlines, size)
        sheet, levels = book.create_sheet(name), ["title", "setting"]
        _write_grids(sheet, rows, parts, levels=levels, comments=True, **common)
    write_provenance(book.create_sheet(provenance_name), all_items, provenance, headings, size)
    return cells.save(book, path)


def _write_grids(sheet: Worksheet, rows: pd.DataFrame, parts: list[tuple[Grid, cells.Columns]], **arguments) -> None:
    """Write the parts of a grid to `sheet` and the sheets that continue it."""
    for number, (layout, columns) in enumerate(parts):
        sheet = cells.continued(sheet) if number else sheet
        write_grid(sheet, rows, layout, columns, **arguments)


def _best_first(layout: Grid, overall: list[dict]) -> Grid:
    """Order the models by rank and mean over all languages; those without a mean are last."""
    keys = {
        row["model"]: (row["rank"] or len(overall), -row["mean"])
        for row in overall
        if row["scope"] == "all" and row["mean"] is not None
    }
    last = (len(overall) + 1, 0.0)
    models = layout.models["model"].tolist()
    return layout.with_models(sorted(range(len(models)), key=lambda index: keys.get(models[index], last)))


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
        rows = sorted_by(long[columns].drop_duplicates(), columns)
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
