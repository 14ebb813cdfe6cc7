"""What changed between two models: the items that were won and lost, lost ones first, the greatest fall on top."""

import math

from vernacular.comparison.sides import as_table
from vernacular.metrics.choosing import margin


def changes(baseline, candidate, evaluation: str) -> list[dict]:
    """Rows per CHANGES of one evaluation, by the choice that the results show (column `correct`).

    baseline, candidate: TASK_RESULTS (table or list of rows). An item counts where both sides know whether they were
    right and were asked the same. `by` is in the unit of the option scores: how far the right option rose (won) or fell
    (lost) against the best wrong one; null where a side has no scores. Right options are the gold ones and those of
    the same text.
    """
    before = {row["item_id"]: row for row in _rows(baseline)}
    found = []
    for now in _rows(candidate):
        was = before.get(now["item_id"])
        if was is None or not same_item(was, now) or None in (was["correct"], now["correct"]):
            continue
        if was["correct"] != now["correct"]:
            found.append(_change(was, now) | {"evaluation": evaluation})
    return worst_first(found)


def worst_first(rows: list[dict]) -> list[dict]:
    """Lost before won; within each the greatest change first, those without scores last."""

    def key(row: dict):
        by = row["by"]
        return row["change"] != "lost", by is None, 0.0 if by is None else -by, row["evaluation"], row["item_id"]

    return sorted(rows, key=key)


def same_item(one: dict, other: dict) -> bool:
    """Both sides were asked the same, and the same was right."""
    return all(one[name] == other[name] for name in ("prompt", "options", "gold"))


def _rows(side) -> list[dict]:
    return as_table(side).drop_columns(["values"]).to_pylist()


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
