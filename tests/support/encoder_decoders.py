"""Tiny random encoder-decoder models: T5 with words to fill in, ByT5, BART, and NLLB, whose tokenizer has languages."""

import copy
import functools

import pyarrow as pa
import torch
import transformers as tf
from vernacular.inference.model.load import LoadedModel, wrap
from vernacular.protocols.schema import REQUESTS

from support import tiny

_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
_BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "init_std": 0.3, "forced_eos_token_id": None,
}  # fmt: skip
SENTINEL = "<extra_id_0>"


@functools.cache
def tokenizer(arch: str):
    """Return the tokenizer of an architecture; of T5, the metaspace one with a sentinel, and </s> behind a text."""
    if arch in ("byt5", "nllb"):
        return tf.ByT5Tokenizer() if arch == "byt5" else tf.NllbTokenizer(vocab=_pieces())
    tok = copy.deepcopy(tiny.tokenizer("metaspace"))
    if arch == "t5":
        tok.add_special_tokens({"additional_special_tokens": [SENTINEL]})
    return tok


def _pieces() -> dict[str, int]:
    """Return a vocabulary of single characters, as NLLB's BPE without merges has."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "▁", *sorted(set("".join(tiny.LINES)) - {" "})]
    return {name: number for number, name in enumerate(names)}


def model(arch: str, *, seed: int = 0, **config):
    """Return a random model of an architecture, float32, eval mode."""
    tok = tokenizer(arch)
    size = {"vocab_size": 384 if arch == "byt5" else len(tok)}
    torch.manual_seed(seed)
    if arch in ("t5", "byt5"):
        ids = {
            "pad_token_id": tok.pad_token_id,
            "eos_token_id": tok.eos_token_id,
            "decoder_start_token_id": tok.pad_token_id,
        }
        made = tf.T5ForConditionalGeneration(tf.T5Config(**_T5 | size | ids | config))
    else:
        ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
        kind = (tf.BartConfig, tf.BartForConditionalGeneration)
        kind = kind if arch == "bart" else (tf.M2M100Config, tf.M2M100ForConditionalGeneration)
        made = kind[1](kind[0](**_BART | size | ids | config))
    return made.eval().requires_grad_(False)


def record(arch: str, **options):
    """Return the record that the `model` command would write, with the settings of a run."""
    classes = {"bart": "BartForConditionalGeneration", "nllb": "M2M100ForConditionalGeneration"}
    architecture = classes.get(arch, "T5ForConditionalGeneration")
    return tiny.record("llama", **{"name": f"tiny-{arch}", "kind": "seq2seq", "architecture": architecture} | options)


def load_model(arch: str, *, seed: int = 0, config: dict | None = None, **options) -> LoadedModel:
    """Return a tiny LoadedModel; `config`: of the model; `options`: of the record."""
    return wrap(model(arch, seed=seed, **config or {}), tokenizer(arch), record(arch, **options))


def save(arch: str, directory, **config) -> None:
    """Write a tiny model and its tokenizer to a directory."""
    model(arch, **config).save_pretrained(directory)
    tokenizer(arch).save_pretrained(directory)


def generation_rows(texts, **fields) -> pa.Table:
    rows = []
    for number, text in enumerate(texts):
        row = dict.fromkeys(REQUESTS.schema.names) | {"prefix": "", "text": text, "stop": [], "kind": "generate"}
        row |= {"request_id": f"r{number}", "item_id": f"i{number}", "role": "response", "max_new_tokens": 9} | fields
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)
