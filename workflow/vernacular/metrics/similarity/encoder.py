"""Contextual token embeddings for MoverScore and BERTScore: each distinct text goes through the encoder once.

Texts are tokenised by the encoder's own tokenizer, special tokens included, sorted by length and padded in batches
under a token budget; what comes back is unpadded, one `Encoded` per text.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache
from tokenizers.normalizers import BertNormalizer
from transformers import AutoModel, AutoTokenizer

from vernacular.core.errors import MachineError, ModelError
from vernacular.core.failures import ODD_FILES, is_out_of_memory, reason
from vernacular.types import ModelRecord

# Padded tokens in one forward. On a CPU batches of 512 take half the time that batches of 8192 do (12 layers of 384):
# their activations stay in the cache. A GPU wants many.
TOKEN_BUDGET = {"cpu": 512, "cuda": 16_384}
BEYOND = "this encoder's tokenizer has tokens that are beyond its model's vocabulary."
NO_NUMBERS = "this encoder returns no numbers (nan): its weights are damaged."


@dataclass(frozen=True)
class Tokens:
    """One text in the encoder's tokens, n of them, special ones included."""

    ids: list[int]
    pieces: list[str]  # as the vocabulary writes them: "##ar", "▁casa"
    surfaces: list[str]  # the characters each covers, "" for special tokens
    words: list[int | None]  # the word (pre-token) each belongs to, None for special tokens
    truncated: bool


class TokenEncoder:
    """A local encoder and the hidden states of the layers asked for.

    `record` is what the encoder verb writes: name, folder, revision, layer, and allow_pickle where a person allowed it.
    Raises ModelError where the folder cannot be loaded, lacks weights, or has a tokenizer that cannot tell which
    characters a token covers; MachineError where memory is short.
    """

    def __init__(self, record: ModelRecord):
        self.name = record["name"]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(record["folder"], trust_remote_code=False)
            model, report = AutoModel.from_pretrained(
                record["folder"],
                dtype=torch.float32,
                use_safetensors=not record.get("allow_pickle", False),
                trust_remote_code=False,
                output_loading_info=True,
            )
        except ODD_FILES as error:
            raise cannot_load(self.name, error, record.get("allow_pickle", False)) from error
        refuse_random(self.name, report)
        if not self.tokenizer.is_fast:
            raise ModelError(f"{self.name}: its tokenizer gives no character offsets, so it cannot measure similarity.")
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        self.model = model.to(self.device).eval()
        self.n_layers = model.config.num_hidden_layers
        self._kept: dict[tuple[int, ...], EmbeddingCache] = {}  # by the layers asked for

    @cached_property
    def max_tokens(self) -> int:
        """The longest text the model can read, special tokens included."""
        limits = [self.tokenizer.model_max_length]  # 1e30 where the tokenizer does not know
        positions = next((m for n, m in self.model.named_modules() if n.endswith("position_embeddings")), None)
        if isinstance(positions, torch.nn.Embedding):
            # RoBERTa counts its positions from the padding index on
            first = 0 if positions.padding_idx is None else positions.padding_idx + 1
            limits.append(positions.num_embeddings - first)
        elif limit := getattr(self.model.config, "max_position_embeddings", None):
            limits.append(limit)
        return int(min(limits))

    @cached_property
    def _closing_norm(self):
        """The norm after the last layer of pre-norm encoders (ModernBERT, GPT-2): `hidden_states[:-1]` lack it."""
        found = (getattr(self.model, name, None) for name in ("final_norm", "ln_f", "norm"))
        return next((norm for norm in found if norm is not None), None)

    def tokenize(self, texts: list[str], *, lower_case: bool = False) -> list[Tokens]:
        """Each text in tokens. `lower_case` adds BERT's lower-casing to a cased BERT tokenizer.

        Lower-casing strips accents too, unless the tokenizer's own file forbids it, as `do_lower_case=True` does.
        """
        if not texts:
            return []
        tokenizer = self.tokenizer
        backend = tokenizer.backend_tokenizer
        before = backend.normalizer
        if lower_case and isinstance(before, BertNormalizer):
            backend.normalizer = BertNormalizer(
                clean_text=before.clean_text,
                handle_chinese_chars=before.handle_chinese_chars,
                strip_accents=before.strip_accents,
                lowercase=True,
            )
        try:
            batch = tokenizer(texts, truncation=True, max_length=self.max_tokens, return_offsets_mapping=True)
        finally:
            backend.normalizer = before
        found = []
        for i, text in enumerate(texts):
            ids = batch["input_ids"][i]
            words = batch.word_ids(i)
            surfaces = [
                text[a:b] if word is not None else ""
                for (a, b), word in zip(batch["offset_mapping"][i], words, strict=True)
            ]
            truncated = len(ids) >= self.max_tokens and bool(batch.encodings[i].overflowing)
            found.append(Tokens(ids, tokenizer.convert_ids_to_tokens(ids), surfaces, words, truncated))
        return found

    def embed(self, rows: list[list[int]], layers: tuple[int, ...]) -> list[dict[int, np.ndarray]]:
        """Token ids → {layer: float32 [n_tokens, hidden]} per row; layer 0 is the input embedding, as in bert_score.

        Rows that this encoder embedded before come from its `EmbeddingCache`; do not write into what is returned.
        Raises ModelError for a layer the encoder has not.
        """
        for layer in layers:
            if not 0 <= layer <= self.n_layers:
                raise ModelError(f"{self.name}: has layers 0 to {self.n_layers}, and layer {layer} was asked for.")
        kept = self._kept.setdefault(
            layers, EmbeddingCache(lambda states: sum(state.nbytes for state in states.values()))
        )
        asked = [tuple(row) for row in rows]
        found = kept.all(asked, lambda missing: self._embed(missing, layers))
        return [found[row] for row in asked]

    def _embed(self, rows: list[tuple[int, ...]], layers: tuple[int, ...]) -> list[dict[int, np.ndarray]]:
        found: list[dict[int, np.ndarray]] = [{} for _ in rows]
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), rows[i]))
        budget = TOKEN_BUDGET[self.device]
        for batch in _batches(order, [len(row) for row in rows], budget):
            longest = max(len(rows[i]) for i in batch)
            ids = torch.full((len(batch), longest), self.tokenizer.pad_token_id)
            mask = torch.zeros(len(batch), longest, dtype=torch.long)
            for k, i in enumerate(batch):
                ids[k, : len(rows[i])] = torch.tensor(rows[i])
                mask[k, : len(rows[i])] = 1
            states = self._hidden_states(ids.to(self.device), mask.to(self.device), layers)
            for layer, state in states.items():
                for k, i in enumerate(batch):
                    found[i][layer] = state[k, : len(rows[i])].copy()
                    if not np.isfinite(found[i][layer]).all():
                        raise ModelError(f"{self.name}: {NO_NUMBERS}")
        return found

    @torch.inference_mode()
    def _hidden_states(self, ids, mask, layers) -> dict[int, np.ndarray]:
        """{layer: [batch, length, hidden]}"""
        try:
            states = self.model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        except IndexError:
            raise ModelError(f"{self.name}: {BEYOND}") from None
        norm = self._closing_norm
        chosen = {}
        for layer in layers:
            state = states[layer]
            if norm is not None and layer < self.n_layers:
                state = norm(state)
            chosen[layer] = state.float().cpu().numpy()
        return chosen


def cannot_load(name: str, error: Exception, allow_pickle: bool) -> ModelError:
    """What to raise for an encoder that could not be loaded: another machine may hold it, or nothing can read it."""
    if is_out_of_memory(error):
        return MachineError(f"{name}: this encoder does not fit in memory.")
    said = reason(error, {"kind": "encoder", "allow_pickle": allow_pickle}).rstrip(".")
    return ModelError(f"{name}: this encoder cannot be loaded ({said}).")


def refuse_random(name: str, report: dict) -> None:
    """Raise ModelError where weights were made up. No metric reads those of BERT's pooler, which few files have."""
    if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
        raise ModelError(
            f"{name}: this encoder lacks {len(missing)} weights ({missing[0]}, …); they would be random numbers."
        )


def _batches(order: list[int], lengths: list[int], budget: int):
    """Runs of `order` (shortest first) whose padded size stays under the budget; a row longer than it goes alone."""
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * lengths[i] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


LIMIT = 2**30  # bytes


class EmbeddingCache(LRUCache):
    """Values by key, up to `limit` bytes by the sizes that `size` gives; the least recently used are dropped first."""

    def __init__(self, size: Callable[[Any], int], limit: int = LIMIT):
        super().__init__(limit, getsizeof=size)

    def all(self, keys: Iterable[Hashable], make: Callable[[list], list]) -> dict[Hashable, Any]:
        """Return the value of every key; those not in the cache are made together: `make(missing keys)`, one each.

        >>> squares = EmbeddingCache(lambda value: 8, limit=16)
        >>> squares.all([2, 3], lambda keys: [key**2 for key in keys])
        {2: 4, 3: 9}
        >>> squares.all([3, 4], lambda keys: [key**2 for key in keys if key != 3])
        {3: 9, 4: 16}
        """
        keys = list(dict.fromkeys(keys))
        values = {key: self[key] for key in keys if key in self}
        if missing := [key for key in keys if key not in values]:
            values |= dict(zip(missing, make(missing), strict=True))
        for key in missing:
            if self.getsizeof(values[key]) <= self.maxsize:
                self[key] = values[key]
        return {key: values[key] for key in keys}
