"""Similarities of one evaluation, computed from items and generations: one row per item and metric.

Generated texts, options and references are gathered first, so that each encoder embeds each distinct text once.
Nothing depends on the evaluated model itself, so another metric or encoder requires no new generations.
"""

import math

import numpy as np
import torch

from vernacular.checkpoints import inputs
from vernacular.checkpoints.files import bounded_build
from vernacular.core.errors import ConfigError, MachineError, ModelError, suggest
from vernacular.core.library_errors import LibraryError, wrap_library_errors, wrap_tokenizer_panics
from vernacular.core.metadata import Outcome
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import cosine, moverscore
from vernacular.metrics.similarity.outputs import parse_samples, sample_name
from vernacular.metrics.similarity.token_metrics import Pair, group_by_encoder, token_metrics
from vernacular.types import SIMIL_EVAL_STYLES, Generation, Item, Request, accepted_answers

METRICS = ("cosine", "moverscore", "bertscore")


def similarities(
    items: list[Item],
    generations: list[Generation],
    metrics: list[str | dict],
    encoders: dict[str, dict],
    *,
    requests: list[Request],
    style: str = "default",
    language: str | None = None,
    threads: int = 1,
) -> tuple[list[dict], dict]:
    """Compute the similarities of one evaluation.

    Args:
        items: Rows of ITEMS.
        generations: Rows of GENERATIONS.
        metrics: Names, or dicts of `metric` and options: `variant` (moverscore; see `moverscore.VARIANTS`), `idf`
            (moverscore, bertscore), `rescale` (bertscore).
        encoders: Record of the encoder by metric name; "default" for all others.
        requests: Rows of REQUESTS; a tool's answer parser may read the prompt.
        style: Prompt style.

    Returns:
        Rows per SIMILARITIES, and metadata: `signatures` and `encoders` by metric, outcome, and counts. An item's
        similarities are in the order of its choices; an item without choices has one to each accepted answer, or its
        target. For an empty answer or option it is null, never 0.0. A metric whose encoder is unavailable or fails has
        no rows, and is missing from the outcome, with the reason.

    Raises:
        ConfigError: A metric or option is unknown.
        MachineError: The encoder does not fit in memory.
    """
    torch.set_num_threads(threads)
    specs = [_resolve(metric) for metric in metrics]
    samples = parse_samples(requests, generations)
    outputs = {(item, number): out for item, outs in samples.items() for number, out in enumerate(outs)}
    strip = str if style in SIMIL_EVAL_STYLES else str.strip  # that tool compares surrounding whitespace, too
    options_by_item = {item["item_id"]: options_of(item) for item in items}
    options = {key: options_by_item[key[0]] for key in outputs if key[0] in options_by_item}
    pairs = {  # a dict: ordered and unique
        (strip(outputs[key].text), strip(option)): None
        for key, texts in options.items()
        for option in texts
        if _has_text(outputs[key].text) and _has_text(option)
    }
    documents = [
        strip(option) for (_, number), texts in options.items() for option in texts if _has_text(option) and not number
    ]

    records = {spec["metric"]: _record(encoders, spec["metric"]) for spec in specs}
    results: dict[str, tuple[np.ndarray, dict]] = {}
    missing: dict[str, str] = {}

    def compute_all(group: list[dict]) -> None:
        try:
            results.update(_compute_group(group, list(pairs), documents, records, language, threads))
        except MachineError:
            raise
        except ModelError as error:
            if len(group) > 1:  # the error may be specific to one metric, such as a missing layer
                for spec in group:
                    compute_all([spec])
            else:
                missing[group[0]["metric"]] = str(error)

    for group in group_by_encoder(specs, records):
        compute_all(group)
    rows, metadata = [], {"signatures": {}, "encoders": {}, "outcome": Outcome(missing=missing)}
    metadata["counts"] = _counts(outputs, options, pairs)
    for name in (spec["metric"] for spec in specs if spec["metric"] in results):
        values, info = results[name]
        metadata["signatures"][name] = info.pop("signature")
        record_info = {key: getattr(records[name], key) for key in ("name", "revision", "fingerprint")}
        metadata["encoders"][name] = record_info | info
        value_by_pair = dict(zip(pairs, values, strict=True))
        for (item, number), texts in options.items():
            text = strip(outputs[item, number].text or "")
            scores = [value_by_pair.get((text, strip(option or ""))) for option in texts]
            scores = [None if score is None or math.isnan(score) else float(score) for score in scores]
            rows.append({"item_id": item, "metric": sample_name(name, number), "similarities": scores})
    return rows, metadata


def options_of(item: Item) -> list[str]:
    """Return the texts with which an answer is compared: the choices, or the accepted answers if there are none."""
    return list(item["choices"]) or accepted_answers(item)


def _has_text(text: str | None) -> bool:
    return bool(text and text.strip())


def _resolve(metric: str | dict) -> dict:
    """Return a metric with all its options. Raises ConfigError if it or an option is unknown."""
    settings = {"metric": metric} if isinstance(metric, str) else dict(metric)
    allowed = {
        "cosine": {},
        "moverscore": {"variant": "default", "idf": False},
        "bertscore": {"idf": False, "rescale": False},
    }
    name = settings.pop("metric")
    if name not in allowed:
        raise ConfigError(f'unknown similarity metric "{name}".{suggest(name, METRICS)}')
    for option in settings:
        if option not in allowed[name]:
            raise ConfigError(
                f'unknown option "{option}" of the similarity metric {name}.{suggest(option, allowed[name])}'
            )
    if settings.get("variant", "default") not in moverscore.VARIANTS:
        raise ConfigError(
            f'unknown variant "{settings["variant"]}" of moverscore.{suggest(settings["variant"], moverscore.VARIANTS)}'
        )
    return {"metric": name} | allowed[name] | settings


def _record(encoders: dict[str, ModelRecord], metric: str) -> ModelRecord:
    record = encoders.get(metric) or encoders.get("default")
    if record is None:
        raise ConfigError(f'no encoder is set for the similarity metric "{metric}". Set similarity.encoders.default.')
    return record


def _counts(outputs, options, pairs) -> dict:
    return {
        "items": len(options),
        "empty_answers": sum(outputs[item].text is not None and not outputs[item].text.strip() for item in options),
        "failed_generations": sum(outputs[item].text is None for item in options),
        "distinct_pairs": len(pairs),
        "distinct_texts": len({text for pair in pairs for text in pair}),
    }


def _compute_group(
    group: list[dict], pairs: list[Pair], documents: list[str], records: dict, language, threads
) -> dict:
    """Return {metric name: (float64 [n_pairs], metadata)} of metrics that share an encoder; raises ModelError."""
    record = records[group[0]["metric"]]
    if reason := record.unavailable:
        raise ModelError(f"{record.name}: encoder unavailable: {reason}")
    inputs.verify(record)
    try:
        with wrap_library_errors(), wrap_tokenizer_panics(record), bounded_build(record):
            if group[0]["metric"] == "cosine":
                results = {"cosine": _cosine(pairs, record)}
            else:
                results = token_metrics(group, pairs, documents, records, language, threads)
    except LibraryError as error:
        raise ModelError(f"{record.name}: the encoder cannot be used: {error}.") from error
    inputs.verify(record)  # detects files written while the encoder was read
    return results


def _cosine(pairs: list[Pair], record: ModelRecord) -> tuple[np.ndarray, dict]:
    encoder = cosine.load(record)
    prefix = cosine.prefix_of(record, encoder)
    metadata = {"signature": cosine.signature(record, prefix), "truncated_texts": 0}
    if not pairs:
        return np.empty(0), metadata
    metadata["truncated_texts"] = cosine.n_truncated(encoder, list({text for pair in pairs for text in pair}), prefix)
    try:
        return cosine.cosine(encoder, pairs, prefix), metadata
    except ModelError as error:  # raised without the encoder's name
        raise ModelError(f"{record.name}: {error}") from None
