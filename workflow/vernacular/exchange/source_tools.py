"""Results per item in the formats of source tools, and the minimal pairs of Grew-TSE.

PalmX 2025 (predictions.csv, scores.txt, outputs_log.csv) is from letters, the Serbian cloze scripts
(ClozeTaskEvaluation) from cloze, and Grew-TSE from target_word; translations are files with a line per item: source,
output and reference, as COMET and sacrebleu read them. A format is a function that returns {file name: content} of
pairs, items with their result rows, and a README of the differences from what its tool writes: `READMES`.
"""

import csv
import io
import json
import math
from collections.abc import Callable
from string import ascii_uppercase

from vernacular.core.tables import csv_text
from vernacular.metrics.schema import as_table, same_item
from vernacular.metrics.spans import choose_option, correct_options, extra, probabilities

Pairs = list[tuple[dict, dict]]
_TEXT_COLUMNS = ["original_text", "masked_text", "prompt_text"]
_ADDED_COLUMNS = ["lemma", "upos", "features", "swapped", "deprel", "distance", "phenomenon", "pattern", "treebank"]


def palmx_files(pairs: Pairs) -> dict[str, str]:
    """Return the files of PalmX; the options of the result rows are in the letters' order."""
    letters = ascii_uppercase[: max([4, *(len(row["choices"]) for _, row in pairs)])]
    correct = [row["correct"] for _, row in pairs if row["correct"] is not None]
    accuracy = f"={sum(correct) / len(correct):.6f}" if correct else " is not available: no answer is known"
    columns = ["id", "question", *letters, "answer_label", "pred_label", "correct"]
    columns += [f"{name}_{letter}" for letter in letters for name in ("score", "prob")]
    return {
        "predictions.csv": csv_text(
            ["id", "prediction"], [[item["item_id"], _letter(row["predicted_indices"])] for item, row in pairs]
        ),
        "scores.txt": f"accuracy{accuracy}\n",
        "outputs_log.csv": csv_text(columns, [_log_row(item, row, len(letters)) for item, row in pairs]),
    }


def _letter(predicted_indices: list[int] | None) -> str | None:
    return ascii_uppercase[predicted_indices[0]] if predicted_indices and len(predicted_indices) == 1 else None


def _log_row(item: dict, row: dict, n: int) -> list:
    scores = row["option_scores"] or []
    probs = [prob if math.isfinite(prob) else None for prob in probabilities(scores).tolist()] if scores else []
    score_cells = [cell for pair in zip(_pad(scores, n), _pad(probs, n), strict=True) for cell in pair]
    gold = "|".join(ascii_uppercase[i] for i in row["gold"])
    options, predicted = _pad(row["choices"], n), _letter(row["predicted_indices"])
    return [item["item_id"], item["question"], *options, gold, predicted, row["correct"], *score_cells]


def _pad(cells: list, n: int) -> list:
    return [*cells, *[None] * (n - len(cells))]


def serbian_files(pairs: Pairs) -> dict[str, str]:
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
    `order`: source_row by item_id, which sorts the examples as in the dataset; None: sorted by item_id.
    """
    rows = sorted(_rows(candidate), key=lambda row: ((order or {}).get(row["item_id"], 0), row["item_id"]))
    others = {row["item_id"]: row for row in _rows(baseline)}
    both = [(others[row["item_id"]], row) for row in rows if row["item_id"] in others]
    pairs = [(first, second) for first, second in both if same_item(first, second) and _gold_text(second) is not None]
    if not pairs:
        return None
    outcomes = [(bool(first["correct"]), bool(second["correct"])) for first, second in pairs]
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
            "prompt": second["prompt"],
            "base_predicted": _predicted_text(first),
            "adapter_predicted": _predicted_text(second),
            "correct": _gold_text(second),
            "change": "adapter_fixed" if adapter_correct else "adapter_wrong",
        }
        for (first, second), (base_correct, adapter_correct) in zip(pairs, outcomes, strict=True)
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


def grew_files(pairs: Pairs) -> dict[str, str]:
    """Return the tables of Grew-TSE; a level without scores has none."""
    levels = {"token": "evaluation.csv", "sentence": "evaluation_sentence.csv"}
    scored = [level for level in levels if any(f"loglik_{level}:0" in row["metrics"] for _, row in pairs)]
    return {levels[level]: _table(pairs, level) for level in scored or levels}


def _table(pairs: Pairs, level: str) -> str:
    indices_by_item = [_form_indices(item) for item, _ in pairs]
    forms = list(dict.fromkeys(name for own in sorted(indices_by_item, key=len, reverse=True) for name in own))
    text_columns = [name for name in _TEXT_COLUMNS if any(extra(item).get(name) for item, _ in pairs)]
    item_columns = ["sentence_id", "match_id", *forms[:1], *text_columns, *forms[1:]]
    certainty_columns = ["certainty"] if level == "token" else []
    score_columns = [f"{name}_{form}" for form in forms for name in ("p", "I")]
    columns = ["Index", *item_columns, *score_columns, *certainty_columns, "error"]
    rows = []
    for index, ((item, row), form_indices) in enumerate(zip(pairs, indices_by_item, strict=True)):
        cells = extra(item) | {name: item["choices"][i] for name, i in form_indices.items()}
        logliks = {name: row["metrics"].get(f"loglik_{level}:{i}") for name, i in form_indices.items()}
        scores = [cell for form in forms for cell in _scores(logliks.get(form), level)]
        certainty = [row["metrics"].get(name) for name in certainty_columns]
        rows.append([index, *(cells.get(name) for name in item_columns), *scores, *certainty, row["flags"]])
    return csv_text(columns, rows)


def _scores(loglik: float | None, level: str) -> tuple[float | None, float | None]:
    """Return (p_, I_) of a log-likelihood in nats."""
    if loglik is None:
        return None, None
    bits = -loglik / math.log(2)
    return (math.exp(loglik) if level == "token" else -bits), bits


def _form_indices(item: dict) -> dict[str, int]:
    """Return {form column: index of its form in the item's choices}; equal forms have several columns."""
    columns_by_form = json.loads(extra(item).get("form_columns", "[]"))
    if len(columns_by_form) != len(item["choices"]):
        columns_by_form = [f"form_{i}" for i in range(len(item["choices"]))]
    return {
        column: i
        for i, columns in enumerate(columns_by_form)
        for column in ([columns] if isinstance(columns, str) else columns)
    }


def pairs_csv(rows: list[dict]) -> str:
    """Return rows as CSV text, with Grew-TSE's columns first and Vernacular's after them."""
    forms = _columns_with_prefix(rows, "form_ungrammatical")
    columns = ["sentence_id", "match_id", "form_grammatical", *_TEXT_COLUMNS, *forms]
    columns += [*_ADDED_COLUMNS, *_columns_with_prefix(rows, "ungrammatical_text")]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _columns_with_prefix(rows: list[dict], prefix: str) -> list[str]:
    """Return the columns that begin with `prefix`, from the row that has the most of them."""
    return max(([column for column in row if column.startswith(prefix)] for row in rows), key=len, default=[prefix])


def line_files(pairs: Pairs) -> dict[str, str]:
    known = [(item, row["prediction"]) for item, row in pairs if row["prediction"] is not None]
    columns = {
        "ids.txt": [item["item_id"] for item, _ in known],
        "source.txt": [item["context"] for item, _ in known],
        "output.txt": [prediction for _, prediction in known],
        "reference.txt": [item["target"] for item, _ in known],
    }
    return {name: "".join(" ".join(text.split()) + "\n" for text in texts) for name, texts in columns.items()}


TOOLS: dict[str, Callable[[Pairs], dict[str, str]]] = {
    "palmx": palmx_files,
    "serbian_cloze": serbian_files,
    "grew_tse": grew_files,
    "line_files": line_files,
}
