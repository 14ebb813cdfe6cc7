"""Contextual token embeddings for MoverScore and BERTScore; each distinct text is embedded once.

Texts are tokenized by the encoder's own tokenizer, including special tokens, sorted by length and padded in batches
under a token budget; the embeddings are returned without padding.
"""

import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
import torch
from tokenizers.normalizers import BertNormalizer
from transformers import AutoModel, AutoTokenizer

from vernacular.checkpoints.linear_layers import use_onednn
from vernacular.checkpoints.source_check import check_tensors, unread_settings
from vernacular.checkpoints.tokenizer_check import tokenizer_of_file
from vernacular.core.errors import MachineError, ModelError, first_of, writing
from vernacular.core.library_errors import LOADING_ERRORS, describe_error, is_out_of_memory
from vernacular.core.model_record import ModelRecord
from vernacular.core.words import splits_words, words_between_spaces

# Padded tokens per forward pass. On a CPU, batches of 512 take half the time of batches of 8192 (12 layers of width
# 384), because their activations fit in the cache; a GPU is faster with large batches.
TOKEN_BUDGET = {"cpu": 512, "cuda": 16_384}
TEXTS_AT_ONCE = 1_000  # tokenized together: their encodings take 200 bytes per token
OUT_OF_VOCABULARY = "the encoder's tokenizer has tokens that are outside its model's vocabulary."
NON_FINITE = "the encoder returns NaN or infinity; its weights are damaged. Download it again."


@dataclass(frozen=True)
class Tokens:
    """The n tokens of one text, including special tokens."""

    ids: list[int]
    subwords: list[str]  # as in the vocabulary: "##ar", "▁casa"
    surfaces: list[str]  # characters of each token; "" for special tokens
    words: list[int | None]  # index of each token's word (pre-token); None for special tokens
    truncated: bool


class TokenEncoder:
    """A local encoder that returns the hidden states of requested layers.

    `record` is written by the command `encoder`: name, directory, allow_pickle, tokenizer_pipeline. Raises ModelError
    if the directory cannot be loaded, lacks weights, or has a tokenizer without character offsets; MachineError if
    memory does not suffice.
    """

    def __init__(self, record: ModelRecord):
        self.name = record.name
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            tokenizer = AutoTokenizer.from_pretrained(record.directory, trust_remote_code=False)
            self.tokenizer, self.loading = tokenizer_of_file(
                tokenizer, record.directory, self.name, record.tokenizer_pipeline
            )
            model, report = AutoModel.from_pretrained(
                record.directory,
                dtype=torch.float32,
                use_safetensors=not record.allow_pickle,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except LOADING_ERRORS as error:
            raise loading_error(self.name, error, bool(record.allow_pickle)) from error
        check_missing_weights(self.name, report)
        unused, allow_pickle = report["unexpected_keys"], record.allow_pickle
        check_tensors(self.name, model, record.directory, unused, allow_pickle=allow_pickle)
        self.loading += unread_settings(model, record.directory, self.name)
        if not self.tokenizer.is_fast:
            reason = "its tokenizer provides no character offsets, which similarity metrics require"
            raise ModelError(f"{self.name}: {reason}.")
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        self.model = model.to(self.device).eval()
        share_weights(self.model, record.directory)
        use_onednn(self.model)
        self.n_layers = model.config.num_hidden_layers
        self._stores: dict[tuple[int, ...], VectorStore] = defaultdict(VectorStore)  # by the requested layers

    @cached_property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a text, including special tokens."""
        limits = [self.tokenizer.model_max_length]  # 1e30 if the tokenizer does not define it
        positions = next((m for n, m in self.model.named_modules() if n.endswith("position_embeddings")), None)
        if isinstance(positions, torch.nn.Embedding):
            # positions of RoBERTa start after the padding index
            first = 0 if positions.padding_idx is None else positions.padding_idx + 1
            limits.append(positions.num_embeddings - first)
        elif limit := getattr(self.model.config, "max_position_embeddings", None):
            limits.append(limit)
        return int(min(limits))

    @cached_property
    def _closing_norm(self):
        """The final norm of pre-norm encoders (ModernBERT, GPT-2), which `hidden_states[:-1]` lack."""
        norms = (getattr(self.model, name, None) for name in ("final_norm", "ln_f", "norm"))
        return next((norm for norm in norms if norm is not None), None)

    def tokenize(self, texts: list[str], *, lower_case: bool = False) -> list[Tokens]:
        """Tokenize each text. `lower_case` adds BERT's lower-casing to a cased BERT tokenizer.

        Lower-casing also strips accents, unless the tokenizer's file disables this, as with `do_lower_case=True`.
        """
        tokenizer, tokens = self.tokenizer, []
        backend = tokenizer.backend_tokenizer
        normalizer = backend.normalizer
        if lower_case and isinstance(normalizer, BertNormalizer):
            backend.normalizer = BertNormalizer(
                clean_text=normalizer.clean_text,
                handle_chinese_chars=normalizer.handle_chinese_chars,
                strip_accents=normalizer.strip_accents,
                lowercase=True,
            )
        options = {"truncation": True, "max_length": self.max_tokens, "return_offsets_mapping": True}
        try:
            for block in blocks(texts):
                batch = tokenizer(block, **options)
                tokens += [self._tokens_of(batch, i, text) for i, text in enumerate(block)]
        finally:
            backend.normalizer = normalizer
        return tokens

    def _tokens_of(self, batch, i: int, text: str) -> Tokens:
        ids, words, offsets = batch["input_ids"][i], batch.word_ids(i), batch["offset_mapping"][i]
        spans = [*zip(offsets, words, strict=True)]
        surfaces = [sys.intern(text[start:end]) if word is not None else "" for (start, end), word in spans]
        if not splits_words(self.tokenizer):
            numbers = words_between_spaces(text).tolist()
            words = [None if word is None else numbers[start] for (start, _), word in spans]
        subwords = list(map(sys.intern, self.tokenizer.convert_ids_to_tokens(ids)))
        truncated = len(ids) >= self.max_tokens and bool(batch.encodings[i].overflowing)
        return Tokens(ids, subwords, surfaces, words, truncated)

    def embed(self, rows: list[list[int]], layers: tuple[int, ...]) -> list[dict[int, np.ndarray]]:
        """Return {layer: float32 [n_tokens, hidden]} for each row of token IDs; layer 0 is the input embedding.

        Layers are numbered as in bert_score. Raises ModelError if a layer does not exist.
        """
        store = self.prepare(rows, layers)
        return [dict(zip(layers, store[tuple(row)], strict=True)) for row in rows]

    def prepare(self, rows: list[list[int]], layers: tuple[int, ...]) -> "VectorStore":
        """Return a store with the hidden states of all rows, [layers, n_tokens, hidden], by row; see `embed`."""
        for layer in layers:
            if not 0 <= layer <= self.n_layers:
                raise ModelError(f"{self.name}: expected a layer from 0 to {self.n_layers}, got {layer}.")
        store = self._stores[layers]
        missing = store.missing(map(tuple, rows))
        order = sorted(range(len(missing)), key=lambda i: (len(missing[i]), missing[i]))
        for batch in batches(order, [len(row) for row in missing], TOKEN_BUDGET[self.device]):
            longest = max(len(missing[i]) for i in batch)
            ids = torch.full((len(batch), longest), self.tokenizer.pad_token_id)
            mask = torch.zeros(len(batch), longest, dtype=torch.long)
            for k, i in enumerate(batch):
                ids[k, : len(missing[i])] = torch.tensor(missing[i])
                mask[k, : len(missing[i])] = 1
            states = self._hidden_states(ids.to(self.device), mask.to(self.device), layers)
            for k, i in enumerate(batch):
                vectors = np.stack([states[layer][k, : len(missing[i])] for layer in layers])
                if not np.isfinite(vectors).all():
                    raise ModelError(f"{self.name}: {NON_FINITE}")
                store[missing[i]] = vectors
        return store

    @torch.inference_mode()
    def _hidden_states(self, ids, mask, layers) -> dict[int, np.ndarray]:
        """Return {layer: [batch, length, hidden]}."""
        try:
            states = self.model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        except IndexError:
            raise ModelError(f"{self.name}: {OUT_OF_VOCABULARY}") from None
        norm = self._closing_norm
        selected = {}
        for layer in layers:
            state = states[layer]
            if norm is not None and layer < self.n_layers:
                state = norm(state)
            selected[layer] = state.float().cpu().numpy()
        return selected


def blocks(texts: list[str]) -> Iterator[list[str]]:
    """Yield the texts in lists of at most TEXTS_AT_ONCE."""
    return (texts[start : start + TEXTS_AT_ONCE] for start in range(0, len(texts), TEXTS_AT_ONCE))


def encoder_label(record: ModelRecord) -> str:
    """Return an encoder's label in signatures: `name@revision`, or the start of its fingerprint without a revision."""
    return f"{record.name}@{(record.revision or record.fingerprint or 'unknown')[:12]}"


def loading_error(name: str, error: Exception, allow_pickle: bool) -> ModelError:
    """Return the error for an encoder that could not be loaded: MachineError if memory does not suffice."""
    if is_out_of_memory(error):
        advice = "Use a smaller one, or a machine with more memory."
        return MachineError(f"{name}: the encoder does not fit in memory. {advice}")
    message = describe_error(error, ModelRecord(name=name, kind="encoder", allow_pickle=allow_pickle)).rstrip(".")
    return ModelError(f"{name}: the encoder cannot be loaded ({message}).")


def check_missing_weights(name: str, report: dict) -> None:
    """Raise ModelError if weights are missing, except those of BERT's pooler, which no metric uses."""
    if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
        reason = f"{len(missing)} of the encoder's weights not found ({first_of(missing)})"
        raise ModelError(f"{name}: {reason}. Use a complete checkpoint.")


_WEIGHTS: WeakValueDictionary[tuple[str, str], torch.nn.Parameter] = WeakValueDictionary()


def share_weights(model: torch.nn.Module, directory: str) -> None:
    """Let a model use the weights of another one in memory that was loaded from the same directory, by their names."""
    for name, weight in model.named_parameters():
        first = _WEIGHTS.setdefault((directory, name), weight)
        if (first.shape, first.dtype, first.device) == (weight.shape, weight.dtype, weight.device):
            weight.data = first.data


def batches(order: list[int], lengths: list[int], budget: int):
    """Yield runs of `order` (shortest first) with a padded size within the budget, or of one row that exceeds it."""
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * lengths[i] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


LIMIT = 2**30  # bytes of a file: it is emptied before another text when it has more
VECTOR_BYTES = 2**26  # of the vectors that are read from it at once, whatever their width


class VectorStore:
    """Float32 arrays by key, in a temporary file: those of 5,000 responses and their options need 2 GB at width 768."""

    def __init__(self):
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the store
        self._places: dict[Hashable, tuple[int, tuple[int, ...]]] = {}  # offset in bytes, shape
        self._size = 0

    def missing(self, keys: Iterable[Hashable]) -> list:
        """Return the distinct keys without an array: if there are any and the file has LIMIT bytes, all of them.

        >>> store = VectorStore()
        >>> store["a"] = np.ones(3, np.float32)
        >>> store.missing("abb"), store["a"].tolist()
        (['b'], [1.0, 1.0, 1.0])
        """
        distinct = dict.fromkeys(keys)
        if self._size >= LIMIT and not distinct.keys() <= self._places.keys():
            self._file.truncate(0)
            self._places.clear()
            self._size = 0
        return [key for key in distinct if key not in self._places]

    def __setitem__(self, key: Hashable, array: np.ndarray) -> None:
        with writing(tempfile.gettempdir()):
            self._file.seek(self._size)
            self._file.write(array.tobytes())
            self._file.flush()
        self._places[key] = self._size, array.shape
        self._size += array.nbytes

    def __getitem__(self, key: Hashable) -> np.ndarray:
        offset, shape = self._places[key]
        self._file.seek(offset)
        return np.frombuffer(self._file.read(self.n_bytes(key)), np.float32).reshape(shape)

    def n_bytes(self, key: Hashable) -> int:
        return 4 * math.prod(self._places[key][1])
