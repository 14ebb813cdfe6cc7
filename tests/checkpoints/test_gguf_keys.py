"""Keys and tensors of GGUF files: what transformers does not load is rejected by name, unless it has no effect."""

import numpy as np
import pytest
import torch
import transformers as tf
from support import llama, tiny
from support.engines import score
from support.messages import assert_states
from tokenizers import Tokenizer, models
from transformers import LlamaTokenizer
from vernacular.checkpoints.gguf_conversion import check_keys, check_tokenizer
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.inference.model.load import load
from vernacular.inference.model.loaded import wrap

pytest.importorskip("gguf", reason="the package gguf is not installed")

TEXT = "O gato dorme no tellado e a cadela ladra na rúa."


@pytest.fixture(scope="module")
def model():
    tokenizer = tiny.tokenizer("bytes")
    return wrap(tiny.model("llama", len(tokenizer)), tokenizer, tiny.record("llama"))


def ones(size=4):
    return np.ones(size, np.float32)


EFFECTS = {
    "rope_freqs.weight": lambda w: w.add_tensor("rope_freqs.weight", np.array([1, 1, 8, 32], np.float32)),
    "rope_factors_long.weight": lambda w: w.add_tensor("rope_factors_long.weight", ones()),
    "blk.1.attn_q.bias": lambda w: w.add_tensor("blk.1.attn_q.bias", ones(32)),
    "blk.0.attn_q_norm.weight": lambda w: w.add_tensor("blk.0.attn_q_norm.weight", ones(8)),
    "llama.rope.scaling.type: linear": lambda w: (w.add_string("llama.rope.scaling.type", "linear"), factor(w)),
    "llama.rope.scaling.type: yarn": lambda w: (w.add_string("llama.rope.scaling.type", "yarn"), factor(w)),
    "llama.rope.scaling.factor: 4.0": lambda w: factor(w),  # llama.cpp: linear if there is no type
    "llama.rope.scale_linear: 2.0": lambda w: w.add_float32("llama.rope.scale_linear", 2.0),
    "llama.attention.sliding_window: 16": lambda w: w.add_uint32("llama.attention.sliding_window", 16),
    "llama.attention.key_length: 16": lambda w: w.add_uint32("llama.attention.key_length", 16),
    "llama.attention.clamp_kqv: 8.0": lambda w: w.add_float32("llama.attention.clamp_kqv", 8.0),
    "llama.attention.causal: False": lambda w: w.add_bool("llama.attention.causal", False),
    "llama.logit_scale: 0.5": lambda w: w.add_float32("llama.logit_scale", 0.5),
    "llama.not.yet.known: 3": lambda w: w.add_uint32("llama.not.yet.known", 3),
    "tokenizer.ggml.add_sep_token: True": lambda w: w.add_bool("tokenizer.ggml.add_sep_token", True),
    "expected a complete model": lambda w: w.add_uint16("split.count", 2),
}


def factor(writer):
    writer.add_float32("llama.rope.scaling.factor", 4.0)


@pytest.mark.parametrize("architecture", ["unheard-of", "bert", "deci", "phi3"])
def test_model_that_transformers_does_not_build_is_no_incomplete_download(model, tmp_path, architecture):
    llama.write_gguf(model, tmp_path / "x.gguf", architecture=architecture)
    with pytest.raises(ModelError) as raised:
        resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out")
    reason = (
        "cannot build its model" if architecture == "phi3" else f"does not support its architecture, {architecture}"
    )
    assert_states(raised.value, "x.gguf", reason, "original checkpoint", "dtype: auto")
    assert "incomplete" not in str(raised.value)


def test_name_that_transformers_takes_for_an_architecture_is_no_incomplete_download(model, tmp_path):
    llama.write_gguf(model, tmp_path / "x.gguf", add=lambda writer: writer.add_name("mistral"))
    with pytest.raises(ModelError) as raised:
        resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out")
    assert_states(raised.value, "x.gguf", "cannot build its model", "mistral", "dtype: auto")
    assert "incomplete" not in str(raised.value)


@pytest.mark.parametrize("number", [99])  # of a later version
def test_kind_of_weights_that_transformers_does_not_read_is_no_incomplete_download(model, tmp_path, number):
    llama.write_gguf(model, tmp_path / "x.gguf")
    content = bytearray((tmp_path / "x.gguf").read_bytes())
    place = content.index(b"output.weight") + len("output.weight") + 4 + 2 * 8  # dimensions: how many, and each
    content[place : place + 4] = number.to_bytes(4, "little")
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(ModelError) as raised:
        resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out")
    assert_states(raised.value, "x.gguf", str(number), "original checkpoint", "dtype: auto")
    assert "incomplete" not in str(raised.value)


@pytest.mark.parametrize("name", EFFECTS)
def test_key_or_tensor_with_effect_is_rejected_by_name(model, tmp_path, name):
    llama.write_gguf(model, tmp_path / "x.gguf", add=EFFECTS[name])
    with pytest.raises(ModelError) as raised:
        resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out")
    assert_states(raised.value, "x.gguf", name, "original checkpoint")
    assert "incomplete" not in str(raised.value)


def no_effects(writer):
    writer.add_string("llama.rope.scaling.type", "none")
    factor(writer)
    writer.add_uint32("llama.rope.scaling.original_context_length", 64)
    writer.add_uint32("llama.attention.sliding_window", 512)  # as long as the context
    writer.add_uint32("llama.attention.key_length", 8)
    writer.add_float32("llama.logit_scale", 0.0)
    writer.add_tensor("rope_freqs.weight", ones())
    writer.add_string("quantize.imatrix.file", "x.dat")
    writer.add_uint32("tokenizer.ggml.fim_pre_token_id", 1)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 7)


@pytest.mark.parametrize("head_dim", [8, 16], ids=["default head", "larger head"])
def test_values_of_a_file_are_those_of_its_original(tmp_path, head_dim):
    tokenizer = tiny.tokenizer("bytes")
    config = tf.LlamaConfig(
        vocab_size=len(tokenizer), head_dim=head_dim, bos_token_id=None, eos_token_id=None, **tiny.GQA
    )
    torch.manual_seed(0)
    original = wrap(tf.LlamaForCausalLM(config).eval(), tokenizer, tiny.record("llama"))
    llama.write_gguf(original, tmp_path / "x.gguf", add=no_effects if head_dim == 8 else lambda writer: None)
    record = resolve("x", str(tmp_path / "x.gguf"), tmp_path / "out") | {"dtype": "float32", "device": "cpu"}
    loaded = load(record)
    requests = tiny.score_requests([(TEXT, 0, len(TEXT))])
    values = [score(each, requests)[0]["logprobs"].to_pylist()[0] for each in (original, loaded)]
    assert values[0] == pytest.approx(values[1], abs=1e-4)
    assert loaded.model.generation_config.eos_token_id == ([0, 7] if head_dim == 8 else 0)


def test_head_size_that_transformers_does_not_read_is_no_incomplete_download(tmp_path):
    tokenizer = tiny.tokenizer("bytes")
    torch.manual_seed(0)
    own = tf.LlamaForCausalLM(tf.LlamaConfig(vocab_size=len(tokenizer), head_dim=16, **tiny.GQA)).eval()
    original = wrap(own, tokenizer, tiny.record("llama"))
    for name, add in (("key", lambda w: w.add_uint32("qwen2.attention.key_length", 16)), ("none", lambda w: None)):
        llama.write_gguf(original, tmp_path / f"{name}.gguf", architecture="qwen2", add=add)
        with pytest.raises(ModelError) as raised:
            resolve("x", str(tmp_path / f"{name}.gguf"), tmp_path / "out")
        assert_states(raised.value, f"{name}.gguf", "16" if name == "key" else "qwen2.rope.dimension_count")
        assert "incomplete" not in str(raised.value)


@pytest.mark.parametrize("stated", [True, False, None])
def test_prefix_of_sentencepiece_is_that_of_the_file(stated):
    vocabulary = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3}
    metadata = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": list(vocabulary)}
    metadata |= {} if stated is None else {"tokenizer.ggml.add_space_prefix": stated}
    tokenizer = LlamaTokenizer(vocab=vocabulary, merges=[("▁", "a")])
    if stated is not False:
        check_tokenizer("x.gguf", metadata, tokenizer)
        return
    with pytest.raises(ModelError, match=r"x.gguf: tokenizer.ggml.add_space_prefix: False: transformers adds a space"):
        check_tokenizer("x.gguf", metadata, tokenizer)


def test_control_token_of_a_template_must_be_one_token():
    core = Tokenizer(models.BPE(vocab={"<": 0, "u": 1, ">": 2, "<u>": 3}, merges=[]))
    metadata = {"tokenizer.ggml.tokens": ["<", "u", ">", "<u>"], "tokenizer.ggml.token_type": [1, 1, 1, 3]}
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=core)
    check_tokenizer("x.gguf", metadata | {"tokenizer.chat_template": "{{ messages }}"}, tokenizer)
    with pytest.raises(ModelError, match=r"x.gguf: its chat template contains '<u>'"):
        check_tokenizer("x.gguf", metadata | {"tokenizer.chat_template": "<u>{{ messages }}"}, tokenizer)


SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "max_position_embeddings": 512}
HEADS = {"attention.head_count": 4, "attention.head_count_kv": 2, "context_length": 512}
GEMMA = {**SIZES, "head_dim": 16, "sliding_window": 32, "query_pre_attn_scalar": 16}
OTHERS = {  # architecture, config as transformers makes it, keys, key that is rejected
    "base of starcoder2": ("starcoder2", tf.Starcoder2Config(**SIZES), {"rope.freq_base": 1e6}, "rope.freq_base"),
    "base that is the default": ("starcoder2", tf.Starcoder2Config(**SIZES), {"rope.freq_base": 1e4}, None),
    "base of llama.cpp": ("qwen2", tf.Qwen2Config(**SIZES, rope_parameters={"rope_theta": 5e5}), {}, "rope.freq_base"),
    "part of phi3": ("phi3", tf.Phi3Config(**SIZES), {"rope.dimension_count": 12}, "rope.dimension_count"),
    "window of phi3": ("phi3", tf.Phi3Config(**SIZES), {"attention.sliding_window": 32}, "attention.sliding_window"),
    "window that is not stated": ("llama", tf.MistralConfig(**SIZES, sliding_window=32), {}, "attention.sliding_window"),
    "gemma3": (
        "gemma3", tf.Gemma3TextConfig(**GEMMA),
        {"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window": 32, "attention.key_length": 16}, None,
    ),
    "scaled gemma3": (
        "gemma3", tf.Gemma3TextConfig(**GEMMA),
        {"rope.freq_base": 1e6, "attention.sliding_window": 32, "rope.scaling.factor": 8.0}, "rope.scaling.factor",
    ),
    "soft caps of gemma2": (
        "gemma2", tf.Gemma2Config(**GEMMA), {"attention.sliding_window": 32, "attn_logit_softcapping": 30.0},
        "attn_logit_softcapping",
    ),
    "scale of gemma2": (
        "gemma2", tf.Gemma2Config(**GEMMA | {"query_pre_attn_scalar": 24}),
        {"attention.sliding_window": 32, "attention.key_length": 16}, "attention.key_length: 16",
    ),
    "part that is not stated": ("stablelm", tf.StableLmConfig(**SIZES), {}, "rope.dimension_count: 16"),
    "context of mamba": ("mamba", tf.MambaConfig(hidden_size=64), {"attention.head_count": 0, "attention.head_count_kv": 0}, None),
    "heads of layers": ("llama", tf.LlamaConfig(**SIZES), {"attention.head_count_kv": [2, 4]}, "attention.head_count_kv"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_key_must_be_in_the_config_whether_it_is_mapped_or_a_default(name):
    architecture, config, keys, rejected = OTHERS[name]
    metadata = {f"{architecture}.{key}": value for key, value in (HEADS | keys).items()}
    metadata["general.architecture"] = architecture
    config.update({"max_position_embeddings": 512})  # as transformers maps it
    if rejected is None:
        check_keys("x.gguf", metadata, config)
        return
    with pytest.raises(ModelError) as raised:
        check_keys("x.gguf", metadata, config)
    assert_states(raised.value, "x.gguf", f"{architecture}.{rejected}", "original checkpoint")
