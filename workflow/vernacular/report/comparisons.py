"""Data files of the comparison view.

`p{i}` holds a pair's differences, `p{i}/categories` those by category, and `p{i}/e{k}` the improved and regressed items
of evaluation k. Items are referred to by their position in the evaluation's own files, so that no prompt is stored
twice; an item that only external results have is stored in full.
"""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.over_prompts import replaced
from vernacular.comparison.schema import CHANGES, IMPROVED, MARGIN_SIGNS, REGRESSED
from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.report.data_files import FIELDS, Row, record, round_all, round_significant, write_data_file
from vernacular.report.item_details import item_row
from vernacular.report.leaderboard import ReportIndex
from vernacular.statistics.significance import key_of

_COLUMNS = [name for name in FIELDS["records"]["Comparison"] if name not in ("evaluation", "metric", "single?")]


def write_pairs(
    out: Path, comparisons: pa.Table, changes: dict, positions: dict, index: ReportIndex, prompt_rows: list[dict]
) -> list:
    """Write every pair's data files; return a Row.Pair for each.

    comparisons: rows per COMPARISONS. changes: (baseline, candidate) -> path of its CHANGES file. positions: evaluation
    -> item_id -> position in the evaluation's files. prompt_rows: rows per PROMPTS; a difference under one prompt, for
    which a mean over prompts stands, has the key `single` and is not part of the verdict.
    """
    singles = replaced(prompt_rows)
    pairs = dict.fromkeys(zip(comparisons["baseline"].to_pylist(), comparisons["candidate"].to_pylist(), strict=True))
    summaries = []
    for i, (baseline, candidate) in enumerate(pairs):
        is_pair = pc.and_(pc.equal(comparisons["baseline"], baseline), pc.equal(comparisons["candidate"], candidate))
        own = comparisons.filter(is_pair)
        judged = own.filter(pc.is_valid(own["both_correct"])).select(["task", "language", "evaluation"])
        datasets = judged.group_by(["task", "language"]).aggregate([("evaluation", "count_distinct")])
        repeated = any(n > 1 for n in datasets["evaluation_count_distinct"].to_pylist())
        rows = [_row(row, index, singles) for row in rows_of(own)]
        path = changes.get((baseline, candidate))
        counts = _write_changes(out, i, path, positions, index) if path else []
        category_rows = [row for row in rows if row["category"]]
        overall_rows = [row for row in rows if not row["category"]]
        content = {"rows": overall_rows, "changes": counts, "in_categories": len(category_rows)}
        write_data_file(out, f"p{i}", record("PairDifferences", content))
        write_data_file(out, f"p{i}/categories", category_rows)
        sides = {"baseline": index.models.number(baseline), "candidate": index.models.number(candidate)}
        summaries.append(Row.Pair(**sides, summary=_summarize(overall_rows, counts, repeated=repeated)))
    return summaries


def _summarize(rows: list[dict], changes: list, *, repeated: bool) -> dict:
    """Count what the verdict on a pair states.

    `tests`: headline metrics with a difference; of these, those in which `candidate` or `baseline` is significantly
    better, and those `identical` to the last digit. `items`: compared items that are correct or not, and of these the
    `improved` and `regressed` ones. Where an item counts once in each of several evaluations, `repeated` is true.
    """
    compared = [row for row in rows if row["headline"] and row["difference"] is not None]
    tested = [row for row in compared if "single" not in row]
    items_by_evaluation: dict[int, int] = {}
    for row in compared:
        if row["both_correct"] is not None:
            items_by_evaluation[row["evaluation"]] = max(row["n"], items_by_evaluation.get(row["evaluation"], 0))
    better = Counter(row["better"] for row in tested)
    summary = {
        "tests": len(tested),
        "candidate": better["candidate"],
        "baseline": better["baseline"],
        "identical": sum(row["difference"] == 0 for row in tested),
        "items": sum(items_by_evaluation.values()),
        "improved": sum(counts.improved for counts in changes),
        "regressed": sum(counts.regressed for counts in changes),
        **({"repeated": True} if repeated else {}),
    }
    return record("Summary", summary)


def _row(row: dict, index: ReportIndex, singles: set[tuple]) -> dict:
    is_single = key_of(row) in singles
    comparison = {
        "evaluation": index.evaluations.number(row["evaluation"]),
        "metric": index.metric(row),
        **{name: round_significant(row[name]) for name in _COLUMNS},
        **({"single": True} if is_single else {}),
    }
    return record("Comparison", comparison)


def _write_changes(out: Path, pair: int, path: Path, positions: dict, index: ReportIndex) -> list:
    """Write the improved and regressed items per evaluation; return a Row.ChangeCounts for each."""
    table, counts = artifacts.read(path, CHANGES), []
    for evaluation in dict.fromkeys(table["evaluation"].to_pylist()):
        item_positions = positions.get(evaluation, {})
        rows = rows_of(table.filter(pc.equal(table["evaluation"], evaluation)))
        number = index.evaluations.number(evaluation)
        write_data_file(out, f"p{pair}/e{number}", [_change(row, item_positions.get(row["item_id"])) for row in rows])
        changes = Counter(row["change"] for row in rows)
        number_of = {change: changes[change] for change in (IMPROVED, REGRESSED)}
        counts.append(Row.ChangeCounts(evaluation=number, **number_of))
    return counts


def _change(row: dict, position: int | None):
    """Return the Row.Change of an item; it contains the item if it has no position in the evaluation's files."""
    margin_change = round_significant(row["margin_change"])
    return Row.Change(
        position=position,
        margin_difference=None if margin_change is None else MARGIN_SIGNS[row["change"]] * margin_change,
        item=item_row(row) if position is None else None,
        **{name: row[name] for name in ("change", "baseline_prediction", "candidate_prediction")},
        **{name: round_all(row[name]) for name in ("baseline_scores", "candidate_scores")},
    )
