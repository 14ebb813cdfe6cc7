"""What changed between two models: the items that were won and lost, lost ones first, the greatest fall on top."""

import math

import pyarrow as pa

from vernacular.comparison.sides import as_table
from vernacular.metrics.choosing import margin


def changes(baseline, candidate, evaluation: str) -> list[dict]:
    """Rows per CHANGES of one evaluation, by the choice that the results show (column `correct`).

    baseline, candidate: TASK_RESULTS (table or list of rows). An item counts where both sides know whether they were
    right and were asked the same. `by` is in the unit of the option scores: how far the right option rose (won) or fell
    (lost) against the best wrong one; null where a side has no scores. Right options are the gold ones and those of
    the same text.
    """
    was, now = as_table(baseline), as_table(candidate)
    known = {item_id: i for i, item_id in enumerate(was.column("item_id").to_pylist())}
    pairs = [(known[item_id], j) for j, item_id in enumerate(now.column("item_id").to_pylist()) if item_id in known]
    before, after = was.column("correct").to_pylist(), now.column("correct").to_pylist()
    # only what changed becomes Python objects: of many models' pairs that is a small part of all rows
    turned = [(i, j) for i, j in pairs if None not in (before[i], after[j]) and before[i] != after[j]]
    rows = (_rows(table, [places[side] for places in turned]) for side, table in enumerate((was, now)))
    found = [_change(one, other) for one, other in zip(*rows, strict=True) if same_item(one, other)]
    return worst_first([row | {"evaluation": evaluation} for row in found])


def worst_first(rows: list[dict]) -> list[dict]:
    """Lost before won; within each the greatest change first, those without scores last."""

    def key(row: dict):
        by = row["by"]
        return row["change"] != "lost", by is None, 0.0 if by is None else -by, row["evaluation"], row["item_id"]

    return sorted(rows, key=key)


def same_item(one: dict, other: dict) -> bool:
    """Both sides were asked the same, and the same was right."""
    return all(one[name] == other[name] for name in ("prompt", "options", "gold"))


def _rows(table: pa.Table, places: list[int]) -> list[dict]:
    return table.drop_columns(["values"]).take(pa.array(places, pa.int64())).to_pylist()


def _change(was: dict, now: dict) -> dict:
    margins = [_margin(row) for row in (was, now)]
    by = None if None in margins else margins[1] - margins[0]
    if by is not None and not math.isfinite(by):
        by = None
    return {
        "item_id": now["item_id"],
        "change": "won" if now["correct"] else "lost",
        "by": by if by is None or now["correct"] else -by,
        "cluster_id": now["cluster_id"],
        "category": now["category"],
        "prompt": now["prompt"],
        "options": now["options"],
        "gold": now["gold"],
        "baseline_prediction": was["prediction"],
        "candidate_prediction": now["prediction"],
        "baseline_scores": was["option_scores"],
        "candidate_scores": now["option_scores"],
    }


def _margin(row: dict) -> float | None:
    scores = row["option_scores"]
    if not scores or any(score is None for score in scores):
        return None
    texts = {row["options"][i].strip() for i in row["gold"]}
    return margin(scores, [i for i, option in enumerate(row["options"]) if option.strip() in texts])
