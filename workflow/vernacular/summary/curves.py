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
from vernacular.summary.rows import METRIC, SETTING_COLUMNS, Column, write_rows
from vernacular.types import DEFAULT_PROMPT

_EVALUATION = [*SETTING_COLUMNS, Column("prompt", "prompt", 12)]
_COUNT = "#,##0"

_CURVES = [
    Column("curve", "curve", 24, "a series, or a phase of one"),
    *_EVALUATION,
    Column("category", lambda row: row["category"] or None, 16, "empty: all items"),
    METRIC,
    Column("checkpoints", "n_checkpoints", 12, "with a value", "0"),
    Column("missing", lambda row: row["n_missing"] or None, 9, "checkpoints without a value", "0"),
    Column("axis", "axis", 8, "unit of the positions in this row"),
    Column("last", "last", 9, "value of the last checkpoint", "unit"),
    Column("low", "last_low", 9, "95 % interval of the last value", "unit"),
    Column("high", "last_high", 9, "95 % interval of the last value", "unit"),
    Column("at", "last_x", 11, "position of the last checkpoint", _COUNT),
    Column(
        "best", "best", 9, "value of the best checkpoint, chosen on the same items: optimistic, see the next", "unit"
    ),
    Column("optimism", "best_optimism", 10, "by how much choosing the best checkpoint overstates it", "difference"),
    Column("best at", "best_x", 11, "position of the best checkpoint", _COUNT),
    Column("forgetting", "forgetting", 11, "how much worse the last checkpoint is than the best", "unit"),
    Column("slope", "slope", 10, "of the last third, per 1,000 steps or 10^9 tokens or words", "difference"),
    Column("slope low", "slope_low", 10, "95 % interval", "difference"),
    Column("slope high", "slope_high", 10, "95 % interval", "difference"),
    Column("monotonicity", "monotonicity", 13, "Spearman's correlation of position and value", "0.00"),
    Column("noise", "noise", 9, "standard deviation of the last five checkpoints", "unit"),
    Column("above chance since", "above_chance_since", 12, "every later interval is above chance", _COUNT),
    Column("50 % at", "learned_50", 11, "first checkpoint halfway from chance to the last value", _COUNT),
    Column("90 % at", "learned_90", 11, "first checkpoint at 90 % of the way from chance to the last value", _COUNT),
    Column("90 % from", "learned_90_stay", 11, "all later checkpoints are at 90 %", _COUNT),
    Column("as good as last since", "as_good_as_last_since", 12, "no later checkpoint is significantly worse", _COUNT),
    Column("note", "note", 50),
]

_TRUST = [
    *_EVALUATION,
    METRIC,
    Column("verdict", "verdict", 11),
    Column("reason", "reason", 60),
    Column("curves", "n_curves", 8, "with at least three checkpoints", "0"),
    Column("above chance", "n_above_chance", 10, "curves whose last checkpoint is above chance", "0"),
    Column("improved", "n_improved", 10, "curves whose last checkpoint is significantly better than the first", "0"),
    Column(
        "monotonicity", "monotonicity", 13, "Spearman's correlation of position and value, mean over curves", "0.00"
    ),
    Column("low", "monotonicity_low", 7, "95 % interval: bootstrap of items", "0.00"),
    Column("high", "monotonicity_high", 7, "95 % interval: bootstrap of items", "0.00"),
    Column("signal", "signal", 9, "largest difference of two curves' last values over their mean", "0.000"),
    Column(
        "noise", "noise", 9, "standard deviation of the last five checkpoints over their mean, within curves", "0.0000"
    ),
    Column("signal to noise", "signal_to_noise", 10, "empty: no noise, or one curve", "0.0"),
    Column("S/N low", "signal_to_noise_low", 9, "95 % interval, from that of the noise", "0.0"),
    Column("S/N high", "signal_to_noise_high", 9, "95 % interval, from that of the noise", "0.0"),
    Column(
        "S/N, residual", "signal_to_residual_noise", 10, "noise around a line in ln x: learning does not count", "0.0"
    ),
    Column(
        "rank consistency", "rank_consistency", 12, "Kendall's tau of the curves at neighboring checkpoints", "0.00"
    ),
    Column(
        "decision accuracy", "decision_accuracy", 12, "pairs of curves already in their final order; ties half", "0%"
    ),
    Column("low", "decision_accuracy_low", 7, "95 % interval: bootstrap of items", "0%"),
    Column("high", "decision_accuracy_high", 7, "95 % interval: bootstrap of items", "0%"),
]


_DECIDING = [
    *_EVALUATION,
    METRIC,
    Column(
        "look at", lambda row: "●" if row["is_chosen"] else None, 8, "decides most pairs of series early, or of models"
    ),
    Column("below", "better_below", 12, "position below which it decides better than the headline metric", _COUNT),
    Column(
        "decision accuracy",
        "decision_accuracy",
        12,
        "pairs of series already in their final order, or of models in the same order on other items",
        "0%",
    ),
    Column("on others", "held_out_accuracy", 12, "of metrics chosen on half of the series or models", "0%"),
    Column("signal", "signal", 9, "largest difference of two last values over their mean", "0.000"),
    Column(
        "noise",
        "noise",
        9,
        "standard deviation of the last five checkpoints, or standard error, over the mean",
        "0.0000",
    ),
    Column("signal to noise", "signal_to_noise", 10, "", "0.0"),
    Column("of", "n_curves", 8, "series; models if the axis is item", "0"),
    Column("common", "n_common", 12, "checkpoints at the same position in all series, or items of all models", "0"),
    Column("axis", "axis", 8),
    Column("note", "note", 60),
]


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
