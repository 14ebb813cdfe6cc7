"""MoverScore and BERTScore of many pairs of texts; metrics with the same encoder share one pass through it."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import bertscore, moverscore
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens

CHUNK_TOKENS = 200_000  # tokens whose vectors are in memory at the same time: 600 MB for an encoder of width 768

Pair = tuple[str, str]  # answer, option


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
    """Return {metric name: (float64 [n_pairs], metadata: signature, layer, truncated texts)}.

    The score is NaN if a text has no token with weight.

    Args:
        group: Metrics that share an encoder, with all their options (see `compute.similarities`).
        documents: The options, from which idf is computed: the weights are then independent of the responses, and
            models are comparable.
        records: Record of the encoder by metric name.
    """
    record, variant = records[group[0]["metric"]], moverscore.VARIANTS[_variant(group[0])]
    encoder = _encoder(record.directory, record.name, bool(record.allow_pickle))
    texts = list(dict.fromkeys([*(text for pair in pairs for text in pair), *documents]))
    tokens = dict(zip(texts, variant.tokenize(encoder, texts), strict=True))
    metrics = [_prepare(spec, encoder, records[spec["metric"]], tokens, documents, language, variant) for spec in group]
    values = _scores(metrics, encoder, pairs, tokens, threads)
    truncated = sum(tokens[text].truncated for text in {text for pair in pairs for text in pair})
    return {metric.name: (values[metric.name], metric.metadata | {"truncated_texts": truncated}) for metric in metrics}


def _variant(spec: dict) -> str:
    """Return the variant of MoverScore whose tokens a metric uses; BERTScore uses those of the default one."""
    return spec.get("variant", "default")


@functools.lru_cache(maxsize=2)  # most evaluations of a model share one
def _encoder(directory: str, name: str, allow_pickle: bool) -> TokenEncoder:
    return TokenEncoder(ModelRecord(name=name, directory=directory, allow_pickle=allow_pickle))


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
    for chunk in chunks(pairs, tokens):
        chunk_pairs = [pairs[i] for i in chunk]
        distinct = list(dict.fromkeys(text for pair in chunk_pairs for text in pair))
        states = encoder.embed([tokens[text].ids for text in distinct], layers)
        for metric in metrics:
            vectors = {text: state[metric.layer] for text, state in zip(distinct, states, strict=True)}
            if metric.name == "moverscore":
                values[metric.name][chunk] = moverscore.moverscore(chunk_pairs, vectors, metric.weights, threads)
            else:
                f1 = bertscore.bertscore(chunk_pairs, vectors, metric.weights)
                offset = metric.rescale_offset
                values[metric.name][chunk] = f1 if offset is None else (f1 - offset) / (1 - offset)
    return values


def chunks(pairs: list[Pair], tokens: dict[str, Tokens]) -> Iterator[list[int]]:
    """Yield runs of pair indices whose distinct texts have at most CHUNK_TOKENS tokens in total, or of one pair."""
    chunk, texts, size = [], set(), 0
    for i, pair in enumerate(pairs):
        n_new = sum(len(tokens[text].ids) for text in set(pair) - texts)
        if chunk and size + n_new > CHUNK_TOKENS:
            yield chunk
            chunk, texts, size = [], set(), 0
            n_new = sum(len(tokens[text].ids) for text in set(pair))
        chunk.append(i)
        texts.update(pair)
        size += n_new
    if chunk:
        yield chunk
