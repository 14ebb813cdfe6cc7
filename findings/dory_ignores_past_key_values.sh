#!/usr/bin/env bash
# transformers 5.24.0 names the cache `cache`. Most classes still take `past_key_values` and pass it on, some with a
# warning; DoryForCausalLM accepts it among its keyword arguments, and neither uses it nor says so: the logits of a second
# token are those of a text of one token. Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet torch==2.13.0 transformers==5.24.0 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import sys
import warnings

import torch
import transformers
from transformers import DoryConfig, DoryForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM

warnings.simplefilter("ignore")
print("transformers", transformers.__version__, "torch", torch.__version__)
sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
sizes |= {"num_hidden_layers": 3, "head_dim": 8, "initializer_range": 0.3}
models = {
    "dory": (DoryForCausalLM, DoryConfig(**sizes, n_input_layers=1, n_output_layers=1, ngpt_alpha_init=0.5)),
    "llama": (LlamaForCausalLM, LlamaConfig(**sizes)),
}
used = {}
for name, (cls, config) in models.items():
    torch.manual_seed(0)
    model = cls(config).eval()
    ids = torch.tensor([[3, 7, 11, 13]])
    with torch.no_grad():
        expected = model(input_ids=ids).logits[0, -1]
        for argument in ("cache", "past_key_values"):
            cache = DynamicCache(config=config)
            model(input_ids=ids[:, :-1], use_cache=True, **{argument: cache})
            logits = model(input_ids=ids[:, -1:], use_cache=True, **{argument: cache}).logits[0, -1]
            used[name, argument] = bool(torch.allclose(logits, expected, atol=1e-4))
            print(f"{name}, {argument}: {cache.get_seq_length()} tokens cached, logits of the text: {used[name, argument]}")
expected = {("dory", "cache"): True, ("dory", "past_key_values"): False}
expected |= {("llama", "cache"): True, ("llama", "past_key_values"): True}
sys.exit(0 if used == expected else 1)
PYTHON
