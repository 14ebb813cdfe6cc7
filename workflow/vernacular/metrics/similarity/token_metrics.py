"""MoverScore and BERTScore of many pairs of texts; metrics with the same encoder share one pass through it.

BERTScore F1 (Zhang et al. 2020, https://arxiv.org/abs/1904.09675) has the matching of the bert-score package: each
token is matched to the most similar one of the other text; precision is the mean over the answer's tokens, recall over
the option's, and F1 their harmonic mean; `idf` and rescaling are those of the package. There are two differences from a
call of the package: each text is embedded once for all its pairs, and a pair's score is independent of the other pairs
in its batch.
"""

import csv
import functools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import bert_score
import numpy as np
import torch
from bert_score.utils import greedy_cos_idf, model2layers

from vernacular.core.languages import base_language
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import moverscore
from vernacular.metrics.similarity.cosine import encoder_label
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens


def layer_of(record: ModelRecord, encoder: TokenEncoder) -> int:
    """Return the layer of the record, else the one that bert-score tuned for the encoder, else 3/4 of its layers.

    3/4 is typical of the tuned layers: 9 of 12, 18 of 24.
    """
    if record.layer is not None:
        return record.layer
    tuned = model2layers.get(record.name) or model2layers.get(record.name.rsplit("/", 1)[-1])
    return tuned or math.ceil(0.75 * encoder.n_layers)


def idf_table(documents: list[Tokens]) -> dict[int, float]:
    """Return {token ID: ln((M + 1) / (df + 1))} over M texts, as in bert_score and moverscore_v2; unseen: ln(M + 1)."""
    counts = Counter(token for tokens in documents for token in set(tokens.ids))
    table = _DefaultDict(math.log(len(documents) + 1))
    table.update({token: math.log((len(documents) + 1) / (n + 1)) for token, n in counts.items()})
    return table


class _DefaultDict(dict):
    """A dict with a default value."""

    def __init__(self, default: float):
        super().__init__()
        self.default = default

    def __missing__(self, key):
        return self.default


def token_weights(tokens: Tokens, idf: dict[int, float] | None, unweighted: set[int]) -> np.ndarray:
    """Return float64 [n_tokens]: idf, or 1 except 0 for the IDs `unweighted` ([CLS] and [SEP]), as in bert_score."""
    if idf is not None:
        return np.array([idf[i] for i in tokens.ids])
    return np.array([float(i not in unweighted) for i in tokens.ids])


@torch.inference_mode()
def bertscore(pairs, vectors: dict, weights: dict, batch_size: int = 256) -> np.ndarray:
    """Compute F1 of each (answer, option), float64 [n_pairs]; NaN if a text has no token with weight, or NaN vectors.

    `vectors` and `weights` map a text to float32 [n_tokens, hidden] and float64 [n_tokens].
    """
    scores = np.full(len(pairs), np.nan)
    texts = {text for pair in pairs for text in pair}
    valid = {text for text in texts if weights[text].sum() > 0 and _all_finite_nonzero(vectors[text])}
    # a batch contains pairs of one size, because the package matches a token to the padding, with a similarity of 0, if
    # all tokens of the other text have negative similarities
    indices_by_size: dict[tuple[int, ...], list[int]] = {}
    for i, pair in enumerate(pairs):
        if valid.issuperset(pair):
            indices_by_size.setdefault(tuple(len(weights[text]) for text in pair), []).append(i)
    for indices in indices_by_size.values():
        for start in range(0, len(indices), batch_size):
            batch = indices[start : start + batch_size]
            responses, options = (_stack([pairs[i][side] for i in batch], vectors, weights) for side in (0, 1))
            scores[batch] = greedy_cos_idf(*options, *responses)[2].double().numpy()
    return scores


def _all_finite_nonzero(vectors: np.ndarray) -> bool:
    """Return whether all vectors are finite and nonzero; otherwise, the package would return an F1 of 0.0."""
    norms = np.linalg.norm(vectors, axis=1)
    return bool(np.isfinite(norms).all() and norms.all())


def _stack(texts, vectors, weights):
    """Return embeddings [batch, length, hidden], mask and weights [batch, length]; `greedy_cos_idf` modifies them."""
    embeddings = torch.from_numpy(np.stack([vectors[text] for text in texts]))
    idf = torch.from_numpy(np.stack([weights[text] for text in texts])).float()
    return embeddings, torch.ones_like(idf), idf


def rescale_offset(record: ModelRecord, language: str | None, layer: int) -> float | None:
    """Return the package's F1 of unrelated sentences for this encoder and language; None if it has none."""
    directory = Path(bert_score.__file__).parent / "rescale_baseline" / base_language(language or "none")
    for name in (record.name, record.name.rsplit("/", 1)[-1]):
        path = directory / f"{name}.tsv"
        if path.is_file():
            with open(path, encoding="utf-8") as file:
                return next((float(row["F"]) for row in csv.DictReader(file) if int(row["LAYER"]) == layer), None)
    return None


def signature(record: ModelRecord, *, layer: int, idf: bool, rescaled: bool | None) -> str:
    """Return what the scores depend on, in the order of bert_score's hash; `rescaled` None: requested, no baseline."""
    rescaling = {True: "yes", False: "no", None: "no (no baseline)"}[rescaled]
    return (
        f"bertscore|encoder:{encoder_label(record)}|layer:{layer}|idf:{'yes' if idf else 'no'}|rescaled:{rescaling}"
        f"|bert-score:{version('bert-score')}|transformers:{version('transformers')}"
    )


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
    idf = idf_table([tokens[text] for text in documents]) if spec["idf"] else None
    if spec["metric"] == "moverscore":
        weights = {text: variant.weigh(text_tokens, idf) for text, text_tokens in tokens.items()}
        signature = moverscore.signature(record, variant=spec["variant"], idf=spec["idf"])
        return _TokenMetric("moverscore", encoder.n_layers, weights, None, {"signature": signature})
    layer = layer_of(record, encoder)
    unweighted = {encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id}
    weights = {text: token_weights(text_tokens, idf, unweighted) for text, text_tokens in tokens.items()}
    offset = rescale_offset(record, language, layer) if spec["rescale"] else None
    rescaled = None if spec["rescale"] and offset is None else spec["rescale"]
    signature = signature(record, layer=layer, idf=spec["idf"], rescaled=rescaled)
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
                f1 = bertscore(chunk_pairs, vectors, metric.weights)
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
