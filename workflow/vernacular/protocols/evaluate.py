"""Per-item results and values of one evaluation, from the outputs of a model; no model is loaded."""

from vernacular import __version__
from vernacular.core.fingerprint import import_modules
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import Metric
from vernacular.protocols.registry import OWN, PROTOCOLS
from vernacular.types import Item, Request

_MODULES = import_modules("vernacular/protocols/*/metrics.py")
PROTOCOL_METRICS = {name: _MODULES[name] for name in OWN}


def evaluate(
    protocol: str, items: list[Item], requests: list[Request], outputs: list[dict], similarities: list[dict]
) -> tuple[list[dict], list[Metric]]:
    """Return (rows per TASK_RESULTS, their metrics). `outputs` are scores, or generations with `similarities`."""
    module = PROTOCOL_METRICS[protocol]
    if PROTOCOLS[protocol].generates:
        return module.per_item(items, requests, outputs, similarities), module.METRICS
    return module.per_item(items, requests, outputs), module.METRICS


def metric_rows(rows: list[dict], metrics: list[Metric], metadata: dict, signatures: dict[str, str]) -> list[dict]:
    """Return rows per METRICS: values of per-item results over all items and by category.

    Args:
        rows: Rows per TASK_RESULTS.
        metrics: Metrics to aggregate.
        metadata: Columns that identify the evaluation and the model.
        signatures: Signature by similarity metric, from its encoder.
    """
    return label_values(aggregate(rows, metrics, seed=0, categories=True), metadata, signatures)


def label_values(values: list[dict], metadata: dict, signatures: dict[str, str]) -> list[dict]:
    """Return values, as `aggregate` returns them, as rows per METRICS."""
    return [{**metadata, **row, "signature": signature(row["metric"], metadata, signatures)} for row in values]


def signature(metric: str, metadata: dict, signatures: dict[str, str]) -> str:
    """Return a signature `metric|key:value|…`, as in sacrebleu; values are comparable only if it is equal.

    >>> metadata = {"protocol": "options", "shots": 5, "seed": 0, "style": "default"}
    >>> signature("accuracy", metadata, {})  # doctest: +ELLIPSIS
    'accuracy|protocol:options|shots:5|seed:0|style:default|v:...'
    """
    encoder = next((text for name, text in signatures.items() if metric.startswith(f"{name}_")), None)
    parts = [metric, *(f"{key}:{metadata[key]}" for key in ("protocol", "shots", "seed", "style"))]
    return "|".join([*parts, *([encoder] if encoder else []), f"v:{__version__}"])
