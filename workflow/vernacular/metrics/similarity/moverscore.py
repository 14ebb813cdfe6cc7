"""MoverScore (Zhao et al. 2019, https://aclanthology.org/D19-1053): the cost of turning one text into another.

Tokens are points on the unit sphere (contextual embeddings of the encoder's last layer), each with a weight; the cost
of moving one onto another is their Euclidean distance, and

    MoverScore = 1 / (1 + EMD),

1 for the same text, with the exact earth mover's distance by POT. By hand: [a] with weight 1 against [a, b] with
weights ½, a ⊥ b: half the mass stays, half travels √2, EMD = √2/2, score = 1 / 1.7071 = 0.5858.

Two variants differ in what has weight:

* `default`: every word's first piece that is not punctuation, words and pieces by the tokenizer's own account, casing
  as the model was trained. Special tokens have none (as under the paper's idf, where [CLS] is in every text).
* `simil-eval`: as that tool computes it (after moverscore_v2.py): the text lower-cased and, by BERT tokenizers,
  stripped of accents even for a cased model; literal "[CLS]" and "[SEP]" around it, which to other vocabularies than
  BERT's are unknown tokens, both with weight; pieces with "##" and ASCII punctuation without, so that the sub-words of
  RoBERTa count and those of BERT do not.
"""

import string
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import numpy as np
import ot

from vernacular.core.errors import ModelError
from vernacular.metrics.similarity.cosine import described
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens
from vernacular.types import ModelRecord

VARIANTS = ("default", "simil-eval")


def token_weights(tokens: Tokens, idf: dict[int, float] | None = None) -> np.ndarray:
    """Default variant: float64 [n_tokens]; 0 for special tokens, punctuation and the rest of a word, else idf or 1."""
    weights = np.zeros(len(tokens.ids))
    seen = set()
    for i, (surface, word) in enumerate(zip(tokens.surfaces, tokens.words, strict=True)):
        if word is None or word in seen or is_punctuation(surface):
            continue
        seen.add(word)
        weights[i] = 1.0 if idf is None else idf[tokens.ids[i]]
    return weights


def is_punctuation(surface: str) -> bool:
    """No letter, digit or symbol beyond ASCII's: blanks, "«", "…", "+"; an emoji is not."""
    return all(c.isspace() or c in string.punctuation or unicodedata.category(c)[0] == "P" for c in surface)


def simil_eval_tokens(encoder: TokenEncoder, texts: list[str]) -> list[Tokens]:
    """`simil-eval` variant: the tokens that tool feeds its encoder."""
    found = []
    for tokens in encoder.tokenize(texts, lower_case=True):
        pieces = [piece for piece, word in zip(tokens.pieces, tokens.words, strict=True) if word is not None]
        pieces = ["[CLS]", *pieces[: encoder.max_tokens - 2], "[SEP]"]
        ids = encoder.tokenizer.convert_tokens_to_ids(pieces)
        if None in ids:
            raise ModelError(
                f"{encoder.name}: its vocabulary has neither [CLS] and [SEP] nor a token for unknown words, "
                'so it has no moverscore of the variant "simil-eval".'
            )
        found.append(Tokens(ids, pieces, [""] * len(ids), [None] * len(ids), tokens.truncated))
    return found


def simil_eval_weights(tokens: Tokens, idf: dict[int, float] | None = None) -> np.ndarray:
    """`simil-eval` variant: float64 [n_tokens]; 0 for pieces with "##" and ASCII punctuation, else idf or 1."""
    dropped = ["##" in piece or piece in set(string.punctuation) for piece in tokens.pieces]
    return np.array([0.0 if d else 1.0 if idf is None else idf[i] for d, i in zip(dropped, tokens.ids, strict=True)])


def moverscore(pairs, vectors: dict, weights: dict, threads: int = 1) -> np.ndarray:
    """MoverScore of each pair of texts, float64 [n_pairs]; NaN where a text has no token with weight, or NaN vectors.

    `vectors` and `weights` map a text to [n_tokens, hidden] and [n_tokens]. Raises ArithmeticError if the exact solver
    gives up, which it does not on texts that fit an encoder.
    """
    clouds = {text: _cloud(vectors[text], weights[text]) for text in {t for pair in pairs for t in pair}}

    def score(pair):
        return _score(clouds[pair[0]], clouds[pair[1]])

    # the solver leaves the interpreter's lock, but below some thousand flows the Python around it is what takes time
    large = sum(len(clouds[a][0]) * len(clouds[b][0]) for a, b in pairs) > 2000 * len(pairs)
    if large and threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            return np.fromiter(pool.map(score, pairs), np.float64)
    return np.fromiter(map(score, pairs), np.float64)


def _cloud(vectors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that have weight: unit vectors [k, hidden] and weights [k] that sum to 1, in float64."""
    kept = weights > 0
    points = vectors[kept].astype(np.float64)
    with np.errstate(invalid="ignore"):  # a vector of nothing but zeros has no direction
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points, weights[kept] / weights.sum()


def _score(one, other) -> float:
    (points, mass), (points_2, mass_2) = one, other
    if not len(points) or not len(points_2):
        return float("nan")
    # |x - y|² = 2 - 2·x·y on the unit sphere
    distances = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * points @ points_2.T))
    if not np.isfinite(distances).all():
        return float("nan")
    cost, log = ot.emd2(mass, mass_2, distances, numItermax=1_000_000, log=True, center_dual=False)
    if log["warning"] is not None:
        raise ArithmeticError(f"exact earth mover's distance of {distances.shape} tokens: {log['warning']}")
    return 1.0 / (1.0 + float(cost))


def signature(record: ModelRecord, *, variant: str, idf: bool) -> str:
    """What the numbers depend on: `moverscore|variant:…|encoder:…|layer:last|idf:…|pot:…|transformers:…`."""
    return (
        f"moverscore|variant:{variant}|encoder:{described(record)}|layer:last|idf:{'yes' if idf else 'no'}"
        f"|pot:{version('pot')}|transformers:{version('transformers')}"
    )
