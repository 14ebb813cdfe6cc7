"""Random models of several architectures as GGUF files, written as llama.cpp's conversion does, and quantized by it."""

import contextlib
import ctypes
import math
from pathlib import Path

import numpy as np
import torch
import transformers as tf

from support import llama, tiny

SIZES = {
    "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.06, "head_dim": 64,
    "max_position_embeddings": 512, "num_key_value_heads": 2, "intermediate_size": 512,
}  # fmt: skip
BASE = {"rope_theta": 10_000.0}
LLAMA3 = BASE | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                 "original_max_position_embeddings": 64}  # fmt: skip
YARN = BASE | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
CONFIGS = {
    "llama": lambda v: tf.LlamaConfig(vocab_size=v, rope_parameters=LLAMA3, **SIZES),
    "qwen2": lambda v: tf.Qwen2Config(vocab_size=v, rope_parameters=BASE, **SIZES),  # biases
    "qwen3": lambda v: tf.Qwen3Config(vocab_size=v, rope_parameters=YARN, tie_word_embeddings=True, **SIZES),
    "phi3": lambda v: tf.Phi3Config(
        vocab_size=v, rope_parameters=BASE | {"rope_type": "default", "partial_rotary_factor": 0.5}, pad_token_id=0, **SIZES
    ),
    "gemma3": lambda v: tf.Gemma3TextConfig(
        vocab_size=v, sliding_window=16, query_pre_attn_scalar=64, **SIZES | {"num_hidden_layers": 6},
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    ),
    "starcoder2": lambda v: tf.Starcoder2Config(
        vocab_size=v, rope_parameters=BASE, sliding_window=None, **{k: n for k, n in SIZES.items() if k != "head_dim"}
    ),
    "mamba": lambda v: tf.MambaConfig(
        vocab_size=v, hidden_size=256, state_size=16, num_hidden_layers=2, initializer_range=0.06
    ),
    "qwen3moe": lambda v: tf.Qwen3MoeConfig(
        vocab_size=v, rope_parameters=BASE, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256,
        decoder_sparse_step=1, norm_topk_prob=True, **SIZES
    ),
}  # fmt: skip
FILE_TYPES = {"F32": 0, "Q8_0": 7, "Q4_K_M": 15}


LONG = {"short_factor": [1.0] * 32, "long_factor": [1.0 + i / 4 for i in range(32)]}


def longrope(vocabulary: int):
    """Return the config of a model with other positions in texts of more than 256 tokens."""
    rope = BASE | {"rope_type": "longrope", "original_max_position_embeddings": 256, "factor": 4.0, **LONG}
    sizes = SIZES | {"max_position_embeddings": 1024, "original_max_position_embeddings": 256}
    return tf.Phi3Config(vocab_size=vocabulary, rope_parameters=rope, pad_token_id=0, **sizes)


def write_factors(writer) -> None:
    """Add what such a model has in GGUF."""
    writer.add_rope_scaling_orig_ctx_len(256)
    writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(4) / math.log(256)))
    for name in ("short", "long"):
        writer.add_tensor(f"rope_factors_{name}.weight", np.array(LONG[f"{name}_factor"], np.float32))


def model(architecture: str, *, seed: int = 0, config=None):
    """Return (a random model of transformers, float32, whose biases and norms are random, too; its tokenizer)."""
    tokenizer = tiny.tokenizer("bytes")
    config = (config or CONFIGS[architecture])(len(tokenizer))
    config.bos_token_id = config.eos_token_id = None
    torch.manual_seed(seed)
    made = tf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for name, weight in made.named_parameters():
        if weight.ndim == 1 and not name.endswith(("dt_proj.bias", ".D")):
            weight.add_(torch.randn_like(weight) * 0.1)
    return made, tokenizer


def write(made, tokenizer, path, architecture: str, add=lambda writer: None) -> None:
    """Write a model as GGUF in float32."""
    import gguf

    config = made.config
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(getattr(config, "max_position_embeddings", 512))
    writer.add_embedding_length(config.hidden_size)
    writer.add_file_type(0)
    {"mamba": _mamba_keys}.get(architecture, _attention_keys)(writer, config, architecture)
    llama._add_tokenizer(writer, tokenizer, gguf.TokenType, "gpt-2")
    for name, tensor in _tensors(made, architecture):
        writer.add_tensor(name, np.ascontiguousarray(tensor.numpy(), dtype=np.float32))
    add(writer)
    llama._write(writer)


def quantize(source, path, kind: str) -> None:
    """Quantize a GGUF file by llama.cpp."""
    from vernacular.checkpoints.llama_cpp import library

    parameters = library().llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread, parameters.allow_requantize = FILE_TYPES[kind], 1, True
    assert library().llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(parameters)) == 0


def write_all(architecture: str, directory: Path) -> dict[str, Path]:
    """Write a model in each of FILE_TYPES; return the files, by type."""
    files = {kind: directory / f"{architecture}-{kind}.gguf" for kind in FILE_TYPES}
    write(*model(architecture), files["F32"], architecture)
    for kind in ("Q8_0", "Q4_K_M"):
        quantize(files["F32"], files[kind], kind)
    return files


def _attention_keys(writer, config, architecture: str) -> None:
    import gguf

    parameters = config.rope_parameters
    rope = parameters.get("full_attention", parameters)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * (rope.get("partial_rotary_factor") or 1)))
    writer.add_rope_freq_base(rope["rope_theta"])
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(config.norm_epsilon)
    if rope.get("rope_type") in ("yarn", "linear"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(rope, head_dim))
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "qwen3moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def _llama3_factors(rope: dict, head_dim: int) -> np.ndarray:
    """Return what divides each frequency of RoPE, as `_compute_llama3_parameters` of transformers computes it."""
    frequencies = 1 / rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = (rope["original_max_position_embeddings"] * frequencies / (2 * math.pi) - low) / (high - low)
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def _mamba_keys(writer, config, architecture: str) -> None:
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.intermediate_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.time_step_rank)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)


def _tensors(made, architecture: str):
    """Yield the names and values of the tensors in a GGUF file."""
    import gguf

    config = made.config
    kind = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for key, tensor in made.state_dict().items():
        if key == "lm_head.weight" and (config.tie_word_embeddings or architecture in ("gemma3", "mamba")):
            continue
        if architecture == "llama" and key.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in key else config.num_key_value_heads
            tensor = torch.from_numpy(llama._interleave(tensor.numpy(), heads))
        if architecture == "gemma3" and "norm" in key:
            tensor = tensor + 1
        if key.endswith("A_log"):
            key, tensor = key, -tensor.exp()
        if key.endswith("conv1d.weight"):
            tensor = tensor.squeeze(1)
        if key.endswith("experts.gate_up_proj"):
            layer = key.split(".")[2]
            gate, up = tensor.chunk(2, 1)
            yield f"blk.{layer}.ffn_gate_exps.weight", gate
            yield f"blk.{layer}.ffn_up_exps.weight", up
            continue
        if key.endswith("experts.down_proj"):
            yield f"blk.{key.split('.')[2]}.ffn_down_exps.weight", tensor
            continue
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name, key
        yield name, tensor


def write_adapter(path, architecture="llama", rank=4) -> dict[str, np.ndarray]:
    """Write a LoRA adapter of `ffn_down` in the first layer as GGUF; return its matrices and their factor."""
    import gguf

    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    a, b = random.normal(0, 0.1, (rank, 512)), random.normal(0, 0.1, (256, rank))
    writer.add_tensor("blk.0.ffn_down.weight.lora_a", a.astype(np.float32))
    writer.add_tensor("blk.0.ffn_down.weight.lora_b", b.astype(np.float32))
    llama._write(writer)
    return {"a": a, "b": b, "scale": 8.0 / rank}


@contextlib.contextmanager
def context(loaded, n_tokens: int):
    """Yield a new context of llama.cpp for one text, as of the engine: float32, no flash attention."""
    lib = loaded.llama
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = n_tokens
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.type_k = parameters.type_v = lib.GGML_TYPE_F32
    parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.swa_full = True
    pointer = lib.llama_init_from_model(loaded.model, parameters)
    try:
        yield pointer
    finally:
        lib.llama_free(pointer)


def logits_alone(loaded, ids: list[int]) -> np.ndarray:
    """Return the logits of all tokens of one text, by one call of llama.cpp: float32 [tokens, vocabulary]."""
    lib = loaded.llama
    batch = lib.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for position, token in enumerate(ids):
        batch.token[position], batch.pos[position], batch.n_seq_id[position] = int(token), position, 1
        batch.seq_id[position][0], batch.logits[position] = 0, 1
    with context(loaded, max(256, len(ids))) as pointer:
        assert lib.llama_decode(pointer, batch) == 0
        values = lib.llama_get_logits(pointer)
        found = np.ctypeslib.as_array(values, shape=(len(ids), loaded.n_embeddings)).copy()
    lib.llama_batch_free(batch)
    return found
