#!/usr/bin/env bash
# transformers 5.23.0 reads the tokenizer of a byte-level GGUF file without the control tokens whose texts have characters
# outside of the byte alphabet, such as <｜User｜> of DeepSeek's distillations (U+FF5C): a prompt that contains one is
# divided into the bytes of its characters, without a message. llama.cpp matches every control token as a whole.
# Exits with 0 if this is still so.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install -q transformers==5.23.0 gguf==0.19.0 torch==2.13.0 numpy
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import gguf
import numpy as np
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokens = [*alphabet, "ab", "<｜User｜>", "<|User|>", "<|eos|>"]
control = tokens[-3:]
writer = gguf.GGUFWriter("x.gguf", "qwen2")
for name, value in {"block_count": 1, "context_length": 64, "embedding_length": 8, "feed_forward_length": 8}.items():
    getattr(writer, f"add_{name}")(value)
writer.add_head_count(1)
writer.add_head_count_kv(1)
writer.add_layer_norm_rms_eps(1e-6)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("qwen2")
writer.add_token_list(tokens)
writer.add_token_types([3 if token in control else 1 for token in tokens])  # 3: CONTROL, 1: NORMAL
writer.add_token_merges(["a b"])
writer.add_eos_token_id(len(tokens) - 1)
writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 8), np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

tokenizer = AutoTokenizer.from_pretrained(".", gguf_file="x.gguf")
print("transformers", transformers.__version__, "gguf", version("gguf"))
ids = {token: tokenizer(token, add_special_tokens=False)["input_ids"] for token in control}
for token in control:
    print(f"control token {token}: ID in the file {tokens.index(token)}, IDs of its text {ids[token]}")
whole = [ids[token] == [tokens.index(token)] for token in control]
raise SystemExit(0 if whole == [False, True, True] else 1)
PYTHON
