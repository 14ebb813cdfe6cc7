"""Results of `evaluate` of lm-eval as per-item results and values. Runs in lm-eval's environment."""

from vernacular.lm_eval import instances
from vernacular.lm_eval.aggregation import UnitMetrics
from vernacular.lm_eval.loading import LoadedUnit
from vernacular.metrics.choice import best_indices
from vernacular.metrics.spans import by_item, flags
from vernacular.types import Item, Result


def task_results(
    unit: LoadedUnit, items: list[Item], requests: list[dict], outputs: list[dict], results: dict
) -> tuple[list[Result], list[dict], list[dict]]:
    """Return (rows per TASK_RESULTS, definitions of metrics, values: rows per METRICS without labels)."""
    collected = UnitMetrics(unit, results)
    spans = {} if _generates(requests) else by_item(requests, outputs)
    generated = {row["item_id"]: row for row in reversed(outputs)} if _generates(requests) else {}
    filtered = _predictions(unit, results)
    decided = (0.0, 1.0) if collected.headline and collected.is_share(collected.headline) else ()
    rows = []
    for item in items:
        values = collected.per_item.get(item["item_id"], {})
        scored = spans.get(item["item_id"], {})
        scores = [span.loglik for role, span in scored.items() if role.startswith("choice:")][: len(item["choices"])]
        scores = None if not scores or any(score is None for score in scores) else scores
        predicted = best_indices(scores) if item["choices"] else []
        output = generated.get(item["item_id"])
        prediction = filtered.get(item["item_id"]) if output else None
        headline = values.get(collected.headline)
        rows.append(
            {
                "item_id": item["item_id"],
                "cluster_id": None,
                "category": item["category"],
                "prompt": item["context"],
                "choices": item["choices"],
                "gold": item["gold"],
                "option_scores": scores if item["choices"] else None,
                "prediction": " | ".join(item["choices"][i] for i in predicted) if predicted else prediction,
                "predicted_indices": predicted or None,
                "correct": bool(headline) if headline in decided else None,
                "tie": len(predicted) > 1 if predicted else None,
                "metrics": values,
                "flags": output["flags"] if output else flags(scored),
            }
        )
    definitions = collected.definitions("similarity" if _generates(requests) else "surprisal")
    return rows, definitions, collected.values(rows, definitions)


def _generates(requests: list[dict]) -> bool:
    return bool(requests) and requests[0]["kind"] == "generate"


def _predictions(unit: LoadedUnit, results: dict) -> dict[str, str]:
    """Return the output of each item after the first filter, as text."""
    found: dict[str, str] = {}
    for name in unit.tasks:
        for sample in results["samples"][name]:
            outputs = sample["filtered_resps"]
            text = outputs[0] if len(outputs) == 1 else outputs
            item = instances.item_id(name if unit.is_group else None, sample["doc_id"])
            found.setdefault(item, text if isinstance(text, str) else str(text))
    return found
