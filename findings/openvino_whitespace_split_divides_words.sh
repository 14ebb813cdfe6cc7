#!/usr/bin/env bash
# Many tokenizers of small languages are trained with the pre-tokenizer WhitespaceSplit, which divides a text at whitespace
# only, or Whitespace, which also separates punctuation. As converted by openvino-tokenizers 2026.4.1.0, both divide at vowel
# signs and viramas too: Hindi हिन्दी, Bengali, Tamil, Burmese and Khmer words come apart and are unknown with either; with
# WhitespaceSplit also Quechua ch'aska, Kurdish pê-de, Tibetan and Amharic words with their own dots, without a message.
# tokenizers 0.23.3, whose file is converted, finds each word. Words without such signs are equal.
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
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

print(*(f"{name} {version(name)}" for name in ("openvino-tokenizers", "openvino", "transformers", "tokenizers")))
PLAIN = ["ọkọ̀", "ქართული", "žmonės", "ᐃᓄᒃᑎᑐᑦ"]
SIGNS = ["हिन्दी", "বাংলা", "தமிழ்", "မြန်မာ", "ខ្មែរ"]
INSIDE = ["ch'aska", "pê-de", "བོད་སྐད", "ሰላም፡ነው"]
WORDS = ["[UNK]", *PLAIN, *SIGNS, *INSIDE]


def both(name):
    """The tokens of each word, by both tokenizers, with a vocabulary of whole words."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = getattr(pre_tokenizers, name)()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    converted = openvino.Core().compile_model(convert_tokenizer(wrapped), "CPU")
    pairs = {word: (wrapped(word)["input_ids"], converted([word])["input_ids"][0]) for word in WORDS[1:]}
    return {word: tuple([WORDS[number] for number in ids] for ids in pair) for word, pair in pairs.items()}


held = True
for name, whole, broken in (("WhitespaceSplit", PLAIN, SIGNS + INSIDE), ("Whitespace", PLAIN, SIGNS)):
    tokens = both(name)
    for word in whole + broken:
        ours, theirs = tokens[word]
        print(f"{name}, {word}: tokenizers {ours}, OpenVINO {len(theirs)} tokens {theirs}")
        held = held and ours == [word] and (theirs == [word] if word in whole else len(theirs) > 1 and set(theirs) == {"[UNK]"})
sys.exit(not held)
PYTHON
