"""MoverScore (Zhao et al. 2019, https://aclanthology.org/D19-1053): an earth mover's distance between two texts.

Tokens are points on the unit sphere (contextual embeddings of the encoder's last layer), each with a weight. The cost
of moving one onto another is their Euclidean distance, and

    MoverScore = 1 / (1 + EMD),

which is 1 for equal texts; POT computes the exact distance. Example: [a] with weight 1 and [a, b] with weights ½,
a ⊥ b: half the mass is moved by √2, so EMD = √2/2 and the score is 1 / 1.7071 = 0.5858.

Variants differ in their tokens and weights. In the `default` variant, the first subword token of every word that is not
punctuation has weight, and in scripts without spaces every one; words and tokens are those of the tokenizer, with the
casing of its training. Special tokens have none (as with the paper's idf, because [CLS] is in every text). The variant
`simil-eval` is that of the tool.
"""

import functools
import string
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from vernacular.core.errors import ModelError
from vernacular.core.languages import UNSPACED, script_of
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens, encoder_label


def tokenize(encoder: TokenEncoder, texts: list[str]) -> list[Tokens]:
    """Tokenize texts without surrounding whitespace, as bert_score does (default variant)."""
    return encoder.tokenize([text.strip() for text in texts])


def token_weights(tokens: Tokens, idf: dict[int, float] | None = None) -> np.ndarray:
    """Return float64 [n_tokens]: 0 for special tokens, punctuation and later tokens of a word, else idf or 1.

    In scripts without spaces, a word is a sentence to most tokenizers: each of its tokens counts.
    """
    weights = np.zeros(len(tokens.ids))
    seen_words = set()
    for i, (surface, word) in enumerate(zip(tokens.surfaces, tokens.words, strict=True)):
        if word is None or is_punctuation(surface) or (word in seen_words and not _is_unspaced(surface)):
            continue
        seen_words.add(word)
        weights[i] = 1.0 if idf is None else idf[tokens.ids[i]]
    return weights


@functools.cache
def _is_unspaced(surface: str) -> bool:
    return script_of([surface]) in UNSPACED


def is_punctuation(surface: str) -> bool:
    """Return whether a token consists of whitespace, ASCII symbols and Unicode punctuation ("«", "…"); no emoji."""
    return all(char.isspace() or char in string.punctuation or unicodedata.category(char)[0] == "P" for char in surface)


class Variant(NamedTuple):
    """Tokenization and token weights of a variant."""

    tokenize: Callable[[TokenEncoder, list[str]], list[Tokens]]
    weigh: Callable[..., np.ndarray]  # tokens and idf or None -> [n_tokens]


def tokenize_as_simil_eval(encoder: TokenEncoder, texts: list[str]) -> list[Tokens]:
    """Return the tokens that Simil-Eval passes to its encoder (after moverscore_v2.py).

    The text is lower-cased, and BERT tokenizers also strip accents, even for a cased model. It is surrounded by literal
    "[CLS]" and "[SEP]", which are unknown tokens in vocabularies other than BERT's; both have weight.
    """
    tokenized = []
    for text_tokens in encoder.tokenize(texts, lower_case=True):
        pieces = zip(text_tokens.subwords, text_tokens.words, strict=True)
        subwords = [piece for piece, word in pieces if word is not None]
        subwords = ["[CLS]", *subwords[: encoder.max_tokens - 2], "[SEP]"]
        ids = encoder.tokenizer.convert_tokens_to_ids(subwords)
        if None in ids:
            raise ModelError(
                f"{encoder.name}: [CLS] and [SEP], or a token for unknown words, not found in its vocabulary; the "
                'variant "simil-eval" of moverscore requires them. Use another encoder.'
            )
        tokenized.append(Tokens(ids, subwords, [""] * len(ids), [None] * len(ids), text_tokens.truncated))
    return tokenized


def simil_eval_weights(tokens: Tokens, idf: dict[int, float] | None = None) -> np.ndarray:
    """Return float64 [n_tokens]: 0 for pieces with "##" and ASCII punctuation, else idf or 1.

    Later subword tokens therefore count for RoBERTa, but not for BERT.
    """
    has_no_weight = np.array(["##" in piece or piece in set(string.punctuation) for piece in tokens.subwords])
    return np.where(has_no_weight, 0.0, [1.0 if idf is None else idf[i] for i in tokens.ids])


VARIANTS = {
    "default": Variant(tokenize, token_weights),
    "simil-eval": Variant(tokenize_as_simil_eval, simil_eval_weights),
}


def moverscore(pairs, vectors: dict, weights: dict, threads: int = 1) -> np.ndarray:
    """Compute the MoverScore of each pair of texts, float64 [n_pairs].

    `vectors` and `weights` map a text to [n_tokens, hidden] and [n_tokens]. The score is NaN if a text has no token
    with weight, or NaN vectors. Raises ArithmeticError if the exact solver does not converge, which does not happen for
    texts that fit an encoder.
    """
    clouds = {text: _cloud(vectors[text], weights[text]) for text in {text for pair in pairs for text in pair}}

    def score(pair):
        return _score(clouds[pair[0]], clouds[pair[1]])

    # the solver releases the GIL, but below about a thousand flows the Python code around it dominates
    large = sum(len(clouds[a][0]) * len(clouds[b][0]) for a, b in pairs) > 2000 * len(pairs)
    if large and threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            return np.fromiter(pool.map(score, pairs), np.float64)
    return np.fromiter(map(score, pairs), np.float64)


def _cloud(vectors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens with weight: unit vectors [k, hidden] and weights [k] that sum to 1, in float64."""
    has_weight = weights > 0
    points = vectors[has_weight].astype(np.float64)
    with np.errstate(invalid="ignore"):  # a zero vector has no direction
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points, weights[has_weight] / weights.sum()


def _score(cloud_1, cloud_2) -> float:
    import ot  # where it is used: much of scikit-learn comes with it

    (points_1, mass_1), (points_2, mass_2) = cloud_1, cloud_2
    if not len(points_1) or not len(points_2):
        return float("nan")
    # |x - y|² = 2 - 2·x·y on the unit sphere
    distances = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * points_1 @ points_2.T))
    if not np.isfinite(distances).all():
        return float("nan")
    cost, log = ot.emd2(mass_1, mass_2, distances, numItermax=1_000_000, log=True, center_dual=False)
    if log["warning"] is not None:
        raise ArithmeticError(f"exact earth mover's distance of {distances.shape} tokens: {log['warning']}")
    return 1.0 / (1.0 + float(cost))


def signature(record: ModelRecord, *, variant: str, idf: bool) -> str:
    """Return what the scores depend on: `moverscore|variant:…|encoder:…|layer:last|idf:…|pot:…|transformers:…`."""
    return (
        f"moverscore|variant:{variant}|encoder:{encoder_label(record)}|layer:last|idf:{'yes' if idf else 'no'}"
        f"|pot:{version('pot')}|transformers:{version('transformers')}"
    )
