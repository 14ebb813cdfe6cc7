#!/usr/bin/env bash
# XGLM is a language model of 30 languages, among them Basque, Quechua, Haitian and Burmese. A directory of one that has its
# vocabulary in sentencepiece.bpe.model alone, as the slow tokenizer saves it, is loaded by transformers 5.24.0 without a
# warning and without the vocabulary: the tokenizer has four special tokens and seven fillers, each word of any text is
# `<unk>`, and all texts of as many words are the same to the model, so that a perplexity or the choice among answers is one
# of the number of words. XLMRobertaTokenizer reads the same file in the same version. transformers 4.57.6 read it for XGLM.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
for version in 4.57.6 5.24.0; do
    python3 -m venv --without-pip "$directory/$version"
    python3 -m pip --python "$directory/$version/bin/python" install --quiet \
        transformers=="$version" sentencepiece==0.2.3 protobuf==7.36.2 tiktoken==0.14.0 2>/dev/null
done
cat > "$directory/read.py" <<'PYTHON'
import json
import logging
import sys
from pathlib import Path

import sentencepiece
import transformers

path, expected_sizes, expected_same = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3] == "same"
messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
transformers.logging.get_logger("transformers").addHandler(handler)
texts = ["itsasoa urdina da", "mendiak handiak dira"]  # Basque: the sea is blue, mountains are big
sizes, same = [], {}
for name in ("xglm", "xlm-roberta"):
    if not (path / name).exists():
        (path / name).mkdir(parents=True)
        with (path / name / "sentencepiece.bpe.model").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts * 300), model_writer=file, vocab_size=40, hard_vocab_limit=False, minloglevel=2)
        (path / name / "config.json").write_text(json.dumps({"model_type": name}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path / name)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    sizes.append(str(len(tokenizer)))
    same[name] = ids[0] == ids[1]
    print(f"transformers {transformers.__version__} {type(tokenizer).__name__}: {len(tokenizer)} tokens, {ids[0]} and {ids[1]}")
warned = [message for message in messages if "vocab" in message.lower()]
print("warnings about the vocabulary:", warned)
sys.exit(sizes != expected_sizes or same["xglm"] != expected_same or same["xlm-roberta"] or bool(warned))
PYTHON
export HF_HUB_OFFLINE=1
"$directory/4.57.6/bin/python" "$directory/read.py" "$directory/models" 28,22 different 2>/dev/null
"$directory/5.24.0/bin/python" "$directory/read.py" "$directory/models" 11,22 same 2>/dev/null
