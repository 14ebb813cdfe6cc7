"""Words of a text to which its tokens belong, where the tokenizer splits it into none."""

import functools

import numpy as np


@functools.lru_cache(maxsize=2)  # models or encoders in use
def splits_words(tokenizer) -> bool:
    """Return whether a tokenizer of transformers splits a text into words; to Gemma's, it is a single one."""
    return not tokenizer.is_fast or len(set(tokenizer("a b", add_special_tokens=False).word_ids())) > 1


def words_between_spaces(text: str) -> np.ndarray:
    """Return the number of the word of each character and of the end; a space belongs to the word after it, [n + 1].

    >>> words_between_spaces(" O  gato").tolist()
    [0, 0, 1, 1, 1, 1, 1, 1, 1]
    """
    is_space = np.array([*map(str.isspace, text), False])
    return np.append(0, (is_space[1:] & ~is_space[:-1]).cumsum())
