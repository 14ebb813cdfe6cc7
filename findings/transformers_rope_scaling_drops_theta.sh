#!/usr/bin/env bash
# Model cards (Qwen3 and others) say to add `rope_scaling` with `factor` and `original_max_position_embeddings` to config.json
# for long texts. transformers 5.24.0 saves RoPE as `rope_parameters`, with `rope_theta` inside. If `rope_scaling` is added
# to such a file, it replaces `rope_parameters` as a whole, and the base becomes the default of the class: 1,000,000 in the
# file, 10,000 in the model, without a message. In the earlier form of the same config, `rope_theta` beside `rope_scaling`
# is kept. Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet torch==2.13.0 transformers==5.24.0 2>/dev/null
"$directory/venv/bin/python" - "$directory/model" <<'PYTHON'
import json
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

transformers.logging.set_verbosity_error()
print("transformers", transformers.__version__, "torch", torch.__version__)
path, base = sys.argv[1], 1_000_000.0
sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
sizes |= {"num_hidden_layers": 1, "head_dim": 8, "max_position_embeddings": 32}
Qwen3ForCausalLM(Qwen3Config(**sizes, rope_parameters={"rope_type": "default", "rope_theta": base})).save_pretrained(path)
saved = json.load(open(f"{path}/config.json"))
print("saved:", {key: value for key, value in saved.items() if "rope" in key})
scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
earlier = {key: value for key, value in saved.items() if key != "rope_parameters"} | {"rope_theta": base}
loaded = {}
for name, config in {"saved by 5.24": saved, "earlier form": earlier}.items():
    json.dump(config | {"rope_scaling": scaling, "max_position_embeddings": 128}, open(f"{path}/config.json", "w"))
    model = AutoModelForCausalLM.from_pretrained(path)
    loaded[name] = model.config.rope_parameters["rope_theta"]
    print(f"{name}, with rope_scaling: rope_theta {loaded[name]}, lowest frequency {model.model.rotary_emb.inv_freq[-1]:.2e}")
sys.exit(0 if loaded == {"saved by 5.24": 10_000.0, "earlier form": base} else 1)
PYTHON
