"""MoverScore as Simil-Eval computes it (after moverscore_v2.py): its tokens and their weights.

The text is lower-cased and, by BERT tokenizers, stripped of accents even for a cased model. Literal "[CLS]" and "[SEP]"
around it, which to other vocabularies than BERT's are unknown tokens, both have weight. Pieces with "##" and ASCII
punctuation have none, so that the sub-words of RoBERTa count and those of BERT do not.
"""

import string

import numpy as np

from vernacular.core.errors import ModelError
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens

VARIANT = "simil-eval"


def tokenize(encoder: TokenEncoder, texts: list[str]) -> list[Tokens]:
    """Return the tokens that Simil-Eval passes to its encoder."""
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


def token_weights(tokens: Tokens, idf: dict[int, float] | None = None) -> np.ndarray:
    """Return float64 [n_tokens]: 0 for pieces with "##" and ASCII punctuation, else idf or 1."""
    dropped = ["##" in piece or piece in set(string.punctuation) for piece in tokens.pieces]
    return np.array([0.0 if d else 1.0 if idf is None else idf[i] for d, i in zip(dropped, tokens.ids, strict=True)])
