"""Cosine of sentence embeddings, by sentence-transformers (Reimers & Gurevych 2019).

The encoder is fixed by the config, so that the values of different models are comparable. A transformers directory
without modules.json (the evaluated model itself, in a style that requires it) is mean-pooled under the attention mask,
over the tokens of the text itself; a chat template is applied only if the encoder's modules.json specifies one.
"""

import functools
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

from vernacular.checkpoints.adapters import apply_adapter
from vernacular.checkpoints.linear_layers import use_onednn
from vernacular.checkpoints.source_check import check_tensors, unread_settings
from vernacular.checkpoints.tokenizer_check import tokenizer_of_file
from vernacular.core.errors import ModelError
from vernacular.core.library_errors import LOADING_ERRORS
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity.encoder import (
    NON_FINITE,
    OUT_OF_VOCABULARY,
    VECTOR_BYTES,
    VectorStore,
    blocks,
    check_missing_weights,
    encoder_label,
    loading_error,
    share_weights,
)


def load(record: ModelRecord) -> SentenceTransformer:
    """Load the encoder of a record.

    Raises ModelError if its directory cannot be loaded or lacks weights, MachineError if memory does not suffice.
    """
    adapter = record.adapter.directory if record.adapter else None
    return _load(record.directory, record.name, bool(record.allow_pickle), adapter, record.tokenizer_pipeline)


@functools.lru_cache(maxsize=2)  # most evaluations of a model share one
def _load(
    directory: str, name: str, allow_pickle: bool, adapter: str | None, pipeline: str | None
) -> SentenceTransformer:
    model_kwargs = {"dtype": torch.float32, "use_safetensors": not allow_pickle, "local_files_only": True}
    try:
        # sentence-transformers does not report missing weights; on "meta", no weights are read
        _, report = AutoModel.from_pretrained(
            directory,
            device_map="meta",
            use_safetensors=not allow_pickle,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        if (Path(directory) / "modules.json").exists():
            encoder = SentenceTransformer(directory, local_files_only=True, model_kwargs=model_kwargs)
        else:
            encoder = _mean_pooling_encoder(directory, adapter, model_kwargs)
        body = encoder[0]  # other first modules read tokenizer.json themselves
        if isinstance(body, Transformer) and body.tokenizer is body.processor:
            directory_of_tokenizer = body.processor.name_or_path
            body.processor, encoder.loading = tokenizer_of_file(body.processor, directory_of_tokenizer, name, pipeline)
    except LOADING_ERRORS as error:
        raise loading_error(name, error, allow_pickle) from error
    check_missing_weights(name, report)
    if not adapter and (body := next((m for m in encoder.modules() if isinstance(m, PreTrainedModel)), None)):
        check_tensors(name, body, directory, report["unexpected_keys"], allow_pickle=allow_pickle)
        encoder.loading = [*getattr(encoder, "loading", []), *unread_settings(body, directory, name)]
        share_weights(body, directory)
    use_onednn(encoder)
    if encoder.tokenizer.pad_token_id is None:
        encoder.tokenizer.pad_token = encoder.tokenizer.eos_token  # excluded from the mean, so any token is suitable
    return encoder


def _mean_pooling_encoder(directory: str, adapter: str | None, model_kwargs: dict) -> SentenceTransformer:
    """Build the encoder of a directory without modules.json: unchanged text, mean over its tokens and special tokens.

    The modules are built explicitly: by default, sentence-transformers pools a causal model by its last token, and
    since version 6 it renders each text as a chat message if the tokenizer has a chat template.
    """
    transformer = Transformer(directory, model_kwargs=model_kwargs, processor_kwargs={"local_files_only": True})
    modalities = transformer.modality_config.items()
    transformer.modality_config = {name: entry for name, entry in modalities if name != "message"}
    transformer.input_formatter.supported_modalities = list(transformer.modality_config)
    # padding on the left shifts positions by the length of the longest text in the batch
    transformer.tokenizer.padding_side = "right"
    if adapter:
        transformer.model = _load_adapted_body(directory, adapter, model_kwargs)
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")])


def _load_adapted_body(directory: str, adapter: str, model_kwargs: dict) -> torch.nn.Module:
    """Return the body of an evaluated model with its adapter, which fits the complete model, including the head."""
    base = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=False, **model_kwargs)
    apply_adapter(base, adapter, allow_pickle=True)  # allowed: otherwise, there would be no record
    return base.get_decoder().eval()


def prefix_of(record: ModelRecord, encoder: SentenceTransformer) -> str:
    """Return the prefix of each text: that of the record, else that of the encoder's files ("query: " for E5)."""
    if record.prefix is not None:
        return record.prefix
    return encoder.prompts.get(encoder.default_prompt_name) or ""


def cosine(encoder: SentenceTransformer, pairs: list[tuple[str, str]], prefix: str = "") -> np.ndarray:
    """Compute the cosine of each pair of texts (at least one), float64 [n_pairs], in [-1, 1].

    Each distinct text is embedded once, with `prefix` before it.
    """
    store = vector_store(encoder, prefix)
    if missing := store.missing(text for pair in pairs for text in pair):
        for text, vector in zip(missing, _embed(encoder, prefix, missing), strict=True):
            store[text] = vector
    values = np.empty(len(pairs))
    n_at_once = max(1, VECTOR_BYTES // (2 * 2 * store.n_bytes(pairs[0][0])))  # two texts, in float64
    for start in range(0, len(pairs), n_at_once):
        part = pairs[start : start + n_at_once]
        first, second = (np.stack([store[pair[side]] for pair in part]).astype(np.float64) for side in (0, 1))
        for vectors in (first, second):
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        values[start : start + n_at_once] = np.clip(np.einsum("ij,ij->i", first, second), -1.0, 1.0)
    return values


@functools.lru_cache(maxsize=4)
def vector_store(encoder: SentenceTransformer, prefix: str) -> VectorStore:
    return VectorStore()


def _embed(encoder: SentenceTransformer, prefix: str, texts: list[str]) -> np.ndarray:
    """Return float32 [n_texts, hidden]. Raises ModelError, without the encoder's name."""
    # small on a CPU, so that activations fit in the cache
    batch_size = 256 if encoder.device.type == "cuda" else 16
    try:
        vectors = encoder.encode(texts, prompt=prefix, batch_size=batch_size, show_progress_bar=False)
    except IndexError:
        raise ModelError(OUT_OF_VOCABULARY) from None
    if not np.isfinite(vectors).all():
        raise ModelError(NON_FINITE)
    return np.asarray(vectors, np.float32)


def n_truncated(encoder: SentenceTransformer, texts: list[str], prefix: str = "") -> int:
    """Return the number of texts that exceed the encoder's maximum length."""
    limit = encoder.max_seq_length or encoder.tokenizer.model_max_length
    encoded = (encoder.tokenizer([prefix + text for text in block])["input_ids"] for block in blocks(texts))
    return sum(len(ids) > limit for block in encoded for ids in block)


def signature(record: ModelRecord, prefix: str) -> str:
    """Return what the values depend on: `cosine|encoder:…|prefix:…|sentence-transformers:…`."""
    return (
        f"cosine|encoder:{encoder_label(record)}|prefix:{prefix!r}"
        f"|sentence-transformers:{version('sentence-transformers')}"
    )
