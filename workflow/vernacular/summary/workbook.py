"""The three spreadsheets: similarity, surprisal, and the leaderboard of headline metrics over both.

Each holds an overview (headline metrics, all languages), a sheet per language, and the provenance. The overview repeats
values of the language sheets, whose cells carry the intervals.
"""

from pathlib import Path

import pandas as pd
from openpyxl import Workbook

from vernacular.artifacts import replacing
from vernacular.summary.provenance import write_provenance
from vernacular.summary.sheet import put_text, write_grid
from vernacular.summary.tables import grid
from vernacular.summary.text import sheet_names


def write_similarity(path, long: pd.DataFrame, provenance: dict) -> Path:
    """Write `similarity_summary.xlsx`: metrics of generated answers. `long` as `tables.collect` gives it."""
    return _write(path, "Similarity", long[long["family"] == "similarity"], provenance)


def write_surprisal(path, long: pd.DataFrame, provenance: dict) -> Path:
    """Write `surprisal_summary.xlsx`: metrics of log-probabilities. `long` as `tables.collect` gives it."""
    return _write(path, "Surprisal", long[long["family"] == "surprisal"], provenance)


def write_leaderboard(path, long: pd.DataFrame, provenance: dict) -> Path:
    """Write `leaderboard.xlsx`: the headline metrics of every task. `long` as `tables.collect` gives it."""
    return _write(path, "Leaderboard", headline(long), provenance)


def headline(long: pd.DataFrame) -> pd.DataFrame:
    """The rows of headline metrics; where none is marked so, of every metric that has a better direction."""
    marked = long["headline"].fillna(False).to_numpy(dtype=bool)
    return long[marked] if marked.any() else long[long["higher_is_better"].notna()]


def _write(path, title: str, long: pd.DataFrame, provenance: dict) -> Path:
    whole = long[long["category"].fillna("") == ""].reset_index(drop=True)
    book = Workbook()
    book.properties.title = f"{title} summary"
    book.properties.creator = "Vernacular"
    languages = sorted(whole["language"].fillna("").unique())
    # our own two names come first, so that no language takes them
    overview, last, *names = sheet_names(["overview", "provenance", *languages])
    book.active.title = overview
    best_known = headline(whole).reset_index(drop=True)
    if best_known.empty:
        put_text(book.active, 1, 1, f"No {title.lower()} results" + (" to rank." if len(whole) else "."))
    else:
        layout = grid(best_known, by_language=True)
        write_grid(book.active, best_known, layout, levels=["language", "label"], comments=False)
    for language, name in zip(languages, names, strict=True):
        rows = whole[whole["language"].fillna("") == language].reset_index(drop=True)
        write_grid(book.create_sheet(name), rows, grid(rows), levels=["label"], comments=True)
    write_provenance(book.create_sheet(last), whole, provenance)
    with replacing(path) as temporary:
        book.save(temporary)
    return Path(path)
