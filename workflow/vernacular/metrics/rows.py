"""Rows of the per-task results, the same for every protocol that works on scores."""

import math
from collections.abc import Iterator

from vernacular.metrics.choosing import Choice
from vernacular.metrics.spans import Span, by_item, flags


def asked(items: list[dict], requests: list[dict], scores: list[dict]) -> Iterator[tuple[dict, dict[str, Span]]]:
    """(item, its spans) for every item that has requests; demonstrations and held-out items have none."""
    spans = by_item(requests, scores)
    return ((item, spans[item["item_id"]]) for item in items if item["item_id"] in spans)


def result(
    item: dict,
    spans: dict[str, Span],
    *,
    values: dict[str, float | None],
    prompt: str | None = None,
    option_scores: list[float] | None = None,
    choice: Choice | None = None,
    prediction: str | None = None,
    flag: str | None = None,
) -> dict:
    """One row of the per-task results. Values that are None or NaN are left out: a missing number is not a 0."""
    if prompt is None:
        prompt = "\n".join(part for part in (item["context"], item["question"]) if part)
    if prediction is None and choice and choice.predicted:
        prediction = " | ".join(item["choices"][i] for i in choice.predicted)
    found = flags(spans)
    return {
        "item_id": item["item_id"],
        "cluster_id": item["cluster_id"],
        "category": item["category"],
        "prompt": prompt,
        "options": list(item["choices"]),
        "gold": list(item["gold"]),
        "option_scores": option_scores,
        "prediction": prediction,
        "predicted": choice.predicted if choice else None,
        "correct": choice.correct if choice else None,
        "tie": choice.tie if choice else None,
        "values": {name: float(value) for name, value in values.items() if value is not None and not math.isnan(value)},
        "flag": "; ".join(part for part in (found, flag) if part) or None,
    }


def extra(item: dict) -> dict[str, str]:
    """The item's `extra` column as a dict, whether it comes from Python or from Parquet (a list of pairs)."""
    return dict(item.get("extra") or ())
