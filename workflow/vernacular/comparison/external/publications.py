"""Publications of other groups (`vernacular publish`) as external results, from their files of Every Eval Ever.

A model of a publication has a record, and a file with one line per item and headline metric. An item counts if its ID,
prompt, options and correct answers are those of this run; its values are used as they were published.
"""

import json
from pathlib import Path

import pyarrow as pa

from vernacular.comparison.external.classify import MIN_MATCHED_SHARE
from vernacular.comparison.external.published_files import published_models
from vernacular.core.errors import DataError, format_count
from vernacular.core.paths import display_path
from vernacular.metrics.schema import as_table


def load_publication(path: Path, model: str, references: dict) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the results of one model as TASK_RESULTS tables by evaluation, and notes; see `load_external_results`.

    Raises DataError if no evaluation is one of `references`, or a file cannot be read.
    """
    _, *samples = published_models(path)[model]
    tables, notes = {}, []
    for evaluation, items in (_read_lines(samples[0]) if samples else {}).items():
        if evaluation not in references:
            notes.append(f'{display_path(path)}: {model}: unknown evaluation "{evaluation}".')
            continue
        own = as_table(references[evaluation].rows).drop_columns(["metrics"]).to_pylist()
        by_id = {row["item_id"]: row for row in own}
        rows = [
            _row(by_id[item], lines) for item, lines in items.items() if item in by_id and _fits(by_id[item], lines)
        ]
        n_possible = min(len(by_id), len(items))
        message = f"{display_path(path)}: {model}: {len(rows)} of {format_count(len(items), 'item')} match {evaluation}"
        if len(rows) < MIN_MATCHED_SHARE * n_possible:
            share = f"fewer than {MIN_MATCHED_SHARE:.0%}; not used. The data or the prompts may differ."
            notes.append(f"{message}: {share}")
        else:
            tables[evaluation] = as_table(rows)
            notes.append(f"{message}.")
    if not tables:
        raise DataError("\n".join(notes) or f"{display_path(path)}: {model}: no results per item.")
    return tables, notes


def _read_lines(file: Path) -> dict[str, dict[str, list[dict]]]:
    """Return the lines of each item by evaluation."""
    evaluations: dict[str, dict[str, list[dict]]] = {}
    try:
        with open(file, encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                items = evaluations.setdefault(line["evaluation_name"], {})
                items.setdefault(line["sample_id"], []).append(line)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{display_path(file)}: not the results of a publication ({error}).") from None
    return evaluations


def _fits(own: dict, lines: list[dict]) -> bool:
    """Return whether published lines have the texts of this run's row."""
    texts = lines[0]["input"]
    correct = [own["choices"][i] for i in own["gold"] if i < len(own["choices"])]
    return (texts["raw"], texts["choices"] or [], texts["reference"]) == (own["prompt"], own["choices"], correct)


def _row(own: dict, lines: list[dict]) -> dict:
    """Return the TASK_RESULTS row of an item from its lines, one per metric."""
    prediction, details = lines[0]["output"]["raw"][0], lines[0]["metadata"]
    predicted = [index for index, choice in enumerate(own["choices"]) if choice == prediction]
    metrics = {line["evaluation_result_id"].removeprefix(f"{line['evaluation_name']}/"): line for line in lines}
    return {
        **{name: own[name] for name in ("item_id", "cluster_id", "category", "prompt", "choices", "gold")},
        "option_scores": None,
        "prediction": prediction,
        "predicted_indices": predicted if len(predicted) == 1 else None,
        "correct": lines[0]["evaluation"]["is_correct"] if own["choices"] else None,
        "tie": details.get("tie") == "True",
        "metrics": {name: line["evaluation"]["score"] for name, line in metrics.items()},
        "flags": details.get("flags"),
    }
