"""Results per item in the Every Eval Ever format: the lines of `{uuid}_samples.jsonl` beside a model's record.

A line is one item and one headline metric that has a value per item; metrics of a whole dataset (ROC AUC, difsur) have
no lines. The format requires whether an item is correct: for a share, whether it is 1; for other metrics, what the
result states. Items for which this is unknown are omitted and counted.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa

from vernacular.core.publication import publishable
from vernacular.core.tables import is_finite
from vernacular.metrics.schema import value_arrays

_ROWS_AT_A_TIME = 1_000


def samples(record: dict, results: Iterable[tuple[str, pa.Table]], omitted: Counter) -> Iterator[dict]:
    """Yield the lines of one model, and count the omitted items in `omitted`, by reason.

    Args:
        record: The model's record, of `every_eval_ever`.
        results: Evaluations with their TASK_RESULTS.
    """
    aggregates: dict[str, list[dict]] = {}
    for result in record["evaluation_results"]:
        aggregates.setdefault(result["evaluation_name"], []).append(result)
    for evaluation, table in results:
        per_item = set(value_arrays(table))
        linked = [
            result for result in aggregates.get(evaluation, []) if result["metric_config"]["metric_name"] in per_item
        ]
        if not linked:
            omitted["no headline metric with a value per item"] += len(table)
        for start in range(0, len(table) if linked else 0, _ROWS_AT_A_TIME):
            for row in table.slice(start, _ROWS_AT_A_TIME).to_pylist(maps_as_pydicts="strict"):
                yield from _lines_of_item(record, linked, row, omitted)


def _lines_of_item(record: dict, linked: list[dict], row: dict, omitted: Counter) -> Iterator[dict]:
    for result in linked:
        name = result["metric_config"]["metric_name"]
        score = row["metrics"].get(name)
        is_correct = row["correct"]
        if result["metric_config"].get("metric_unit") == "proportion":
            is_correct = score == 1
        if not is_finite(score):
            omitted["no value"] += 1
        elif is_correct is None:
            omitted["no correct answer"] += 1
        else:
            yield _line(record, result, row, score, is_correct)


def _line(record: dict, result: dict, row: dict, score: float, is_correct: bool) -> dict:
    protocol = result["generation_config"]["additional_details"]["protocol"]
    texts = {"raw": row["prompt"], "reference": [row["choices"][i] for i in row["gold"] if i < len(row["choices"])]}
    prediction = row["prediction"] or ""
    details = {key: row[key] for key in ("category", "cluster_id", "flags", "tie") if row[key] not in (None, "", False)}
    return {
        "schema_version": record["schema_version"],
        "evaluation_id": record["evaluation_id"],
        "model_id": record["model_info"]["id"],
        "evaluation_name": result["evaluation_name"],
        "evaluation_result_id": result["evaluation_result_id"],
        "sample_id": row["item_id"],
        "sample_hash": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": texts | {"choices": row["choices"] or None},
        "output": {"raw": [prediction]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": prediction,
                "extraction_method": f"vernacular.{protocol}",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": score, "is_correct": bool(is_correct)},
        "metadata": {key: publishable(str(value)) for key, value in details.items()},
    }
