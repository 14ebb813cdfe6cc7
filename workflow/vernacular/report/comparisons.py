"""Data files of the comparison view, and of means over prompts.

`p{i}` holds a pair's differences, `p{i}/categories` those by category, and `p{i}/e{k}` the improved and regressed items
of evaluation k. Items are referred to by their position in the evaluation's own files, so that no prompt is stored
twice; an item that only external results have is stored in full.

`prompts` holds means over the prompts of a group, values and ranks by prompt, shares of variance, wordings. A group is
one entry of the leaderboard, in place of its single prompts; these have their task and item views.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.over_prompts import replaced
from vernacular.comparison.schema import CHANGES, IMPROVED, MARGIN_SIGNS, REGRESSED
from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.protocols.schema import REQUESTS
from vernacular.report import leaderboard
from vernacular.report.data_files import FIELDS, Row, record, round_all, round_significant, rounded, write_data_file
from vernacular.report.item_details import item_row
from vernacular.report.leaderboard import ReportIndex
from vernacular.statistics.significance import key_of
from vernacular.types import skipped_reason

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

    `tests`: headline metrics that are tested; of these, those in which `candidate` or `baseline` is significantly
    better, and those `identical` to the last digit. `items`: compared items that are correct or not, and of these the
    `improved` and `regressed` ones. Where an item counts once in each of several evaluations, `repeated` is true.
    """
    compared = [row for row in rows if row["headline"] and row["difference"] is not None]
    tested = [row for row in compared if row["n_tests"] is not None]
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


_OWN_FIELDS = ("metric", "model", "baseline", "values", "shares")
_MEAN_FIELDS = [name for name in FIELDS["records"]["PromptMean"] if name not in _OWN_FIELDS]
_SHARES = {
    "items": "share_items",
    "prompts": "share_prompts",
    "seeds": "share_seeds",
    "items × prompts": "share_items_prompts",
    "other": "share_rest",
}


def write_prompts(
    out: Path, prompt_rows: list[dict], results: Path, index: ReportIndex, descriptions: dict[str, dict]
) -> None:
    """Write the data file. `prompt_rows`: rows per PROMPTS; `descriptions`: of variants, by evaluation."""
    by_group: dict[str, list[dict]] = {}
    for row in prompt_rows:
        by_group.setdefault(row["evaluation"], []).append(row)
    groups = [
        _group(name, [row for row in rows if row["headline"]] or rows, results, index, descriptions)
        for name, rows in by_group.items()
    ]
    write_data_file(out, "prompts", record("Prompts", {"groups": groups}))


def _group(name: str, rows: list[dict], results: Path, index: ReportIndex, descriptions: dict[str, dict]) -> dict:
    first = rows[0]
    per_prompt = len(first["evaluations"]) // first["n_prompts"]
    runs = first["evaluations"][::per_prompt]
    texts = _texts(results, runs)
    prompts = [
        {"name": prompt, "evaluation": index.evaluations.number(run), "text": text, **descriptions.get(run, {})}
        for prompt, run, text in zip(first["prompts"], runs, texts, strict=True)
    ]
    group = {
        "evaluation": index.evaluations.number(name),
        "seeds": first["n_seeds"],
        "prompts": [record("Prompt", prompt) for prompt in prompts],
        "rows": [_mean(row, index) for row in rows],
    }
    return record("PromptGroup", group)


def _mean(row: dict, index: ReportIndex) -> dict:
    mean = {
        "metric": index.metric(row),
        "model": index.models.number(row["model"]),
        "baseline": None if row["baseline"] is None else index.models.number(row["baseline"]),
        "values": round_all(row["prompt_values"]),
        "shares": rounded(row, _SHARES),
        **{name: round_significant(row[name]) for name in _MEAN_FIELDS},
    }
    return record("PromptMean", mean)


def _texts(results: Path, runs: list[str]) -> list[str | None]:
    """Return the text of one item under each prompt, without few-shot examples; null without an item in common."""
    by_run = []
    for run in runs:
        columns = ["item_id", "role", "prefix", "text", "span_start"]
        rows = artifacts.read(results / "requests" / f"{run}.parquet", REQUESTS).select(columns).to_pylist()
        texts: dict[str, str] = {}
        for row in rows:
            if skipped_reason(row["role"]) is None and not row["role"].startswith("uncond"):
                end = None if row["span_start"] is None else row["span_start"] - len(row["prefix"])
                texts.setdefault(row["item_id"], row["text"][:end])
        by_run.append(texts)
    shared = sorted(set.intersection(*(set(texts) for texts in by_run)))
    return [texts[shared[0]] if shared else None for texts in by_run]


def put_means(index: dict, tables: Mapping[str, pa.Table], prompt_rows: list[dict], report_index: ReportIndex) -> None:
    """Put the means in the index of the leaderboard, in place of the values of the single prompts.

    A group is one evaluation with `runs`, the numbers of its evaluations with one prompt, each of which has the number
    of its group as `group`. To be called before names of other evaluations are numbered: a group's number is its
    position in the list.
    """
    hidden: set[tuple[int, int]] = set()
    for name in dict.fromkeys(row["evaluation"] for row in prompt_rows):
        if name not in tables:
            continue
        rows = rows_of(tables[name])
        number = report_index.evaluations.number(name)
        cells = leaderboard.cells(rows, report_index)
        names = dict.fromkeys(run for row in prompt_rows if row["evaluation"] == name for run in row["evaluations"])
        runs = [report_index.evaluations.number(run) for run in names]
        hidden |= {(run, cell.model) for run in runs for cell in cells}
        for run in runs:
            index["evaluations"][run]["group"] = number
        entry = {
            "id": name,
            "items": max(row["n"] for row in rows),
            "representative": leaderboard.representative_metric(cells, report_index.metric_info),
            "runs": runs,
            **leaderboard.setting(rows[0]),
            **({"samples": True} if "samples" in index["evaluations"][runs[0]] else {}),
        }
        index["evaluations"].append(record("Evaluation", entry))
        index["cells"] += leaderboard.index_cells(number, cells, report_index)
    index["cells"] = [cell for cell in index["cells"] if (cell.evaluation, cell.model) not in hidden]
