"""The tokenizer of a server, for models without a local one: the endpoint `/tokenize` of llama.cpp.

It returns the bytes of each token, from which character offsets follow exactly. `ServerTokenizer` has the interface of
a fast tokenizer of transformers, as far as scoring and generation use it.
"""

import functools
from types import SimpleNamespace

from vernacular.inference.model.tokenization import AlignmentError
from vernacular.inference.server.client import Client, RefusedError
from vernacular.inference.server.forms import AnswerError, elements, read, text_of


class ServerTokenizer:
    """A tokenizer behind `/tokenize`, which is not below `/v1`."""

    is_fast = True
    unk_token_id = None

    def __init__(self, client: Client):
        self._client = client
        props = client.get("/props", root=True)
        template = read(props, "chat_template")
        self.chat_template = template if isinstance(template, str) and template else None
        self.bos_token, self.bos_token_id = self._special(read(props, "bos_token"))
        self.eos_token, self.eos_token_id = self._special(read(props, "eos_token"))
        self._tokens: dict[int, bytes] = {}  # the pieces seen so far

    def _special(self, text) -> tuple[str | None, int | None]:
        ids = [token for token, _ in self._pieces(text)] if isinstance(text, str) and text else []
        return (text, ids[0]) if len(ids) == 1 else (None, None)

    def _pieces(self, text: str, *, add_special: bool = False) -> list[tuple[int, bytes]]:
        body = {"content": text, "add_special": add_special, "parse_special": True, "with_pieces": True}
        try:
            entries = read(self._client.post("/tokenize", body, root=True), "tokens")
        except (RefusedError, AnswerError) as error:
            raise AlignmentError(f"the server's tokenizer cannot be used ({error})") from error
        pieces = [(read(entry, "id"), _as_bytes(read(entry, "piece"))) for entry in elements(entries)]
        if not isinstance(entries, list) or any(type(i) is not int or piece is None for i, piece in pieces):
            raise AlignmentError("the server's tokenizer does not return the text of its tokens")
        return pieces

    @functools.lru_cache(maxsize=10_000)  # noqa: B019 (one tokenizer per job)
    def _encode(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
        pieces = self._pieces(text)
        ids, offsets = [token for token, _ in pieces], byte_offsets(text, [piece for _, piece in pieces])
        self._tokens.update(pieces)
        sequence_ids = [0] * len(ids)
        if add_special_tokens:
            full = [token for token, _ in self._pieces(text, add_special=True)]
            lead = next((i for i in range(len(full) - len(ids) + 1) if full[i : i + len(ids)] == ids), None)
            if lead is None:
                raise AlignmentError("its special tokens change the other tokens")
            tail = len(full) - lead - len(ids)
            ids, offsets = full, [(0, 0)] * lead + offsets + [(0, 0)] * tail
            sequence_ids = [None] * lead + sequence_ids + [None] * tail
        return SimpleNamespace(ids=ids, offsets=offsets, sequence_ids=sequence_ids, word_ids=[None] * len(ids))

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = False) -> "_Encoding":
        return _Encoding(self._encode(text, add_special_tokens))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        """Return the text of each token; bytes that are no complete character are written as \\xe1."""
        return [self._tokens.get(token, b"").decode("utf-8", "backslashreplace") for token in ids]

    def decode(self, ids: list[int], **_) -> str:
        """Return the text of `ids`."""
        return text_of(read(self._client.post("/detokenize", {"tokens": list(ids)}, root=True), "content"), "text")

    def get_chat_template(self) -> str:
        """Return the template that the server applies."""
        return self.chat_template

    def apply_chat_template(self, messages: list[dict], *, chat_template, tokenize, date_string, **arguments) -> str:
        """Return the prompt of a chat, rendered by the server."""
        arguments.pop("add_generation_prompt")
        body = {"messages": messages} | ({"chat_template_kwargs": arguments} if arguments else {})
        try:
            return text_of(read(self._client.post("/apply-template", body, root=True), "prompt"), "prompt")
        except (RefusedError, AnswerError) as error:
            raise ValueError(f"the server did not render the chat: {error}") from error


class _Encoding(dict):
    """The result of a tokenizer: `input_ids`, and one entry of `encodings`."""

    def __init__(self, encoding: SimpleNamespace):
        super().__init__(input_ids=encoding.ids)
        self.encodings = [encoding]


def _as_bytes(piece) -> bytes | None:
    """Return the bytes of a piece: a string, or a list of byte values if it is no complete text; None: neither."""
    if isinstance(piece, list) and all(type(value) is int and 0 <= value < 256 for value in piece):
        return bytes(piece)
    return piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else None


def byte_offsets(text: str, pieces: list[bytes]) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each piece; one that ends inside a character has all of that character.

    A space that the tokenizer puts before the text belongs to no character. Raises AlignmentError if the pieces are
    not the bytes of the text.

    >>> byte_offsets("aé", [b"a", b"\\xc3", b"\\xa9"])
    [(0, 1), (1, 2), (1, 2)]
    >>> byte_offsets("a b", [b" a", b" b"])
    [(0, 1), (1, 3)]
    """
    joined, expected = b"".join(pieces), text.encode("utf-8", "surrogatepass")
    shift = 1 if joined == b" " + expected else 0
    if joined[shift:] != expected:
        raise AlignmentError("the tokens of the server's tokenizer do not reproduce the text")
    characters = [index for index, char in enumerate(text) for _ in char.encode("utf-8", "surrogatepass")]
    offsets, position = [], -shift
    for piece in pieces:
        start, end = max(position, 0), position + len(piece)
        edge = characters[start] if start < len(characters) else len(text)
        offsets.append((edge, characters[end - 1] + 1) if end > start else (edge, edge))
        position = end
    return offsets
