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
from transformers import AutoModel, AutoModelForCausalLM

from vernacular.checkpoints.tuners import put_on
from vernacular.core.errors import ModelError
from vernacular.core.failures import ODD_FILES
from vernacular.metrics.similarity.encoder import BEYOND, NO_NUMBERS, EmbeddingCache, cannot_load, refuse_random
from vernacular.types import ModelRecord


def load(record: ModelRecord) -> SentenceTransformer:
    """Load the encoder of a record.

    Raises ModelError if its directory cannot be loaded or lacks weights, MachineError if memory does not suffice.
    """
    adapter = (record.get("adapter") or {}).get("folder")
    return _load(record["folder"], record["name"], bool(record.get("allow_pickle")), adapter)


@functools.lru_cache(maxsize=2)  # most evaluations of a model share one
def _load(folder: str, name: str, allow_pickle: bool, adapter: str | None) -> SentenceTransformer:
    options = {"dtype": torch.float32, "use_safetensors": not allow_pickle, "local_files_only": True}
    try:
        # sentence-transformers does not report missing weights; on "meta", no weights are read
        _, report = AutoModel.from_pretrained(
            folder,
            device_map="meta",
            use_safetensors=not allow_pickle,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        if (Path(folder) / "modules.json").exists():
            encoder = SentenceTransformer(folder, local_files_only=True, model_kwargs=options)
        else:
            encoder = _mean_pooled(folder, adapter, options)
    except ODD_FILES as error:
        raise cannot_load(name, error, allow_pickle) from error
    refuse_random(name, report)
    if encoder.tokenizer.pad_token_id is None:
        encoder.tokenizer.pad_token = encoder.tokenizer.eos_token  # excluded from the mean, so any token is suitable
    return encoder


def _mean_pooled(folder: str, adapter: str | None, options: dict) -> SentenceTransformer:
    """Build the encoder of a directory without modules.json: unchanged text, mean over its tokens and special tokens.

    The modules are built explicitly: by default, sentence-transformers pools a causal model by its last token, and
    since version 6 it renders each text as a chat message if the tokenizer has a chat template.
    """
    whole = Transformer(folder, model_kwargs=options, processor_kwargs={"local_files_only": True})
    whole.modality_config = {name: entry for name, entry in whole.modality_config.items() if name != "message"}
    whole.input_formatter.supported_modalities = list(whole.modality_config)
    # padding on the left shifts positions by the length of the longest text in the batch
    whole.tokenizer.padding_side = "right"
    if adapter:
        whole.model = _adapted(folder, adapter, options)
    return SentenceTransformer(modules=[whole, Pooling(whole.get_embedding_dimension(), "mean")])


def _adapted(folder: str, adapter: str, options: dict) -> torch.nn.Module:
    """Return the body of an evaluated model with its adapter, which fits the complete model, including the head."""
    base = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False, **options)
    put_on(base, adapter, allow_pickle=True)  # allowed: otherwise, there would be no record
    return base.get_decoder().eval()


def prefix_of(record: ModelRecord, encoder: SentenceTransformer) -> str:
    """Return the prefix of each text: that of the record, else that of the encoder's files ("query: " for E5)."""
    if record.get("prefix") is not None:
        return record["prefix"]
    return encoder.prompts.get(encoder.default_prompt_name) or ""


def cosine(encoder: SentenceTransformer, pairs: list[tuple[str, str]], prefix: str = "") -> np.ndarray:
    """Compute the cosine of each pair of texts (at least one), float64 [n_pairs], in [-1, 1].

    Each distinct text is embedded once, with `prefix` before it.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    found = _kept(encoder, prefix).all(texts, functools.partial(_embed, encoder, prefix))
    vectors = np.stack([found[text] for text in texts])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    row = {text: i for i, text in enumerate(texts)}
    first, second = (vectors[[row[pair[side]] for pair in pairs]] for side in (0, 1))
    return np.clip(np.einsum("ij,ij->i", first, second), -1.0, 1.0)


@functools.lru_cache(maxsize=4)
def _kept(encoder: SentenceTransformer, prefix: str) -> EmbeddingCache:
    return EmbeddingCache(lambda vector: vector.nbytes)


def _embed(encoder: SentenceTransformer, prefix: str, texts: list[str]) -> list[np.ndarray]:
    """Return float64 [hidden] per text. Raises ModelError, without the encoder's name."""
    # small on a CPU, so that activations fit in the cache
    size = 256 if encoder.device.type == "cuda" else 16
    try:
        vectors = encoder.encode(texts, prompt=prefix, batch_size=size, show_progress_bar=False)
    except IndexError:
        raise ModelError(BEYOND) from None
    if not np.isfinite(vectors).all():
        raise ModelError(NO_NUMBERS)
    return list(np.asarray(vectors, dtype=np.float64))


def n_truncated(encoder: SentenceTransformer, texts: list[str], prefix: str = "") -> int:
    """Return the number of texts that exceed the encoder's maximum length."""
    limit = encoder.max_seq_length or encoder.tokenizer.model_max_length
    encoded = encoder.tokenizer([prefix + text for text in texts])["input_ids"]
    return sum(len(ids) > limit for ids in encoded)


def signature(record: ModelRecord, prefix: str) -> str:
    """Return what the values depend on: `cosine|encoder:…|prefix:…|sentence-transformers:…`."""
    return (
        f"cosine|encoder:{described(record)}|prefix:{prefix!r}|sentence-transformers:{version('sentence-transformers')}"
    )


def described(record: ModelRecord) -> str:
    """Return an encoder's label in signatures: `name@revision`, or the start of its fingerprint without a revision."""
    return f"{record['name']}@{(record.get('revision') or record.get('fingerprint') or 'unknown')[:12]}"
