"""Per-item results and values of one evaluation, from the outputs of a model; no model is loaded."""

from collections.abc import Mapping, Sequence

from vernacular import __version__
from vernacular.core.fingerprint import import_modules
from vernacular.core.languages import has_two_scripts
from vernacular.metrics.bits import as_pseudo
from vernacular.metrics.classification import METRICS as CLASSIFICATION
from vernacular.metrics.classification import add_classes, with_classes
from vernacular.metrics.contamination import without_signals
from vernacular.metrics.language import METRICS as LANGUAGE
from vernacular.metrics.metric import Metric
from vernacular.metrics.similarity.outputs import sample_name, samples_of
from vernacular.metrics.spans import items_with_spans, within_noise
from vernacular.protocols import reference_metrics
from vernacular.protocols.generation.metrics import SIMILARITIES, mean_row
from vernacular.protocols.registry import OWN, PROSE, PROTOCOLS
from vernacular.types import Item, Request, Result

_MODULES = import_modules("vernacular/protocols/*/metrics.py")
PROTOCOL_METRICS = {name: reference_metrics if own.reference_of else _MODULES[name] for name, own in OWN.items()}
_ORDER = "order_"  # options of the canonical-order test, on which its metrics alone depend


def declared_metrics(protocol: str | None) -> dict[str, Metric]:
    """Return the metrics that a protocol declares, by name and in their order; none for that of another tool."""
    module = PROTOCOL_METRICS.get(protocol)
    declaration = PROTOCOLS.get(protocol)
    metrics = [*(module.METRICS if module else []), *getattr(module, "SCRIPT_METRICS", [])]
    metrics += CLASSIFICATION if declaration and declaration.majority == "position" else []
    metrics += LANGUAGE if protocol in PROSE else []
    return {metric.name: metric for metric in metrics}


def metrics_in(protocol: str, language: str | None) -> list[Metric]:
    """Return the metrics of a protocol in a language, also those in one script; [] for that of another tool."""
    module = PROTOCOL_METRICS.get(protocol)
    return [
        *(module.METRICS if module else []),
        *(getattr(module, "SCRIPT_METRICS", []) if has_two_scripts(language) else []),
    ]


def missing_metrics(protocol: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return why metrics of a protocol lack, by name: (a package is not installed, a file cannot be fetched)."""
    module = PROTOCOL_METRICS.get(protocol)
    return module.missing() if hasattr(module, "missing") else ({}, {})


def tool_signatures(protocol: str, language: str) -> dict[str, str]:
    """Return the signatures of metrics, by name, that a tool computes in another way in this language."""
    module = PROTOCOL_METRICS.get(protocol)
    return module.signatures(language) if hasattr(module, "signatures") else {}


def evaluate(
    protocol: str,
    items: list[Item],
    requests: list[Request],
    outputs: list[dict],
    similarities: list[dict],
    *,
    masked: bool = False,
    fills_in: bool = False,
    pass_at: int | None = None,
    answers: Sequence[Mapping] = (),
    language: str | None = None,
    noise: Mapping[str, float] | None = None,
) -> tuple[list[dict], list[Metric]]:
    """Return (rows per TASK_RESULTS, their metrics). `outputs` are scores, or generations with `similarities`.

    `masked`: pseudo-log-likelihoods; `fills_in`: of the items without a prompt. `pass_at`: k of pass@k. `answers`: see
    `protocols.choice.parser`. `language`: of the outputs, whose texts are compared in one script, too, if it has two.
    `noise`: see `within_noise`.
    """
    module = PROTOCOL_METRICS[protocol]
    if PROTOCOLS[protocol].generates:
        rows = _generated_rows(protocol, items, requests, outputs, similarities, pass_at, answers, language)
    else:
        rows = []
        for item, spans in items_with_spans(items, requests, outputs):
            rows.append(module.result_of(item, spans))
            rows[-1]["metrics"] |= within_noise(rows[-1]["option_scores"], spans, noise or {})
            if masked or (fills_in and any(not span.prompt.strip() for span in spans.values())):
                prefixes = {} if masked else {"prefixes": ("",)}
                rows[-1]["metrics"] = as_pseudo(without_signals(rows[-1]["metrics"]), **prefixes)
    add_classes(items, rows)
    return rows, with_classes(metrics_in(protocol, language), {name for row in rows for name in row["metrics"]})


def _generated_rows(protocol, items, requests, outputs, similarities, pass_at, answers, language) -> list[Result]:
    """Return the row of each item; of several samples, values are means, and all else is the first's."""
    declaration, module = PROTOCOLS[protocol], PROTOCOL_METRICS[protocol]
    result_of = module.result_of
    similar = {(row["item_id"], row["metric"]): row["similarities"] for row in similarities}
    inputs = {"answers": answers} if declaration.letters else {}
    rows = []
    for item, request, samples in samples_of(items, requests, outputs):
        results = []
        for number, output in enumerate(samples):
            if declaration.similarity:
                keys = {name: (item["item_id"], sample_name(name, number)) for name in SIMILARITIES}
                inputs["similarities"] = {name: similar[key] for name, key in keys.items() if key in similar}
            results.append(result_of(item, request, output, **inputs))
            if has_two_scripts(language) and hasattr(module, "script_values") and output.text is not None:
                own = {name: (item["item_id"], sample_name(f"{name}_script", number)) for name in SIMILARITIES}
                own = {name: similar[key] for name, key in own.items() if key in similar}
                results[-1]["metrics"] |= module.script_values(item, output.text, own, language)
        outcome = "accuracy" if declaration.letters else "exact_match"
        rows.append(mean_row(results, pass_at, outcome) if len(results) > 1 else results[0])
    return rows


def label_values(
    values: list[dict], metadata: dict, signatures: dict[str, str], conditions: dict[str, object] | None = None
) -> list[dict]:
    """Return values, as `aggregate` returns them, as rows per METRICS.

    `metadata`: columns of evaluation and model; `signatures`: by similarity metric and judge; `conditions`: see
    `signature_conditions`.
    """
    return [
        {**metadata, **row, "signature": signature(row["metric"], metadata, signatures, conditions)} for row in values
    ]


def signature_conditions(protocol: str, options: dict, bos_policy: str | None) -> dict[str, object]:
    """Return the options of a protocol on which all of its values depend, and the BOS policy; {} if there are none.

    >>> signature_conditions("text", {"overlap": 16}, "auto")
    {'overlap': 16, 'window': 'model', 'bos': 'auto'}
    """
    defaults = PROTOCOLS[protocol].signature_options
    values = {name: options.get(name, default) for name, default in defaults.items()}
    values |= {name: value for name, value in options.items() if defaults and name.startswith(_ORDER)}
    values |= {"bos": bos_policy} if values and bos_policy else {}
    if PROTOCOLS[protocol].generates:
        values |= {name: options[name] for name in ("repeats", "pass_at") if name in options}
        values |= dict(sorted(options.get("gen_kwargs", {}).items()))
    return values


def signature(
    metric: str, metadata: dict, signatures: dict[str, str], conditions: dict[str, object] | None = None
) -> str:
    """Return a signature `metric|key:value|…`, as in sacrebleu; values are comparable only if it is equal.

    >>> metadata = {"protocol": "options", "shots": 5, "seed": 0, "style": "default"}
    >>> signature("accuracy", metadata, {})  # doctest: +ELLIPSIS
    'accuracy|protocol:options|shots:5|seed:0|style:default|v:...'
    """
    encoder = next((text for name, text in signatures.items() if f"{metric}_".startswith(f"{name}_")), None)
    parts = [metric, *(f"{key}:{metadata[key]}" for key in ("protocol", "shots", "seed", "style"))]
    for name, value in (conditions or {}).items():
        if metric.startswith(_ORDER) or not name.startswith(_ORDER):
            parts.append(f"{name}:{value}")
    if (declared := declared_metrics(metadata["protocol"]).get(metric)) and declared.tool_signature and not encoder:
        parts.append(declared.tool_signature)
    if "bits_per_" in metric:
        parts.append("length:span")  # bytes and characters of the scored span, its leading space included
    return "|".join([*parts, *([encoder] if encoder else []), f"v:{__version__}"])
