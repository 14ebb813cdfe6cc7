#!/usr/bin/env bash
# Unicode's NFC and NFD put marks below a letter before those above it, so that texts are equal in whichever order they were
# typed, and tokenizers that begin with such a form rely on it. The conversion of the four forms by openvino-tokenizers
# 2026.4.1.0 composes and decomposes, but does not order: Yoruba ẹ̀ typed as e, grave, dot below stays "è" with a dot below,
# Vietnamese ệ stays "ê" with a dot below, and Arabic shadda and fatha, Hebrew points, Navajo ą́ and Tibetan vowels stay as
# typed, so that a word has other tokens than in training. Python and tokenizers 0.23.3 agree on each of them.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    openvino==2026.4.1 openvino-tokenizers==2026.4.1.0 transformers==5.24.0 tokenizers==0.23.3 2>/dev/null
HF_HUB_OFFLINE=1 HF_HOME="$directory/home" "$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
import unicodedata
from importlib.metadata import version

import openvino
from openvino_tokenizers import convert_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

print(*(f"{name} {version(name)}" for name in ("openvino-tokenizers", "openvino", "transformers", "tokenizers")))
ORDERED = {"Yoruba": "ẹ\u0300kọ\u0301", "Hindi": "ज\u093cरा", "Lithuanian": "ė\u0303"}  # as NFC has them, or needing no order
TYPED = {
    "Yoruba": "e\u0300\u0323ko\u0301\u0323", "Vietnamese": "\u00ea\u0323", "Arabic": "\u0645\u0651\u064e",
    "Hebrew": "\u05e9\u05c1\u05b8", "Navajo": "a\u0301\u0328", "Tibetan": "\u0f40\u0f74\u0f71",
}


def points(text):
    """The code points of a text."""
    return " ".join(f"{ord(character):04X}" for character in text)


held = True
for form in ("NFC", "NFD", "NFKC", "NFKD"):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate([*alphabet, "[UNK]"])}  # tokens are bytes
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.normalizer = getattr(normalizers, form)()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    converted = openvino.Core().compile_model(convert_tokenizer(wrapped), "CPU")
    for words, ordered in ((ORDERED, True), (TYPED, False)):
        for language, word in words.items():
            expected = unicodedata.normalize(form, word)
            ours = wrapped.decode(wrapped(word)["input_ids"])
            theirs = wrapped.decode(converted([word])["input_ids"][0].tolist())
            if form == "NFC":
                print(f"{language} {points(word)}: NFC {points(expected)}, tokenizers {points(ours)}, OpenVINO {points(theirs)}")
            held = held and ours == expected and (theirs == expected) == ordered
    print(f"{form}: OpenVINO differs for each of the {len(TYPED)} that are typed in another order, and for no other: {held}")
sys.exit(not held)
PYTHON
