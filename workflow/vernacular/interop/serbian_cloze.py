"""Result lines in the format of the Serbian cloze scripts (ClozeTaskEvaluation), from cloze."""

import json

from vernacular.metrics.schema import as_table, same_item
from vernacular.metrics.spans import choose_option, correct_options

README = """\
Result lines in the format of the Serbian cloze scripts: prompt, predicted, correct, is_correct.

results.jsonl          the gap is filled with each candidate, and the sentence is scored.
results_legacy.jsonl   only with `score_unfilled_gap: true`: the candidate follows the unfilled prompt, including gap
                       and full stop, without a space ("... kupila __ knjigu.novu"), as in the scripts.

Differences from the lines that the scripts write:
- The scripts do not fill the gap: they score the candidate after the complete sentence.
- They locate the candidate by the length of the prompt tokenized alone. If its first letters are in one token with the
  full stop, these letters are not scored, and a candidate that is completely in this token scores 0, the highest
  possible score. With the Llama 3 tokenizer this affects 48 of the 440 candidates, and each of the 23 items with such a
  candidate has it as prediction, whatever the model. Here, the candidate is located by its characters, and an item with
  a candidate that has no separate token has an error.
- A tie has no prediction (null) and is not correct. The scripts predict the first candidate, which is correct in 106 of
  their 110 items.
- An item that could not be scored has no prediction (null).
"""


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """Return {file name: content}; `pairs`: items with their result rows."""
    contents = {"results.jsonl": "".join(_line(item, row["option_scores"]) for item, row in pairs)}
    if any("loglik_unfilled:0" in row["metrics"] for _, row in pairs):
        contents["results_legacy.jsonl"] = "".join(_line(item, _unfilled_scores(item, row)) for item, row in pairs)
    return contents


def _line(item: dict, scores: list[float] | None) -> str:
    choice = choose_option(scores, correct_options(item["choices"], item["gold"]))
    texts = {item["choices"][i] for i in choice.predicted_indices}
    line = {
        "prompt": item["context"],
        "predicted": texts.pop() if len(texts) == 1 else None,
        "correct": item["choices"][item["gold"][0]] if item["gold"] else None,
        "is_correct": bool(choice.correct),
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


def _unfilled_scores(item: dict, row: dict) -> list[float] | None:
    scores = [row["metrics"].get(f"loglik_unfilled:{i}") for i in range(len(item["choices"]))]
    return None if None in scores else scores


def serbian_json(baseline, candidate, order: dict[str, int] | None = None) -> str | None:
    """Return the comparison of two models on one evaluation as JSON; None if no item has a known correct answer.

    As in the result lines, a tie and an item that could not be scored have no prediction (null) and are not correct.

    Args:
        baseline: TASK_RESULTS, a table or list of rows.
        candidate: TASK_RESULTS of the other model.
        order: source_row by item_id, which sorts the examples as in the dataset; None: sorted by item_id.
    """
    baseline_rows = {row["item_id"]: row for row in _rows(baseline)}
    pairs = [
        (baseline_rows[candidate_row["item_id"]], candidate_row)
        for candidate_row in sorted(
            _rows(candidate), key=lambda row: ((order or {}).get(row["item_id"], 0), row["item_id"])
        )
        if candidate_row["item_id"] in baseline_rows
        and same_item(baseline_rows[candidate_row["item_id"]], candidate_row)
        and _gold_text(candidate_row) is not None
    ]
    if not pairs:
        return None
    outcomes = [
        (bool(baseline_row["correct"]), bool(candidate_row["correct"])) for baseline_row, candidate_row in pairs
    ]
    n_adapter_only, n_base_only = outcomes.count((False, True)), outcomes.count((True, False))
    summary = {
        "total": len(pairs),
        "base_correct": sum(base_correct for base_correct, _ in outcomes),
        "adapter_correct": sum(adapter_correct for _, adapter_correct in outcomes),
        "both_correct": outcomes.count((True, True)),
        "both_wrong": outcomes.count((False, False)),
        "adapter_only": n_adapter_only,
        "base_only": n_base_only,
        "net_gain": n_adapter_only - n_base_only,
    }
    examples = [
        {
            "prompt": candidate_row["prompt"],
            "base_predicted": _predicted_text(baseline_row),
            "adapter_predicted": _predicted_text(candidate_row),
            "correct": _gold_text(candidate_row),
            "change": "adapter_fixed" if adapter_correct else "adapter_wrong",
        }
        for (baseline_row, candidate_row), (base_correct, adapter_correct) in zip(pairs, outcomes, strict=True)
        if base_correct != adapter_correct
    ]
    return json.dumps({"summary": summary, "examples": examples}, ensure_ascii=False, indent=2)


def _rows(results) -> list[dict]:
    table = as_table(results)
    return table.select([name for name in table.column_names if name != "metrics"]).to_pylist()


def _gold_text(row: dict) -> str | None:
    return row["choices"][row["gold"][0]] if row["choices"] and row["gold"] else None


def _predicted_text(row: dict) -> str | None:
    """Return the text of the chosen option; None for a tie between different texts, and without a choice."""
    if row["predicted_indices"] is None:
        return row["prediction"]
    texts = {row["choices"][i] for i in row["predicted_indices"]}
    return texts.pop() if len(texts) == 1 else None
