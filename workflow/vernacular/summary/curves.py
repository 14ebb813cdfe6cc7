"""Worksheets of training curves: statistics of each curve, and which tasks can be trusted.

In other tables, checkpoints have columns of their position in training, and notes on equal weights.
"""

from collections.abc import Callable

import pandas as pd
from openpyxl.worksheet.worksheet import Worksheet

from vernacular.core.metadata import MetricsMetadata
from vernacular.core.model_record import ModelRecord, recorded_model
from vernacular.metrics.schema import POSITION
from vernacular.summary import cells
from vernacular.summary.notes import note
from vernacular.summary.rows import columns_of, write_rows
from vernacular.types import DEFAULT_PROMPT

_CURVES = columns_of(
    "curves",
    category_or_none=lambda row: row["category"] or None,
    missing_or_none=lambda row: row["n_missing"] or None,
)
_TRUST = columns_of("task trust")
_DECIDING = columns_of("deciding metrics", chosen_mark=lambda row: "●" if row["is_chosen"] else None)


def deciding_sheets(rows: list[dict]) -> dict[str, Callable[..., None]]:
    """Return the sheet of DECIDING_METRICS rows with a decision accuracy by its name; {} without any."""
    rows = [row for row in rows if row["decision_accuracy"] is not None]

    def fill(sheet: Worksheet, size: cells.SheetSize = cells.EXCEL) -> None:
        _fill(sheet, _DECIDING, rows, "", size)

    return {"deciding metrics": fill} if rows else {}


def curve_sheets(statistics: list[dict], trust: list[dict], text: str) -> dict[str, Callable[..., None]]:
    """Return sheets of the leaderboard by name, from rows of the curve tables and the sentence on tasks."""
    return {
        "curves": lambda sheet, size=cells.EXCEL: _fill(sheet, _CURVES, statistics, "No curves.", size),
        "task trust": lambda sheet, size=cells.EXCEL: write_trust(sheet, trust, text, size),
    }


def write_trust(sheet: Worksheet, rows: list[dict], text: str, size: cells.SheetSize = cells.EXCEL) -> None:
    """Write TASK_TRUST rows, and below them the sentence on which tasks to look at."""
    sheet, n_rows = _fill(sheet, _TRUST, rows, "No curve statistics.", size)
    if rows and text:
        sheet, number = (sheet, n_rows + 3) if n_rows + 3 <= size.rows else (cells.continued(sheet), 1)
        cells.put_text(sheet, number, 1, text).alignment = cells.TOP_WRAPPED
        sheet.merge_cells(start_row=number, end_row=number, start_column=1, end_column=10)
        sheet.row_dimensions[number].height = 60


def _fill(
    sheet: Worksheet, columns: list, rows: list[dict], message: str, size: cells.SheetSize
) -> tuple[Worksheet, int]:
    """Write the rows, or a message without any; return the last sheet and its number of rows."""
    if not rows:
        cells.put_text(sheet, 1, 1, message)
        return sheet, 0
    has_prompts = any(row["prompt"] != DEFAULT_PROMPT for row in rows)
    shown = [column for column in columns if has_prompts or column.title != "prompt"]
    last, last_rows = write_rows(sheet, shown, rows, 2, size)[-1]
    return last, len(last_rows)


COLUMNS = [name for name, _ in POSITION]


def add_positions(table: pd.DataFrame, checkpoints: dict[str, dict]) -> pd.DataFrame:
    """Return a table with a column `model`, and the columns of `POSITION` added; null for models of no series.

    checkpoints: model -> series, curve, step, tokens, words.
    """
    positions = [checkpoints.get(model, {}) for model in table["model"]]
    columns = {name: [position.get(name) for position in positions] for name in COLUMNS}
    types = {name: object if name in ("series", "curve") else "Int64" for name in COLUMNS}
    return table.assign(**{name: pd.array(values, dtype=types[name]) for name, values in columns.items()})


def equal_weight_notes(models: list[MetricsMetadata], checkpoints: dict[str, dict]) -> list[dict]:
    """Return a note for each set of checkpoints with the same weights: one may be stored under a wrong name."""
    by_weights: dict[tuple, list[str]] = {}
    for metadata in models:
        if metadata.model in checkpoints and (weights := _weights(recorded_model(metadata))):
            by_weights.setdefault(weights, []).append(metadata.model)
    text = "checkpoints with the same weights, which training changes: one may be stored under a wrong name: "
    return [
        note("same weights", text + ", ".join(names), model=names[0]) for names in by_weights.values() if len(names) > 1
    ]


def _weights(record: ModelRecord) -> tuple:
    """Return the hashes of the files with weights, which are the adapter's if there is one."""
    files = record.own_contents.files if record.own_contents else {}
    is_single_file = "." in files
    suffixes = (".safetensors", ".bin")
    hashes = [entry["sha256"] for name, entry in files.items() if is_single_file or name.endswith(suffixes)]
    return tuple(sorted(hashes))
