"""Data files of the comparison view.

`p{i}` holds a pair's differences, `p{i}/categories` those by category, and `p{i}/e{k}` the improved and regressed items
of evaluation k. Items are referred to by their position in the evaluation's own files, so that no prompt is stored
twice; an item that only external results have is stored in full.
"""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.schema import CHANGES
from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.report.leaderboard import Numbers
from vernacular.report.pieces import short, shorts, write_piece

_NUMBERS = ("baseline_value", "candidate_value", "difference", "ci_low", "ci_high", "p_value", "p_holm",
            "minimum_detectable_difference")  # fmt: skip
_COUNTS = (
    "n",
    "n_baseline",
    "n_candidate",
    "both_correct",
    "both_incorrect",
    "baseline_only_correct",
    "candidate_only_correct",
    "n_tests",
)


def write_pairs(out: Path, comparisons: pa.Table, changes: dict, positions: dict, numbers: Numbers) -> list[list]:
    """Write every pair's data files; return [baseline, candidate, rows] per pair, the sides by number.

    comparisons: rows per COMPARISONS. changes: (baseline, candidate) -> path of its CHANGES file. positions: evaluation
    -> item_id -> position in the evaluation's files.
    """
    every = dict.fromkeys(zip(comparisons["baseline"].to_pylist(), comparisons["candidate"].to_pylist(), strict=True))
    listed = []
    for i, (baseline, candidate) in enumerate(every):
        of_pair = pc.and_(pc.equal(comparisons["baseline"], baseline), pc.equal(comparisons["candidate"], candidate))
        rows = [_row(row, numbers) for row in rows_of(comparisons.filter(of_pair))]
        path = changes.get((baseline, candidate))
        counts = _write_changes(out, i, path, positions, numbers) if path else []
        in_categories = [row for row in rows if row["category"]]
        whole = [row for row in rows if not row["category"]]
        write_piece(out, f"p{i}", {"rows": whole, "changes": counts, "in_categories": len(in_categories)})
        write_piece(out, f"p{i}/categories", in_categories)
        listed.append([numbers.models.number(baseline), numbers.models.number(candidate), len(rows)])
    return listed


def _row(row: dict, numbers: Numbers) -> dict:
    return {
        "evaluation": numbers.evaluations.number(row["evaluation"]),
        "metric": numbers.metric(row),
        "category": row["category"],
        "headline": row["headline"],
        **{name: short(row[name]) for name in _NUMBERS},
        **{name: row[name] for name in (*_COUNTS, "test", "significant", "better", "note")},
    }


def _write_changes(out: Path, pair: int, path: Path, positions: dict, numbers: Numbers) -> list[list]:
    """Write the improved and regressed items per evaluation; return [evaluation, improved, regressed]."""
    table, counts = artifacts.read(path, CHANGES), []
    for evaluation in dict.fromkeys(table["evaluation"].to_pylist()):
        known = positions.get(evaluation, {})
        rows = rows_of(table.filter(pc.equal(table["evaluation"], evaluation)))
        number = numbers.evaluations.number(evaluation)
        write_piece(out, f"p{pair}/e{number}", [_change(row, known.get(row["item_id"])) for row in rows])
        tally = Counter(row["change"] for row in rows)
        counts.append([number, tally["improved"], tally["regressed"]])
    return counts


def _change(row: dict, place: int | None) -> list:
    """Return [place, change, by, the sides' predictions, their scores, the item if it has no place]."""
    own = None if place is not None else [row["item_id"], row["category"] or "", row["prompt"], row["choices"],
                                          row["gold"]]  # fmt: skip
    return [
        place,
        row["change"],
        short(row["margin_change"], 4),
        row["baseline_prediction"],
        row["candidate_prediction"],
        shorts(row["baseline_scores"], 4),
        shorts(row["candidate_scores"], 4),
        own,
    ]
