"""Items whose outcome differs between two models: regressed before improved, largest change first.

Each model's rows are prepared once, and each of its pairs only selects rows: with many pairs, an item changes many
times.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.align import scatter
from vernacular.comparison.schema import CHANGES
from vernacular.metrics.choice import correct_options, margin
from vernacular.metrics.schema import as_table

_REGRESSED, _IMPROVED = "regressed", "improved"
_SORT_KEYS = [
    ("change", "descending"),
    ("margin_change", "descending"),
    ("evaluation", "ascending"),
    ("item_id", "ascending"),
]


@dataclass(frozen=True)
class ItemOutcomes:
    """One model's rows of an evaluation, aligned to all N items that any of its models has."""

    table: pa.Table  # TASK_RESULTS
    row_index: np.ndarray  # (N,) row in `table`; -1 without one
    correct: np.ndarray  # (N,) 1, 0; NaN: unknown
    text_id: np.ndarray  # (N,) number of the item's (prompt, options, gold); -1 without a row
    margin: np.ndarray  # (N,) best correct score - best incorrect score; NaN if a score is missing


def align_outcomes(tables: dict[str, pa.Table]) -> dict[str, ItemOutcomes]:
    """Align several models' TASK_RESULTS (tables or lists of rows) of one evaluation; return them by model.

    Correct options are the gold options and any others with the same text.
    """
    text_ids: dict[tuple, int] = {}
    correct_indices: list[list[int]] = []  # by text ID
    positions: dict[str, int] = {}
    outcomes = {}
    tables = {model: as_table(table) for model, table in tables.items()}
    for table in tables.values():
        for item_id in table.column("item_id").to_pylist():
            positions.setdefault(item_id, len(positions))
    for model, table in tables.items():
        ids, correct, scores = (table.column(name).to_pylist() for name in ("item_id", "correct", "option_scores"))
        texts = zip(*(table.column(name).to_pylist() for name in ("prompt", "choices", "gold")), strict=True)
        indices = np.array([positions[item_id] for item_id in ids], dtype=int)
        item_text_ids = np.empty(len(ids), dtype=int)
        margins = np.full(len(ids), np.nan)
        for i, (prompt, options, gold) in enumerate(texts):
            item_text_ids[i] = text_id = text_ids.setdefault((prompt, tuple(options), tuple(gold)), len(text_ids))
            if text_id == len(correct_indices):
                correct_indices.append(correct_options(options, gold))
            if scores[i] and None not in scores[i]:
                value = margin(scores[i], correct_indices[text_id])
                margins[i] = np.nan if value is None else value
        outcomes[model] = ItemOutcomes(
            table,
            scatter(len(positions), indices, np.arange(len(ids)), -1),
            scatter(len(positions), indices, np.array([np.nan if c is None else float(c) for c in correct]), np.nan),
            scatter(len(positions), indices, item_text_ids, -1),
            scatter(len(positions), indices, margins, np.nan),
        )
    return outcomes


def find_changes(baseline: ItemOutcomes, candidate: ItemOutcomes, evaluation: str) -> pa.Table:
    """Return CHANGES rows of one evaluation, in any order: items whose value of `correct` differs.

    An item counts if both sides have a value of `correct` and the same prompt, options and gold. `margin_change` is
    how far the correct option rose (improved) or fell (regressed) relative to the best incorrect one, in the unit of
    the option scores; null if a side has no scores.
    """
    comparable = ~np.isnan(baseline.correct) & ~np.isnan(candidate.correct) & (baseline.text_id == candidate.text_id)
    indices = np.flatnonzero(comparable & (baseline.correct != candidate.correct))
    improved = candidate.correct[indices] == 1
    with np.errstate(invalid="ignore"):  # inf - inf
        margin_change = candidate.margin[indices] - baseline.margin[indices]
    margin_change = np.where(improved, margin_change, -margin_change)
    baseline_rows, candidate_rows = (
        side.table.select(["cluster_id", "category", "item_id", "prompt", "choices", "gold", "prediction",
                           "option_scores"]).take(pa.array(side.row_index[indices])) for side in (baseline, candidate)
    )  # fmt: skip
    columns = {
        name: candidate_rows[name] for name in ("item_id", "cluster_id", "category", "prompt", "choices", "gold")
    }
    columns |= {
        "evaluation": pa.array([evaluation] * len(indices), pa.string()),
        "change": pa.array(np.where(improved, _IMPROVED, _REGRESSED), pa.string()),
        "margin_change": pa.array(margin_change, pa.float64(), mask=~np.isfinite(margin_change)),
        "baseline_prediction": baseline_rows["prediction"],
        "candidate_prediction": candidate_rows["prediction"],
        "baseline_scores": baseline_rows["option_scores"],
        "candidate_scores": candidate_rows["option_scores"],
    }
    return pa.table({name: columns[name] for name in CHANGES.schema.names}, schema=CHANGES.schema)


def sort_changes(table: pa.Table) -> pa.Table:
    """Sort CHANGES rows: regressed before improved, largest change first within each, rows without scores last."""
    return table.take(pc.sort_indices(table, sort_keys=_SORT_KEYS))
