#!/usr/bin/env bash
# An uncased BERT of a language with tones or vowel signs has `strip_accents: false` beside `lowercase: true` in
# tokenizer.json, so that the marks stay. openvino-tokenizers 2026.4.1.0 converts this to a normalizer that lowers and
# removes them: Yoruba ọkọ (husband), ọkọ̀ (vehicle) and ọkọ́ (hoe) all become the ID of oko (farm), and words of Hindi,
# Thai, Burmese, Tamil, Tibetan, Lithuanian and Korean are unknown, without a message. With `lowercase: false` the same
# converter keeps the marks. tokenizers 0.23.3, which wrote the file, keeps them in both cases.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    openvino==2026.4.1 openvino-tokenizers==2026.4.1.0 transformers==5.24.0 tokenizers==0.23.3 2>/dev/null
HF_HUB_OFFLINE=1 HF_HOME="$directory/home" "$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

import openvino
from openvino_tokenizers import convert_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

print(*(f"{name} {version(name)}" for name in ("openvino-tokenizers", "openvino", "transformers", "tokenizers")))
YORUBA = ["oko", "ọkọ", "ọkọ̀", "ọkọ́"]  # farm, husband, vehicle, hoe
OTHERS = ["हिन्दी", "दिल्ली", "น้ำ", "မြန်မာ", "தமிழ்", "བོད", "žmonės", "한국어"]
WORDS = ["[UNK]", *YORUBA, *OTHERS, "kofi"]


def both(lowercase):
    """The words that the IDs of both tokenizers stand for, with a vocabulary of whole words."""
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    converted = openvino.Core().compile_model(convert_tokenizer(wrapped), "CPU")
    words = [*YORUBA, *OTHERS, "kofi"]
    pairs = [(wrapped(word)["input_ids"], converted([word])["input_ids"][0]) for word in words]
    return [tuple([WORDS[number] for number in ids] for ids in pair) for pair in pairs]


lower, cased = both(True), both(False)
for word, (ours, theirs), (_, kept) in zip([*YORUBA, *OTHERS, "kofi"], lower, cased):
    print(f"{word}: tokenizers {ours}, OpenVINO {theirs}; with lowercase: false, OpenVINO {kept}")
words = [[word] for word in (*YORUBA, *OTHERS, "kofi")]
held = [ours for ours, _ in lower] == words and all(pair == (word, word) for pair, word in zip(cased, words))
farms = sum(theirs == ["oko"] for _, theirs in lower[: len(YORUBA)])
unknown = sum("[UNK]" in theirs for _, theirs in lower[len(YORUBA) : -1])
print(f"{farms} of the {len(YORUBA)} words of Yoruba are oko, {unknown} of {len(OTHERS)} others are unknown")
sys.exit(not (held and farms == len(YORUBA) and unknown == len(OTHERS) and lower[-1][1] == ["kofi"]))
PYTHON
