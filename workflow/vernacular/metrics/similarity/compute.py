"""Similarities of one evaluation, computed from items and generations: one row per item and metric.

Generated texts, options and references are gathered first, so that each encoder embeds each distinct text once;
MoverScore and BERTScore with the same encoder share one pass through it.
Nothing depends on the evaluated model itself, so another metric or encoder requires no new generations.
"""

import functools
import itertools
import math
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from vernacular.checkpoints import inputs
from vernacular.checkpoints.files import bounded_build
from vernacular.core.errors import ConfigError, MachineError, ModelError, suggest
from vernacular.core.languages import has_two_scripts, in_one_script
from vernacular.core.library_errors import LibraryError, wrap_library_errors, wrap_tokenizer_panics
from vernacular.core.metadata import Outcome
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import bertscore, moverscore
from vernacular.metrics.similarity.encoder import VECTOR_BYTES, TokenEncoder, Tokens
from vernacular.metrics.similarity.outputs import parse_samples, sample_name
from vernacular.types import SIMIL_EVAL_STYLES, Generation, Item, Request, accepted_answers

_OPTIONS = {  # of each metric, and their defaults
    "cosine": {},
    "moverscore": {"variant": "default", "idf": False},
    "bertscore": {"idf": False, "rescale": False},
}
METRICS = tuple(_OPTIONS)
CHUNK_TOKENS = 200_000  # tokens that are sorted by length into batches, and whose vectors are stored at the same time
Pair = tuple[str, str]  # answer, option


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
        metrics: Names, or dicts of `metric` and options: see `_OPTIONS`, and `moverscore.VARIANTS`.
        encoders: Record of the encoder by metric name; "default" for all others.
        requests: Rows of REQUESTS; a tool's answer parser may read the prompt.

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
    strip = str if style in SIMIL_EVAL_STYLES else composed  # that tool compares surrounding whitespace, too
    # the texts with which an answer is compared: the choices, or the accepted answers if there are none
    options_by_item = {item["item_id"]: list(item["choices"]) or accepted_answers(item) for item in items}
    options = {key: options_by_item[key[0]] for key in outputs if key[0] in options_by_item}
    forms = {"": strip}  # by the end of the metrics' names
    if has_two_scripts(language):
        forms["_script"] = lambda text: in_one_script(strip(text), language)
    pairs = {  # a dict: ordered and unique
        (form(outputs[key].text), form(option)): None
        for form in forms.values()
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
    own = [outputs[key].text for key in options]
    metadata["counts"] = {
        "items": len(options),
        "empty_answers": sum(text is not None and not text.strip() for text in own),
        "failed_generations": own.count(None),
        "distinct_pairs": len(pairs),
        "distinct_texts": len({text for pair in pairs for text in pair}),
    }
    for name in (spec["metric"] for spec in specs if spec["metric"] in results):
        values, info = results[name]
        metadata["signatures"][name] = info.pop("signature")
        record_info = {key: getattr(records[name], key) for key in ("name", "revision", "fingerprint")}
        metadata["encoders"][name] = record_info | info
        value_by_pair = dict(zip(pairs, values, strict=True))
        for ((item, number), texts), (end, form) in itertools.product(options.items(), forms.items()):
            text = form(outputs[item, number].text or "")
            scores = [value_by_pair.get((text, form(option or ""))) for option in texts]
            scores = [None if score is None or math.isnan(score) else float(score) for score in scores]
            rows.append({"item_id": item, "metric": sample_name(name + end, number), "similarities": scores})
    return rows, metadata


def composed(text: str) -> str:
    """Return a text as encoders get it: in NFC, because normalizers drop marks of decomposed text (XLM-R's, of ọ̀).

    >>> composed(" mazo\u0301 "), len(composed("o\u0323"))
    ('mazó', 1)
    """
    return unicodedata.normalize("NFC", text).strip()


def _has_text(text: str | None) -> bool:
    return bool(text and text.strip())


def _resolve(metric: str | dict) -> dict:
    """Return a metric with all its options. Raises ConfigError if it or an option is unknown."""
    settings = {"metric": metric} if isinstance(metric, str) else dict(metric)
    name = settings.pop("metric")
    if name not in _OPTIONS:
        raise ConfigError(f'unknown similarity metric "{name}".{suggest(name, METRICS)}')
    for option in settings:
        if option not in _OPTIONS[name]:
            hint = suggest(option, _OPTIONS[name])
            raise ConfigError(f'unknown option "{option}" of the similarity metric {name}.{hint}')
    if (variant := settings.get("variant", "default")) not in moverscore.VARIANTS:
        raise ConfigError(f'unknown variant "{variant}" of moverscore.{suggest(variant, moverscore.VARIANTS)}')
    return {"metric": name} | _OPTIONS[name] | settings


def _record(encoders: dict[str, ModelRecord], metric: str) -> ModelRecord:
    record = encoders.get(metric) or encoders.get("default")
    if record is None:
        raise ConfigError(f'no encoder is set for the similarity metric "{metric}". Set similarity.encoders.default.')
    return record


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
    from vernacular.metrics.similarity import cosine  # sentence-transformers, whose import takes 4 s

    encoder = cosine.load(record)
    prefix = cosine.prefix_of(record, encoder)
    metadata = {"signature": cosine.signature(record, prefix), "truncated_texts": 0}
    metadata |= {"loading": encoder.loading} if getattr(encoder, "loading", None) else {}
    if not pairs:
        return np.empty(0), metadata
    metadata["truncated_texts"] = cosine.n_truncated(encoder, list({text for pair in pairs for text in pair}), prefix)
    try:
        return cosine.cosine(encoder, pairs, prefix), metadata
    except ModelError as error:  # raised without the encoder's name
        raise ModelError(f"{record.name}: {error}") from None


@dataclass(frozen=True)
class _TokenMetric:
    """One metric, prepared for token vectors."""

    name: str
    layer: int
    weights: dict[str, np.ndarray]  # text -> [n_tokens]
    rescale_offset: float | None  # BERTScore of unrelated texts, if scores are rescaled
    metadata: dict


def group_by_encoder(specs: list[dict], records: dict) -> list[list[dict]]:
    """Group `specs` by encoder and variant, so that one pass serves a group; cosine uses another encoder class."""
    groups: dict[tuple, list[dict]] = {}
    for spec in specs:
        directory = records[spec["metric"]].directory
        groups.setdefault((spec["metric"] == "cosine", directory, _variant(spec)), []).append(spec)
    return list(groups.values())


def token_metrics(group: list[dict], pairs: list[Pair], documents: list[str], records: dict, language, threads) -> dict:
    """Return {metric name: (float64 [n_pairs], metadata)} of metrics that share an encoder and their tokens.

    The score is NaN if a text has no token with weight. idf is computed from `documents`, the options: the weights are
    then independent of the responses, and models are comparable.
    """
    record, variant = records[group[0]["metric"]], moverscore.VARIANTS[_variant(group[0])]
    encoder = _encoder(record.directory, record.name, bool(record.allow_pickle), record.tokenizer_pipeline)
    texts = list(dict.fromkeys([*(text for pair in pairs for text in pair), *documents]))
    tokens = dict(zip(texts, variant.tokenize(encoder, texts), strict=True))
    metrics = [_prepare(spec, encoder, records[spec["metric"]], tokens, documents, language, variant) for spec in group]
    values = _scores(metrics, encoder, pairs, tokens, threads)
    truncated = sum(tokens[text].truncated for text in {text for pair in pairs for text in pair})
    metadata = {"truncated_texts": truncated} | ({"loading": encoder.loading} if encoder.loading else {})
    return {metric.name: (values[metric.name], metric.metadata | metadata) for metric in metrics}


def _variant(spec: dict) -> str:
    """Return the variant of MoverScore whose tokens a metric uses; BERTScore uses those of the default one."""
    return spec.get("variant", "default")


@functools.lru_cache(maxsize=2)  # most evaluations of a model share one
def _encoder(directory: str, name: str, allow_pickle: bool, pipeline: str | None) -> TokenEncoder:
    settings = {"allow_pickle": allow_pickle, "tokenizer_pipeline": pipeline}
    return TokenEncoder(ModelRecord(name=name, directory=directory, **settings))


def _prepare(
    spec, encoder, record, tokens: dict[str, Tokens], documents, language, variant: moverscore.Variant
) -> _TokenMetric:
    idf = bertscore.idf_table([tokens[text] for text in documents]) if spec["idf"] else None
    if spec["metric"] == "moverscore":
        weights = {text: variant.weigh(text_tokens, idf) for text, text_tokens in tokens.items()}
        signature = moverscore.signature(record, variant=spec["variant"], idf=spec["idf"])
        return _TokenMetric("moverscore", encoder.n_layers, weights, None, {"signature": signature})
    layer = bertscore.layer_of(record, encoder)
    unweighted = {encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id}
    weights = {text: bertscore.token_weights(text_tokens, idf, unweighted) for text, text_tokens in tokens.items()}
    offset = bertscore.rescale_offset(record, language, layer) if spec["rescale"] else None
    rescaled = None if spec["rescale"] and offset is None else spec["rescale"]
    signature = bertscore.signature(record, layer=layer, idf=spec["idf"], rescaled=rescaled)
    return _TokenMetric("bertscore", layer, weights, offset, {"signature": signature, "layer": layer})


def _scores(metrics: list[_TokenMetric], encoder: TokenEncoder, pairs, tokens, threads) -> dict[str, np.ndarray]:
    """Return {metric name: float64 [n_pairs]}; all requested layers are from the same forward pass."""
    values = {metric.name: np.empty(len(pairs)) for metric in metrics}
    layers = tuple(sorted({metric.layer for metric in metrics}))
    lengths = {text: len(text_tokens.ids) for text, text_tokens in tokens.items()}
    for chunk in chunks(range(len(pairs)), pairs, lengths, CHUNK_TOKENS):
        distinct = list(dict.fromkeys(text for i in chunk for text in pairs[i]))
        store = encoder.prepare([tokens[text].ids for text in distinct], layers)
        sizes = {text: store.n_bytes(tuple(tokens[text].ids)) for text in distinct}
        for part in chunks(chunk, pairs, sizes, VECTOR_BYTES):
            part_pairs = [pairs[i] for i in part]
            texts = list(dict.fromkeys(text for pair in part_pairs for text in pair))
            states = dict(zip(texts, encoder.embed([tokens[text].ids for text in texts], layers), strict=True))
            for metric in metrics:
                vectors = {text: state[metric.layer] for text, state in states.items()}
                if metric.name == "moverscore":
                    values[metric.name][part] = moverscore.moverscore(part_pairs, vectors, metric.weights, threads)
                else:
                    f1 = bertscore.bertscore(part_pairs, vectors, metric.weights)
                    offset = metric.rescale_offset
                    values[metric.name][part] = f1 if offset is None else (f1 - offset) / (1 - offset)
    return values


def chunks(indices: Iterable[int], pairs: list[Pair], sizes: dict[str, int], limit: int) -> Iterator[list[int]]:
    """Yield runs of pair indices whose distinct texts have at most `limit` in total, or of one pair."""
    chunk, texts, size = [], set(), 0
    for i in indices:
        n_new = sum(sizes[text] for text in set(pairs[i]) - texts)
        if chunk and size + n_new > limit:
            yield chunk
            chunk, texts, size = [], set(), 0
            n_new = sum(sizes[text] for text in set(pairs[i]))
        chunk.append(i)
        texts.update(pairs[i])
        size += n_new
    if chunk:
        yield chunk
