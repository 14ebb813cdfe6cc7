"""What another tool has defined for an evaluation, as the results per item state it: metrics, and documents."""

from pathlib import Path

from vernacular.core import artifacts
from vernacular.metrics.metric import Metric
from vernacular.protocols.lm_eval.metrics import to_metric


def tool_metrics(directory: Path, models: list[str], evaluation: str) -> list[Metric]:
    """Return the metrics of an evaluation that any model's results in `directory` define; [] if none does."""
    paths = (directory / model / "tasks" / f"{evaluation}.parquet" for model in models)
    definitions = next((found for path in paths if (found := artifacts.metadata(path).get("metrics"))), [])
    return [to_metric(definition) for definition in definitions]


def tool_documents(directory: Path, models: list[str], evaluation: str) -> str | None:
    """Return a hash of the documents that another tool has read for an evaluation; None without, or if unavailable."""
    for model in models:
        source = artifacts.metadata(directory / model / "tasks" / f"{evaluation}.parquet").get("dataset", {})
        if "tasks" in source.get("source", {}):
            return source["source"]["sha256"]
    return None
