#!/usr/bin/env bash
# Llama 3.1, 3.2 and 3.3, and what is trained from them, slow the low frequencies of
# RoPE down (`rope_type: llama3`, `factor: 8` or `32`). The changelog of CTranslate2 states that it supports this, and its
# converter knows the type and stores both limits of the frequencies, but stores the factor for the type `linear` only: the
# runtime of CTranslate2 4.8.5 takes 1 for it. The converted model is that without any scaling, to the last digits, and its
# log-probabilities move away from those of transformers 5.24.0 with each token, without a message.
# Shown with a small model that has the settings of Llama 3.2 1B and random weights.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    ctranslate2==4.8.5 transformers==5.24.0 torch==2.13.0 2>/dev/null
HF_HUB_OFFLINE=1 "$directory/venv/bin/python" - "$directory" 2>/dev/null <<'PYTHON'
import sys
from pathlib import Path

import ctranslate2
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models

print("CTranslate2", ctranslate2.__version__, "transformers", transformers.__version__)
path = Path(sys.argv[1], "model")
words = ["<s>", "</s>", "<unk>"] + [f"w{number}" for number in range(61)]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(path)
llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
linear = {"rope_type": "linear", "rope_theta": 500000.0, "factor": 32.0}
unscaled = {"rope_type": "default", "rope_theta": 500000.0}


def model_of(rope, weights=None):
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=256, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=131072, rope_parameters=dict(rope), bos_token_id=0, eos_token_id=1)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.08)
    if weights:
        model.load_state_dict(weights)
    return model


def log_probabilities(model, ids):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)


def converted(name, ids):
    ctranslate2.converters.TransformersConverter(str(path)).convert(str(path / name))
    generator = ctranslate2.Generator(str(path / name), compute_type="float32")
    return torch.tensor(np.array(generator.forward_batch([[words[number] for number in ids]], return_log_probs=True))[0])


torch.manual_seed(0)
ids = torch.randint(3, len(words), (400,)).tolist()
model = model_of(llama3)
weights = model.state_dict()
model.save_pretrained(path)
output = converted("llama3", ids)
places = slice(0, 50), slice(50, 150), slice(150, 400)
differences = {}
for name, rope in (("llama3", llama3), ("unscaled", unscaled)):
    difference = (output - log_probabilities(model_of(rope, weights), ids)).abs().amax(1)
    differences[name] = [difference[place].max().item() for place in places]
    print(f"Converted llama3, largest difference from {name} in transformers after 50, 150 and 400 tokens:",
          " ".join(f"{value:.5f}" for value in differences[name]))
model_of(linear, weights).save_pretrained(path)
control = (converted("linear", ids) - log_probabilities(model_of(linear, weights), ids)).abs().max().item()
print(f"Converted linear, largest difference from linear in transformers: {control:.5f}")
seen = max(differences["unscaled"]) < 1e-3 and differences["llama3"][2] > 0.05 and control < 1e-3
sys.exit(not seen)
PYTHON
