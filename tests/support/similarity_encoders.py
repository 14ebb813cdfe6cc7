"""Tiny random encoders with real tokenizers, saved to directories like user-provided encoders."""

import contextlib
from collections.abc import Iterator

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizerFast,
)
from vernacular.checkpoints.inputs import record_of
from vernacular.core.model_record import AdapterRecord, ModelRecord
from vernacular.metrics.similarity import cosine

from support import observed, tiny

LINES = [
    "A Coruña é unha cidade de Galicia.",
    "O rapaz come unha mazá vermella na casa.",
    "The boy eats a red apple (at home), 3:1!",
    "Мачка спава на столу.",
    "Os gatos dormen moito e comen pouco.",
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}


def record(directory, name="tiny", **fields) -> ModelRecord:
    """Return an encoder record as the `encoder` command writes it."""
    return ModelRecord(name=name, directory=str(directory), fingerprint="f" * 64, **fields)


def adapter(directory) -> AdapterRecord:
    """Return an adapter's part of a record."""
    contents = record_of(directory)
    return AdapterRecord(str(directory), str(directory), None, "LORA", 4, False, False, contents)


@contextlib.contextmanager
def encoded_texts() -> Iterator[set[str]]:
    """Yield a set that receives all texts that sentence encoders encode; clears the store of vectors."""
    cosine.vector_store.cache_clear()
    texts: set[str] = set()
    with observed.calls(SentenceTransformer.encode, lambda arguments: texts.update(arguments["inputs"])):
        yield texts


def requests(generations: list[dict]) -> list[dict]:
    """Return the requests of the generations."""
    request = {"kind": "generate", "prefix": "", "text": "Pregunta: x\nResposta:"}
    return [request | {"item_id": row["item_id"], "role": row["role"]} for row in generations]


def bert(directory, *, lower_case=False, max_tokens=64):
    """A cased (or not) BERT with WordPiece: "##" marks the rest of a word."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    lines = [*LINES, *(normalizers.BertNormalizer(lowercase=True).normalize_str(line) for line in LINES)]
    tokenizer = tiny.word_piece(special, normalizers.BertNormalizer(lowercase=lower_case), lines)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_tokens, **names).save_pretrained(directory)
    _save(BertModel, BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=64, **SIZES), directory)
    return directory


def roberta(directory):
    """A RoBERTa with byte-level BPE, whose positions start after the padding index."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(LINES * 5, trainer)
    vocabulary, merges = tokenizer.model.save(str(directory))
    RobertaTokenizerFast(vocab=vocabulary, merges=merges, model_max_length=62).save_pretrained(directory)
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 64, "pad_token_id": 1}
    _save(RobertaModel, RobertaConfig(**sizes, **SIZES), directory)
    return directory


def modern_bert(directory):
    """A pre-norm encoder: its last hidden state is normed, the others are not."""
    bert(directory)
    ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    _save(ModernBertModel, ModernBertConfig(vocab_size=200, max_position_embeddings=64, **ids, **SIZES), directory)
    return directory


def _save(architecture, config, directory):
    torch.manual_seed(0)
    architecture(config).eval().save_pretrained(directory)
