#!/usr/bin/env bash
# A SentencePiece model with the rule `nmt_nfkc` (XLM-R, mT5, XGLM, multilingual-e5) stores its normalizer as a compiled
# map. SentencePiece keeps the tone of a decomposed letter with two marks (Yoruba ọ̀: o, dot below, grave). The normalizer
# `Precompiled` of tokenizers 0.23.3, given the same map, composes the first mark and drops the second: ọkọ (husband), ọkọ̀
# (vehicle) and ọkọ́ (hoe) become one word, without an unknown token. Composed first (NFC), all three stay apart.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    sentencepiece==0.2.3 protobuf==7.36.2 tokenizers==0.23.3 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import io
import sys
import unicodedata

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

print("sentencepiece", sentencepiece.__version__, "tokenizers", tokenizers.__version__)
words = ["ọkọ", "ọkọ̀", "ọkọ́"]
file = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([" ".join(words)] * 200), model_writer=file, vocab_size=20, hard_vocab_limit=False,
    normalization_rule_name="nmt_nfkc", character_coverage=1.0,
)
model = sentencepiece_model_pb2.ModelProto()
model.ParseFromString(file.getvalue())
processor = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
rebuilt = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)


def names(text):
    return " ".join(f"{ord(char):04X}" for char in text)


distinct = {}
for form in ("NFC", "NFD"):
    texts = [unicodedata.normalize(form, word) for word in words]
    for library, normalize in (("sentencepiece", processor.normalize), ("tokenizers", rebuilt.normalize_str)):
        results = [normalize(text) for text in texts]
        distinct[library, form] = len(set(results))
        print(f"{form} {library}: {'; '.join(map(names, results))}")
expected = {
    ("sentencepiece", "NFC"): 3, ("sentencepiece", "NFD"): 3, ("tokenizers", "NFC"): 3, ("tokenizers", "NFD"): 1
}
print("distinct words:", distinct)
sys.exit(distinct != expected)
PYTHON
