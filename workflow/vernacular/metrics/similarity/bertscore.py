"""BERTScore F1 (Zhang et al. 2020, https://arxiv.org/abs/1904.09675), with the matching of the bert-score package.

Each token is matched to the most similar one of the other text; precision is the mean over the answer's tokens, recall
over the option's, and F1 their harmonic mean; `idf` and rescaling are those of the package. There are two differences
from a call of the package: each text is embedded once for all its pairs, and a pair's score is independent of the other
pairs in its batch.
"""

import csv
import math
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from vernacular.core.languages import base_language
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens, encoder_label


def layer_of(record: ModelRecord, encoder: TokenEncoder) -> int:
    """Return the layer of the record, else the one that bert-score tuned for the encoder, else 3/4 of its layers.

    3/4 is typical of the tuned layers: 9 of 12, 18 of 24.
    """
    if record.layer is not None:
        return record.layer
    from bert_score.utils import model2layers  # where it is used: pandas and Matplotlib come with it

    tuned = model2layers.get(record.name) or model2layers.get(record.name.rsplit("/", 1)[-1])
    return tuned or math.ceil(0.75 * encoder.n_layers)


def idf_table(documents: list[Tokens]) -> dict[int, float]:
    """Return {token ID: ln((M + 1) / (df + 1))} over M texts, as in bert_score and moverscore_v2; unseen: ln(M + 1)."""
    counts = Counter(token for tokens in documents for token in set(tokens.ids))
    known = {token: math.log((len(documents) + 1) / (n + 1)) for token, n in counts.items()}
    return defaultdict(lambda: math.log(len(documents) + 1), known)


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
    from bert_score.utils import greedy_cos_idf

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
    import bert_score

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
