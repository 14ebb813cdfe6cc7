#!/usr/bin/env bash
# Gemma 2 27B and Gemma 3 27B divide attention scores by the root of 144 and 168 (`query_pre_attn_scalar`: hidden size /
# heads), the smaller ones by the root of 256, the size of their heads. No key of a GGUF file states it; llama.cpp knows the
# two by their numbers of layers. transformers 5.24.0 loads both with the default of the class, 256, although the file
# states heads of 128: every logit is another one, without a message. Shown with a small Gemma 3 of the same proportions.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    torch==2.13.0 transformers==5.24.0 gguf==0.19.0 accelerate==1.15.0 2>/dev/null
cd "$directory"
venv/bin/python - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

import gguf
import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig


def write(name, config, layers, model=None, architecture="gemma3"):
    writer = gguf.GGUFWriter(name, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(512)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(512)
    writer.add_vocab_size(64)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, layers)
    for key, weight in model.state_dict().items() if model else ():
        if key != "lm_head.weight":  # tied; norms are stored as 1 + weight
            weight = (weight + 1 if "norm" in key else weight).numpy()
            writer.add_tensor(names.get_name(key, try_suffixes=(".weight",)), np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


print("transformers", transformers.__version__, "gguf", version("gguf"))
large = {
    "gemma2": ({"hidden_size": 4608, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}, 46),
    "gemma3": ({"hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128}, 62),
}
loaded = {}
for architecture, (sizes, layers) in large.items():  # the keys of the files of 27B
    write(f"{architecture}.gguf", sizes | {"intermediate_size": 21504}, layers, architecture=architecture)
    loaded[architecture] = AutoConfig.from_pretrained(".", gguf_file=f"{architecture}.gguf").query_pre_attn_scalar
    own = sizes["hidden_size"] // sizes["num_attention_heads"]
    print(f"{architecture} 27B: query_pre_attn_scalar {own}; of the GGUF file: {loaded[architecture]}")
sizes = {"hidden_size": 48, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32}
config = Gemma3TextConfig(**sizes, vocab_size=64, num_hidden_layers=2, sliding_window=512, query_pre_attn_scalar=24,
                          initializer_range=0.3, max_position_embeddings=512)  # fmt: skip
torch.manual_seed(0)
model = Gemma3ForCausalLM(config).eval()
write("small.gguf", sizes, 2, model)
ids, differences = torch.arange(3, 40)[None], {}
with torch.no_grad():
    expected = model(input_ids=ids).logits
    from_file = AutoModelForCausalLM.from_pretrained(".", gguf_file="small.gguf", dtype=torch.float32).eval()
    differences["as loaded"] = float((from_file(input_ids=ids).logits - expected).abs().max())
    for layer in from_file.model.layers:
        layer.self_attn.scaling = 24**-0.5
    differences["with the scale of the model"] = float((from_file(input_ids=ids).logits - expected).abs().max())
for name, value in differences.items():
    print(f"largest difference of a logit from the original, {name}: {value:.6f}")
is_wrong = differences["as loaded"] > 0.1 and differences["with the scale of the model"] < 1e-3
sys.exit(0 if is_wrong and set(loaded.values()) == {256} else 1)
PYTHON
