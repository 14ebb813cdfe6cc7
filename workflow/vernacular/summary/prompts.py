"""Means over prompts in the summary: rows of the long table, and the sheet `prompts`.

A mean is one question. The leaderboard holds it in place of the values of the single prompts, which remain in
`results.csv` and in the sheet.
"""

import math

import pandas as pd
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.metadata import note
from vernacular.metrics.metric import display_name
from vernacular.statistics.over_prompts import Components, design_table
from vernacular.summary import cells
from vernacular.summary.grid import sort_rows
from vernacular.summary.rows import columns_of, parts_of, write_rows

_ITEM_MULTIPLES = (0.5, 1, 2, 4)  # number of items of a design, as multiples of the evaluated one


def add_prompt_means(long: pd.DataFrame, prompt_rows: list[dict]) -> pd.DataFrame:
    """Return the long table with a row for each mean over prompts of a model (PROMPTS rows without a baseline).

    The row is that of the first prompt, with `prompt` = "all" and the mean with its interval. `n_flagged` is the
    highest number under one prompt.
    """
    by_key = {key: position for position, key in enumerate(_keys(long))}
    rows = []
    for prompt_row in prompt_rows:
        runs = [by_key.get((prompt_row["model"], run, prompt_row["metric"])) for run in prompt_row["evaluations"]]
        if prompt_row["baseline"] is not None or None in runs:
            continue
        row = long.iloc[runs[0]].to_dict()
        row |= {name: prompt_row[name] for name in ("evaluation", "seed", "prompt", "value", "ci_low", "ci_high", "n")}
        counted = f"mean over {prompt_row['n_prompts']} prompts"
        signature = " | ".join(part for part in (row["signature"], counted, prompt_row["question"]) if part)
        row |= {"n_flagged": long["n_flagged"].iloc[runs].max(), "n_ties": None, "signature": signature}
        rows.append(row)
    if not rows:
        return long
    means = pd.DataFrame(rows).astype(long.dtypes)
    return sort_rows(pd.concat([long, means], ignore_index=True))


def standard_errors(long: pd.DataFrame, prompt_rows: list[dict]) -> pd.DataFrame:
    """Return the long table with the column `se`, known for means over prompts, for exports that lack intervals."""
    known = {(row["model"], row["evaluation"], row["metric"]): row["se"] for row in prompt_rows if not row["baseline"]}
    return long.assign(se=[known.get(key, math.nan) for key in _keys(long)])


def prompt_notes(prompt_rows: list[dict]) -> list[dict]:
    """Return a note for each model and group whose mean has no interval for other prompts, or is not compared."""
    notes: dict[tuple, dict] = {}
    for row in prompt_rows:
        if row["note"] and row["headline"]:
            names = {name: row[name] for name in ("model", "evaluation")}
            notes[*names.values(), row["note"]] = note("prompts", row["note"], **names, count=row["n_prompts"])
    return list(notes.values())


def _keys(long: pd.DataFrame) -> list[tuple]:
    """Return (model, evaluation, metric) of rows over all items; None for the others."""
    columns = zip(long["model"], long["evaluation"], long["metric"], long["category"].fillna(""), strict=True)
    return [None if category else (model, evaluation, metric) for model, evaluation, metric, category in columns]


def write_prompts(sheet: Worksheet, prompt_rows: list[dict], size: cells.SheetSize = cells.EXCEL) -> None:
    """Write the means over prompts of headline metrics, and below them the standard errors of other designs."""
    rows = [row for row in prompt_rows if row["headline"]]
    columns = columns_of("prompts", metric_name=lambda row: display_name(row["metric"]))
    last, last_rows = write_rows(sheet, columns, rows, 2, size)[-1]
    _write_designs(last, rows, len(last_rows) + 4, size)


def _write_designs(sheet: Worksheet, rows: list[dict], start: int, size: cells.SheetSize) -> None:
    """Write the standard error that other numbers of items and prompts would give, per model and metric."""
    titles = ["model", "task", "language", "metric", "items", "prompts", "SE of the mean", "smallest difference"]
    lines = _designs(rows)
    if start + 1 + len(lines) > size.rows:
        sheet, start = cells.continued(sheet), 1
    for part, part_lines in parts_of(sheet, lines, size, n_headers=2):
        cells.put_text(
            part,
            start,
            1,
            "Other designs, by the components above; differences with 1 or 2 prompts hold for these prompts",
        ).font = cells.TITLE
        for column, title in enumerate(titles, 1):
            cells.style_header(cells.put_text(part, start + 1, column, title))
        for line, (texts, counts, numbers, unit) in enumerate(part_lines, start + 2):
            for column, text in enumerate(texts, 1):
                cells.put_text(part, line, column, text)
            for column, number in enumerate(counts, 5):
                cells.put_number(part, line, column, number)
            for column, number in enumerate(numbers, 7):
                if math.isfinite(number):
                    cells.put_number(part, line, column, number).number_format = cells.number_format(unit)


def _designs(rows: list[dict]) -> list[tuple[list, tuple, tuple, str]]:
    """Return texts, counts, standard errors and their unit of each line."""
    lines = []
    differences = {(row["baseline"], row["evaluation"], row["metric"]): row for row in rows if row["baseline"]}
    for row in rows:
        if row["baseline"] or row["variance_items"] is None:
            continue
        difference = differences.get((row["model"], row["evaluation"], row["metric"]))
        counts = [max(2, round(times * row["n_clusters"])) for times in _ITEM_MULTIPLES]
        for design in design_table(component_values(row), component_values(difference), counts):
            n_items = round(design.clusters * row["n"] / row["n_clusters"])
            texts = [row["model"], row["task"], row["language"], display_name(row["metric"])]
            numbers = (design.se, design.smallest_difference)
            lines.append((texts, (n_items, design.prompts), numbers, row["unit"]))
    return lines


def component_values(row: dict | None) -> Components | None:
    """Return the components of a PROMPTS row; None without a row, or without components."""
    if row is None or row["variance_items"] is None:
        return None
    variances = {(0,): "variance_items", (1,): "variance_prompts", (0, 1): "variance_items_prompts"}
    return Components((row["n_clusters"], row["n_prompts"]), {key: row[name] for key, name in variances.items()})
