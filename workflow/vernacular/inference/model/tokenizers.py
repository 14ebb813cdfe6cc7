"""Loading of tokenizers: of transformers, and of a GGUF file by llama.cpp."""

import ctypes
import functools
from pathlib import Path
from types import SimpleNamespace

from vernacular.checkpoints import llama_cpp
from vernacular.core.errors import ModelError
from vernacular.core.library_errors import LOADING_ERRORS, describe_error, wrap_library_errors
from vernacular.core.model_record import ModelRecord
from vernacular.inference.model.pieces import PieceTokenizer
from vernacular.inference.model.tokenization import AlignmentError, Rendered, control_tokens


def load_tokenizer(
    record: ModelRecord, directory: str | Path, *, trust_remote_code: bool = False, notes: list[str] | None = None
):
    """Return the tokenizer in a directory of a model, as in its files; add what its class changes to `notes`.

    Raises ModelError if it cannot be loaded.
    """
    if record.is_gguf and str(directory) == record.directory:
        return LlamaTokenizer(llama_cpp.open_model(record.name, Path(directory)))
    from transformers import AutoTokenizer  # here: it takes seconds, and an engine may have a tokenizer of its own

    from vernacular.checkpoints.tokenizer_check import CLASS, tokenizer_of_file, tokenizer_without_class

    try:
        with wrap_library_errors():
            kwargs = {"local_files_only": True, "trust_remote_code": trust_remote_code}
            replaced = []
            try:
                with wrap_library_errors():
                    tokenizer = AutoTokenizer.from_pretrained(directory, **kwargs)
            except LOADING_ERRORS as error:
                if record.tokenizer_pipeline == CLASS or "custom code" in str(error):
                    raise
                tokenizer, replaced = tokenizer_without_class(directory, record.name, error)
            tokenizer, found = tokenizer_of_file(tokenizer, directory, record.name, record.tokenizer_pipeline)
            found = replaced + found
            tokenizer("a")  # an invalid limit in its config raises only here
            if notes is not None:
                notes += found
            return tokenizer
    except LOADING_ERRORS as error:
        reason = describe_error(error, record)
        raise ModelError(f"model {record.name}: the tokenizer in {directory} cannot be loaded: {reason}") from error


class LlamaTokenizer(PieceTokenizer):
    """The tokenizer of a model that llama.cpp has opened.

    Control tokens are read in rendered chats alone, and there not in the texts of the turns: elsewhere, "<s>" is text.
    """

    reads_control_tokens = False
    unk_token_id = unk_token = None  # of bytes that are not in a vocabulary, llama.cpp drops the text: `byte_offsets`

    def __init__(self, opened: llama_cpp.Opened):
        self.llama, self._opened = llama_cpp.library(), opened  # which the vocabulary is a part of
        llama, model = self.llama, opened.pointer
        self.vocabulary = llama.llama_model_get_vocab(model)
        self.size = llama.llama_vocab_n_tokens(self.vocabulary)
        template = llama.llama_model_chat_template(model, None)
        self.chat_template = template.decode("utf-8", "replace") if template else None
        self.bos_token_id, self.eos_token_id = (
            token if 0 <= token < self.size else None
            for token in (llama.llama_vocab_bos(self.vocabulary), llama.llama_vocab_eos(self.vocabulary))
        )
        self._pieces: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self.size

    @property
    def bos_token(self) -> str | None:
        """The text of BOS."""
        return self._text(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The text of EOS."""
        return self._text(self.eos_token_id)

    def _text(self, token: int | None) -> str | None:
        return None if token is None else self.name(token)

    @property
    def end_ids(self) -> set[int]:
        """The tokens that end a text, by the keys of the file and the names that llama.cpp knows."""
        return {token for token in self._control if self.llama.llama_vocab_is_eog(self.vocabulary, token)}

    @functools.cached_property
    def _control(self) -> dict[int, bool]:
        """The control tokens (True), and those that users added (False)."""
        attribute, found = self.llama.llama_vocab_get_attr, {}
        for token in range(self.size):
            bits = attribute(self.vocabulary, token)
            if bits & (self.llama.LLAMA_TOKEN_ATTR_CONTROL | self.llama.LLAMA_TOKEN_ATTR_USER_DEFINED):
                found[token] = bool(bits & self.llama.LLAMA_TOKEN_ATTR_CONTROL)
        return found

    @functools.cached_property
    def added_tokens_decoder(self) -> dict[int, SimpleNamespace]:
        """Content and kind of the tokens that are no pieces of texts, by ID."""
        return {i: SimpleNamespace(content=self._text(i), special=kind) for i, kind in self._control.items()}

    def get_added_vocab(self) -> dict[str, int]:
        """Return the IDs of the same tokens, by content."""
        return {token.content: index for index, token in self.added_tokens_decoder.items()}

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token."""
        if token not in self._pieces:
            buffer = ctypes.create_string_buffer(256)
            size = self.llama.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
            if size < 0:
                buffer = ctypes.create_string_buffer(-size)
                size = self.llama.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
            self._pieces[token] = buffer.raw[: max(size, 0)]
        return self._pieces[token]

    def name(self, token: int) -> str:
        """Return the token as in the vocabulary, as transformers names it: ĠO, ▁O, <0xC3>."""
        return self.llama.llama_vocab_get_text(self.vocabulary, token).decode("utf-8", "backslashreplace")

    def pieces(self, text: str, *, add_special: bool = False) -> list[tuple[int, bytes]]:
        """Return (ID, bytes) of each token of a text."""
        if not isinstance(text, Rendered):
            return self._tokenize(text, add_special, reads_control=False)
        found: list[tuple[int, bytes]] = []
        for part, is_own in self._parts(text):
            found += self._tokenize(part, add_special and not found, reads_control=not is_own)
        return found

    def _parts(self, text: Rendered) -> list[tuple[str, bool]]:
        """Return the parts of a rendered chat, and whether each is a text of a turn that contains a control token."""
        parts, start, pattern = [], 0, control_tokens(self)[1]
        for own in text.own:
            if pattern.search(own) and (index := text.find(own.strip(), start)) >= 0:
                parts += [(text[start:index], False), (own.strip(), True)]
                start = index + len(own.strip())
        return [part for part in (*parts, (text[start:], False)) if part[0]]

    def _tokenize(self, text: str, add_special: bool, *, reads_control: bool) -> list[tuple[int, bytes]]:
        data = text.encode("utf-8", "surrogatepass")
        size = len(data) + 8
        for _ in range(2):
            ids = (ctypes.c_int32 * size)()
            n = self.llama.llama_tokenize(self.vocabulary, data, len(data), ids, size, add_special, reads_control)
            if n >= 0:
                return [(token, self.piece(token)) for token in ids[:n]]
            size = -n
        raise AlignmentError("llama.cpp does not tokenize the text")

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False, **_) -> str:
        """Return the text of tokens."""
        kept = [i for i in ids if not (skip_special_tokens and self._control.get(i))]
        return b"".join(map(self.piece, kept)).decode("utf-8", "replace")

    def apply_chat_template(self, messages: list[dict], *, chat_template: str, tokenize: bool, **arguments) -> str:
        """Return a rendered chat, as transformers renders it."""
        from transformers.utils.chat_template_utils import render_jinja_template

        tokens = {"bos_token": self.bos_token or "", "eos_token": self.eos_token or ""}
        (text,), _ = render_jinja_template(
            conversations=[messages], chat_template=chat_template, **(tokens | arguments)
        )
        return text
