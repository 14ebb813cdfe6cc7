"""A comparison as the Serbian cloze scripts write it (ClozeTaskEvaluation, Compare_BaseAdapter.py).

`{"summary": {…counts…}, "examples": [{prompt, base_predicted, adapter_predicted, correct, change}]}`, the baseline as
"base" and the candidate as "adapter"; indented by two, characters as they are. Unlike there, items are joined by their
ids and not by line, and all changed items are listed, not the first ten.
"""

import json

from vernacular.comparison.changes import same_item
from vernacular.metrics.schema import as_table


def serbian_json(baseline, candidate, order: dict[str, int] | None = None) -> str | None:
    """The file's text for one evaluation; None where no item has a right answer that is known.

    baseline, candidate: TASK_RESULTS (table or list of rows). `order`: item_id -> source_row, so that examples stand in
    the order of the data set as there; by item_id without it. As in the result lines that `compat` writes, a tie and
    an item that could not be scored have no prediction (null) and are not correct.
    """
    before = {row["item_id"]: row for row in _rows(baseline)}
    pairs = [
        (before[now["item_id"]], now)
        for now in sorted(_rows(candidate), key=lambda row: ((order or {}).get(row["item_id"], 0), row["item_id"]))
        if now["item_id"] in before and same_item(before[now["item_id"]], now) and _right(now) is not None
    ]
    if not pairs:
        return None
    outcomes = [(bool(was["correct"]), bool(now["correct"])) for was, now in pairs]
    adapter_only, base_only = outcomes.count((False, True)), outcomes.count((True, False))
    summary = {
        "total": len(pairs),
        "base_correct": sum(base for base, _ in outcomes),
        "adapter_correct": sum(adapter for _, adapter in outcomes),
        "both_correct": outcomes.count((True, True)),
        "both_wrong": outcomes.count((False, False)),
        "adapter_only": adapter_only,
        "base_only": base_only,
        "net_gain": adapter_only - base_only,
    }
    examples = [
        {
            "prompt": now["prompt"],
            "base_predicted": _predicted(was),
            "adapter_predicted": _predicted(now),
            "correct": _right(now),
            "change": "adapter_fixed" if adapter else "adapter_wrong",
        }
        for (was, now), (base, adapter) in zip(pairs, outcomes, strict=True)
        if base != adapter
    ]
    return json.dumps({"summary": summary, "examples": examples}, ensure_ascii=False, indent=2)


def _rows(side) -> list[dict]:
    return as_table(side).drop_columns(["values"]).to_pylist()


def _right(row: dict) -> str | None:
    return row["options"][row["gold"][0]] if row["options"] and row["gold"] else None


def _predicted(row: dict) -> str | None:
    """The text of the chosen option; None for a tie between texts, and where nothing was chosen."""
    if row["predicted"] is None:
        return row["prediction"]
    texts = {row["options"][i] for i in row["predicted"]}
    return texts.pop() if len(texts) == 1 else None
