#!/usr/bin/env bash
# A BERT checkpoint that was trained with `position_embedding_type: relative_key_query` has a table of distances in each
# layer. transformers 5.24.0 keeps the setting in the config and ignores it: the model has absolute positions only, loads
# without an error, and its logits are those of the same weights with `absolute`. So do RoBERTa, ELECTRA and XLM-R.
# Exits with 1 if that changes.
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
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, ElectraConfig, RobertaConfig, XLMRobertaConfig

transformers.logging.set_verbosity_error()
print("transformers", transformers.__version__, "torch", torch.__version__)
sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
sizes |= {"max_position_embeddings": 24}
torch.manual_seed(0)
path = sys.argv[1]
BertForMaskedLM(BertConfig(**sizes)).save_pretrained(path)
tensors, distances = load_file(f"{path}/model.safetensors"), 2 * sizes["max_position_embeddings"] - 1
for layer in range(2):  # as such checkpoints have them
    name = f"bert.encoder.layer.{layer}.attention.self.distance_embedding.weight"
    tensors[name] = torch.randn(distances, sizes["hidden_size"] // sizes["num_attention_heads"])
save_file(tensors, f"{path}/model.safetensors", metadata={"format": "pt"})
config, logits = json.load(open(f"{path}/config.json")), {}
for kind in ("absolute", "relative_key_query"):
    json.dump(config | {"position_embedding_type": kind}, open(f"{path}/config.json", "w"))
    model, info = AutoModelForMaskedLM.from_pretrained(path, output_loading_info=True)
    with torch.no_grad():
        logits[kind] = model.eval()(input_ids=torch.tensor([[3, 7, 11, 13, 17]])).logits
    unused = sum("distance_embedding" in key for key in info["unexpected_keys"])
    print(f"{kind}: config states {model.config.position_embedding_type}; {unused} tables of distances are not loaded")
is_equal = torch.equal(*logits.values())
print("logits are equal:", is_equal)
declared = {
    cls.__name__: hasattr(cls(), "position_embedding_type") for cls in (BertConfig, RobertaConfig, ElectraConfig, XLMRobertaConfig)
}
print("classes that know the setting:", [name for name, known in declared.items() if known] or "none")
sys.exit(0 if is_equal and unused == 2 and not any(declared.values()) else 1)
PYTHON
