"""Tokens and token weights of MoverScore in Simil-Eval (after moverscore_v2.py).

The text is lower-cased, and BERT tokenizers also strip accents, even for a cased model. It is surrounded by literal
"[CLS]" and "[SEP]", which are unknown tokens in vocabularies other than BERT's; both have weight. Tokens with "##" and
ASCII punctuation have none, so that later subword tokens count for RoBERTa but not for BERT.
"""

import string

import numpy as np

from vernacular.core.errors import ModelError
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens

VARIANT = "simil-eval"


def tokenize(encoder: TokenEncoder, texts: list[str]) -> list[Tokens]:
    """Return the tokens that Simil-Eval passes to its encoder."""
    tokenized = []
    for text_tokens in encoder.tokenize(texts, lower_case=True):
        subwords = [
            piece for piece, word in zip(text_tokens.subwords, text_tokens.words, strict=True) if word is not None
        ]
        subwords = ["[CLS]", *subwords[: encoder.max_tokens - 2], "[SEP]"]
        ids = encoder.tokenizer.convert_tokens_to_ids(subwords)
        if None in ids:
            raise ModelError(
                f"{encoder.name}: [CLS] and [SEP], or a token for unknown words, not found in its vocabulary; the "
                'variant "simil-eval" of moverscore requires them. Use another encoder.'
            )
        tokenized.append(Tokens(ids, subwords, [""] * len(ids), [None] * len(ids), text_tokens.truncated))
    return tokenized


def token_weights(tokens: Tokens, idf: dict[int, float] | None = None) -> np.ndarray:
    """Return float64 [n_tokens]: 0 for pieces with "##" and ASCII punctuation, else idf or 1."""
    has_no_weight = ["##" in piece or piece in set(string.punctuation) for piece in tokens.subwords]
    return np.array(
        [0.0 if d else 1.0 if idf is None else idf[i] for d, i in zip(has_no_weight, tokens.ids, strict=True)]
    )
