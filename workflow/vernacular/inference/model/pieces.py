"""Tokenizers that return the bytes of each token: character offsets follow exactly, in every script.

They are those of llama.cpp: of a GGUF file, and behind a server. Both have the interface of a fast tokenizer of
transformers, as far as scoring and generation use it.
"""

import functools
from abc import ABC, abstractmethod
from types import SimpleNamespace

import numpy as np

from vernacular.inference.model.tokenization import AlignmentError, Rendered, n_added


class Tokens(dict):
    """The value of a call: `input_ids`, and what an `Encoding` of tokenizers has."""

    def __init__(self, encoding: SimpleNamespace):
        super().__init__(input_ids=encoding.ids)
        self.encodings = [encoding]


class PieceTokenizer(ABC):
    """A tokenizer whose tokens are pieces of bytes."""

    is_fast = True
    reads_control_tokens = True  # whether the text of a control token in a plain text is read as that token

    @abstractmethod
    def pieces(self, text: str, *, add_special: bool = False) -> list[tuple[int, bytes]]:
        """Return (ID, bytes) of each token of a text. Raises AlignmentError if it cannot be tokenized."""

    @abstractmethod
    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; of one that no text has contained, b"" if they are unknown."""

    @functools.lru_cache(maxsize=10_000)  # noqa: B019 (one tokenizer per job)
    def _encode(self, text: str, add_special_tokens: bool, _own) -> SimpleNamespace:
        pieces = self.pieces(text)
        ids = [token for token, _ in pieces]
        offsets = byte_offsets(text, [piece for _, piece in pieces], drops=isinstance(text, Rendered))
        sequence_ids = [0] * len(ids)
        if add_special_tokens:
            full = [token for token, _ in self.pieces(text, add_special=True)]
            lead, tail = n_added(full, ids)
            ids, offsets = full, [(0, 0)] * lead + offsets + [(0, 0)] * tail
            sequence_ids = [None] * lead + sequence_ids + [None] * tail
        return SimpleNamespace(ids=ids, offsets=offsets, sequence_ids=sequence_ids, word_ids=[None] * len(ids))

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = False) -> Tokens:
        return Tokens(self._encode(text, add_special_tokens, getattr(text, "own", None)))

    def name(self, token: int) -> str:
        """Return the text of a token, in which bytes that are no complete character are written as \\xe1."""
        return self.piece(token).decode("utf-8", "backslashreplace")

    def convert_ids_to_tokens(self, ids: list[int] | int) -> list[str] | str:
        """Return the name of each token, or of one."""
        return self.name(ids) if isinstance(ids, int) else [self.name(token) for token in ids]

    def get_chat_template(self) -> str:
        """Return the template of chats."""
        return self.chat_template


def byte_offsets(text: str, pieces: list[bytes], *, drops: bool = False) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each piece; one that ends inside a character has all of that character.

    A space that the tokenizer puts before a text, or after a control token, belongs to no character; `drops`: whether
    it may drop whitespace beside control tokens (Phi-3). Raises AlignmentError if the pieces are not those of the text.

    >>> byte_offsets("aé", [b"a", b"\\xc3", b"\\xa9"])
    [(0, 1), (1, 2), (1, 2)]
    >>> byte_offsets("a b", [b" a", b" b"])
    [(0, 1), (1, 3)]
    >>> byte_offsets("<s>\\na", [b"<s>", b" a"], drops=True)
    [(0, 3), (4, 5)]
    """
    expected, edges, position = text.encode("utf-8", "surrogatepass"), [], 0
    for piece in pieces:
        while not expected.startswith(piece, position):
            if piece[:1] == b" " and expected.startswith(piece[1:], position):
                piece = piece[1:]
            elif drops and expected[position : position + 1].isspace():
                position += 1
            else:
                raise AlignmentError("the pieces of its tokens are not the bytes of the text")
        edges.append((position, position + len(piece)))
        position += len(piece)
    if expected[position:].strip() if drops else position < len(expected):
        raise AlignmentError("the pieces of its tokens do not contain the end of the text")
    begins = (np.frombuffer(expected, np.uint8) & 0xC0) != 0x80
    character = [*(np.cumsum(begins) - 1).tolist(), len(text)]  # that of each byte
    return [(character[low], character[high - 1] + 1 if high > low else character[low]) for low, high in edges]
