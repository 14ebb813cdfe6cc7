"""Items whose outcome differs between two models: regressed before improved, largest change first.

Each model's rows are prepared once, and each of its pairs only selects rows: with many pairs, an item changes many
times.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.schema import CHANGES
from vernacular.metrics.choice import correct_options, margin
from vernacular.metrics.schema import as_table

_REGRESSED, _IMPROVED = "regressed", "improved"
_WORST_FIRST = [
    ("change", "descending"),
    ("margin_change", "descending"),
    ("evaluation", "ascending"),
    ("item_id", "ascending"),
]


@dataclass(frozen=True)
class Judged:
    """One model's rows of an evaluation, aligned to all N items that any of its models has."""

    table: pa.Table  # TASK_RESULTS
    row: np.ndarray  # (N,) row in `table`; -1 without one
    correct: np.ndarray  # (N,) 1, 0; NaN: unknown
    asked: np.ndarray  # (N,) number of the item's (prompt, options, gold); -1 without a row
    margin: np.ndarray  # (N,) best correct score - best incorrect score; NaN if a score is missing


def lay_out(tables: dict[str, pa.Table]) -> dict[str, Judged]:
    """Align several models' TASK_RESULTS (tables or lists of rows) of one evaluation; return them by model.

    Correct options are the gold options and any others with the same text.
    """
    numbers: dict[tuple, int] = {}
    right: list[list[int]] = []  # by that number
    place: dict[str, int] = {}
    found = {}
    columns = {model: as_table(table) for model, table in tables.items()}
    for table in columns.values():
        for item_id in table.column("item_id").to_pylist():
            place.setdefault(item_id, len(place))
    for model, table in columns.items():
        ids, correct, scores = (table.column(name).to_pylist() for name in ("item_id", "correct", "option_scores"))
        texts = zip(*(table.column(name).to_pylist() for name in ("prompt", "choices", "gold")), strict=True)
        at = np.array([place[item_id] for item_id in ids], dtype=int)
        asked = np.empty(len(ids), dtype=int)
        margins = np.full(len(ids), np.nan)
        for i, (prompt, options, gold) in enumerate(texts):
            asked[i] = number = numbers.setdefault((prompt, tuple(options), tuple(gold)), len(numbers))
            if number == len(right):
                right.append(correct_options(options, gold))
            if scores[i] and None not in scores[i]:
                known = margin(scores[i], right[number])
                margins[i] = np.nan if known is None else known
        found[model] = Judged(
            table,
            _over(len(place), at, np.arange(len(ids)), -1),
            _over(len(place), at, np.array([np.nan if c is None else float(c) for c in correct]), np.nan),
            _over(len(place), at, asked, -1),
            _over(len(place), at, margins, np.nan),
        )
    return found


def changes(baseline: Judged, candidate: Judged, evaluation: str) -> pa.Table:
    """Return CHANGES rows of one evaluation, in any order: items whose value of `correct` differs.

    An item counts if both sides have a value of `correct` and the same prompt, options and gold. `margin_change` is
    how far the correct option rose (improved) or fell (regressed) relative to the best incorrect one, in the unit of
    the option scores; null if a side has no scores.
    """
    known = ~np.isnan(baseline.correct) & ~np.isnan(candidate.correct) & (baseline.asked == candidate.asked)
    at = np.flatnonzero(known & (baseline.correct != candidate.correct))
    improved = candidate.correct[at] == 1
    with np.errstate(invalid="ignore"):  # inf - inf
        by = candidate.margin[at] - baseline.margin[at]
    by = np.where(improved, by, -by)
    was, now = (
        side.table.select(["cluster_id", "category", "item_id", "prompt", "choices", "gold", "prediction",
                           "option_scores"]).take(pa.array(side.row[at])) for side in (baseline, candidate)
    )  # fmt: skip
    columns = {name: now[name] for name in ("item_id", "cluster_id", "category", "prompt", "choices", "gold")}
    columns |= {
        "evaluation": pa.array([evaluation] * len(at), pa.string()),
        "change": pa.array(np.where(improved, _IMPROVED, _REGRESSED), pa.string()),
        "margin_change": pa.array(by, pa.float64(), mask=~np.isfinite(by)),
        "baseline_prediction": was["prediction"],
        "candidate_prediction": now["prediction"],
        "baseline_scores": was["option_scores"],
        "candidate_scores": now["option_scores"],
    }
    return pa.table({name: columns[name] for name in CHANGES.schema.names}, schema=CHANGES.schema)


def worst_first(table: pa.Table) -> pa.Table:
    """Sort CHANGES rows: regressed before improved, largest change first within each, rows without scores last."""
    return table.take(pc.sort_indices(table, sort_keys=_WORST_FIRST))


def _over(n: int, at: np.ndarray, values: np.ndarray, missing) -> np.ndarray:
    """Return an (n,) array with `values` at the indices `at`, and `missing` elsewhere."""
    found = np.full(n, missing)
    found[at] = values
    return found
