"""Spreadsheets: similarity, surprisal, and a leaderboard with the headline metrics of both.

Each has an overview (headline metrics, all languages), a sheet per language, and the provenance. The overview repeats
values of the language sheets, whose cells have the intervals as comments. If models were compared, the leaderboard has
two more sheets: aggregates over tasks, and the comparisons of pairs.
"""

import io
from pathlib import Path

import pandas as pd
from openpyxl import Workbook

from vernacular.core.artifacts import replacing
from vernacular.core.tables import sheet_names
from vernacular.summary.cells import put_text
from vernacular.summary.grid import build_grid, index_rankings
from vernacular.summary.lists import write_comparisons, write_overall
from vernacular.summary.prompts import write_prompts
from vernacular.summary.provenance import write_provenance
from vernacular.summary.sheet import write_grid


def write_similarity(path, long: pd.DataFrame, provenance: dict, *, rankings: list[dict] | None = None) -> Path:
    """Write `similarity_summary.xlsx`: metrics of generated outputs; `long` is the table of `grid.collect`.

    `rankings` (RANKINGS rows) determine which values share the best where they cover the cell; intervals elsewhere.
    """
    return _write(path, "Similarity", long[long["metric_group"] == "similarity"], provenance, rankings, {})


def write_surprisal(path, long: pd.DataFrame, provenance: dict, *, rankings: list[dict] | None = None) -> Path:
    """Write `surprisal_summary.xlsx`: metrics of log-probabilities; arguments as in `write_similarity`."""
    return _write(path, "Surprisal", long[long["metric_group"] == "surprisal"], provenance, rankings, {})


def write_leaderboard(
    path,
    long: pd.DataFrame,
    provenance: dict,
    *,
    rankings: list[dict] | None = None,
    comparisons: list[dict] | None = None,
    overall: list[dict] | None = None,
    prompts: list[dict] | None = None,
) -> Path:
    """Write `leaderboard.xlsx`: the headline metrics of every task; `long` and `rankings` as in `write_similarity`.

    `comparisons` (COMPARISONS rows), `overall` (OVERALL rows) and `prompts` (PROMPTS rows) get a sheet each; None, or
    no prompts: no sheet.
    """
    extra = {}
    if overall is not None:
        extra["overall"] = lambda sheet: write_overall(sheet, overall)
    if comparisons is not None:
        extra["comparisons"] = lambda sheet: write_comparisons(sheet, comparisons)
    if prompts:
        extra["prompts"] = lambda sheet: write_prompts(sheet, prompts)
    return _write(path, "Leaderboard", headline(long), provenance, rankings, extra)


def headline(long: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of headline metrics; if no row is marked, of every metric that has a better direction."""
    marked = long["headline"].fillna(False).to_numpy(dtype=bool)
    return long[marked] if marked.any() else long[long["higher_is_better"].notna()]


def _write(path, title: str, long: pd.DataFrame, provenance: dict, rankings: list[dict] | None, extras: dict) -> Path:
    """Write a workbook; `extras`: name of a sheet between the overview and the languages -> function that fills it."""
    all_items = long[long["category"].fillna("") == ""].reset_index(drop=True)
    rankings_by_key = index_rankings(rankings)
    book = Workbook()
    book.properties.title = f"{title} summary"
    book.properties.creator = "Vernacular"
    languages = sorted(all_items["language"].fillna("").unique())
    # fixed names first, so that no language uses them
    overview, provenance_name, *inner_names = sheet_names(["overview", "provenance", *extras, *languages])
    book.active.title = overview
    headline_rows = headline(all_items).reset_index(drop=True)
    if headline_rows.empty:
        put_text(book.active, 1, 1, f"No {title.lower()} results" + (" to rank." if len(all_items) else "."))
    else:
        layout = build_grid(headline_rows, by_language=True)
        write_grid(
            book.active, headline_rows, layout, levels=["language", "label"], comments=False, rankings=rankings_by_key
        )
    for fill, name in zip(extras.values(), inner_names, strict=False):
        fill(book.create_sheet(name))
    for language, name in zip(languages, inner_names[len(extras) :], strict=True):
        rows = all_items[all_items["language"].fillna("") == language].reset_index(drop=True)
        write_grid(
            book.create_sheet(name), rows, build_grid(rows), levels=["label"], comments=True, rankings=rankings_by_key
        )
    write_provenance(book.create_sheet(provenance_name), all_items, provenance)
    content = io.BytesIO()
    book.save(content)  # on a full disk, an open ZIP file prints a traceback when it is garbage-collected
    with replacing(path) as temporary:
        temporary.write_bytes(content.getvalue())
    return Path(path)
