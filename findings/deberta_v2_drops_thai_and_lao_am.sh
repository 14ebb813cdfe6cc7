#!/usr/bin/env bash
# A tokenizer of DeBERTa v2 or v3 may be a SentencePiece file (spm.model) without a tokenizer.json. Such a file
# states how text is normalized before it is divided, here by NFKC (`nmt_nfkc`), which writes the vowel AM of Thai and Lao
# (ำ in "water", "word" and "do", ຳ in the same) as two characters; so the vocabulary has no ำ. DebertaV2Tokenizer of
# transformers 5.24.0 ignores the normalization of the file and applies NFC: each such syllable has an unknown token, as have
# Lao ໝ, Arabic presentation forms and full-width digits, without a message. SentencePiece itself, transformers 4.57.6, and
# XLMRobertaTokenizer of 5.24.0 with a file of the same training have none.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
for version in 4.57.6 5.24.0; do
    python3 -m venv --without-pip "$directory/$version"
    python3 -m pip --python "$directory/$version/bin/python" install --quiet \
        transformers=="$version" sentencepiece==0.2.3 protobuf==7.36.2 tiktoken==0.14.0 2>/dev/null
done
cat > "$directory/train.py" <<'PYTHON'
import json
import sys
from pathlib import Path

import sentencepiece

TEXTS = {"Thai": "ทำ น้ำ คำ ตำบล สำคัญ กำลัง มา นา", "Lao": "ນ້ຳ ຄຳ ທຳ ສຳຄັນ ໝາ ມາ", "other": "ﻣﺮﺣﺒﺎ １２３"}


def train(path, config, **special):
    path.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(list(TEXTS.values()) * 300), model_prefix=str(path / "model"), vocab_size=90,
        hard_vocab_limit=False, character_coverage=1.0, normalization_rule_name="nmt_nfkc", minloglevel=2, **special)
    (path / "model.model").rename(path / ("spm.model" if special else "sentencepiece.bpe.model"))
    (path / "config.json").write_text(json.dumps({"model_type": config}))


directory = Path(sys.argv[1])
train(directory / "deberta-v2", "deberta-v2", pad_id=0, bos_id=1, eos_id=2, unk_id=3,
      pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]")
train(directory / "xlm-roberta", "xlm-roberta")
processor = sentencepiece.SentencePieceProcessor(model_file=str(directory / "deberta-v2" / "spm.model"))
unknown = {name: processor.encode(text).count(processor.unk_id()) for name, text in TEXTS.items()}
print("SentencePiece", sentencepiece.__version__, "deberta-v2 unknown tokens:", unknown)
sys.exit(any(unknown.values()))
PYTHON
cat > "$directory/count.py" <<'PYTHON'
import sys
from pathlib import Path

import transformers
from train_texts import TEXTS

directory, *expected = sys.argv[1:]
seen = []
for name in ("deberta-v2", "xlm-roberta"):
    tokenizer = transformers.AutoTokenizer.from_pretrained(Path(directory, name))
    unknown = {key: tokenizer(text)["input_ids"].count(tokenizer.unk_token_id) for key, text in TEXTS.items()}
    print("transformers", transformers.__version__, type(tokenizer).__name__, "unknown tokens:", unknown)
    if name == "deberta-v2":
        print("   ", " ".join(tokenizer.tokenize("น้ำ ทำ ນ້ຳ ໝາ")))
    seen += map(str, unknown.values())
sys.exit(seen != expected)
PYTHON
grep '^TEXTS' "$directory/train.py" > "$directory/train_texts.py"
mkdir "$directory/models"
"$directory/5.24.0/bin/python" "$directory/train.py" "$directory/models" 2>/dev/null
export HF_HUB_OFFLINE=1
"$directory/4.57.6/bin/python" "$directory/count.py" "$directory/models" 0 0 0 0 0 0 2>/dev/null
"$directory/5.24.0/bin/python" "$directory/count.py" "$directory/models" 6 5 2 0 0 0 2>/dev/null
