#!/usr/bin/env bash
# Hawaiian, Tongan and Samoan write a consonant as ʻ (U+02BB), Hausa, Guarani, Navajo and many Mayan languages as ʼ
# (U+02BC), and Catalan a long l as l·l. These characters are letters or word-medial for Unicode, but of no single
# script ("Common"), and SentencePiece 0.2.3 (`split_by_unicode_script`, on by default) allows no piece of two scripts:
# however frequent a word is, it has one piece for the consonant and one for each part around it, in BPE and Unigram,
# so that tokens per word and perplexities per token compare spellings: the same words with the Latin letter ꞌ (U+A78C)
# have one piece each. Letters of Gurage that came with Unicode 14 are divided from other Ethiopic ones in the same
# way, as the table of scripts is older. With `split_by_unicode_script=False` each word is one piece.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet sentencepiece==0.2.3 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import io
import sys
from importlib.metadata import version

import sentencepiece

print("sentencepiece", version("sentencepiece"))


def learned(word, **options):  # with the largest vocabulary that a text of this one word gives
    for size in range(60, 4, -1):
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([word] * 50), model_writer=model, model_type="bpe", vocab_size=size,
                character_coverage=1.0, minloglevel=3, **options,
            )
        except RuntimeError:
            continue
        return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode(word, out_type=str)


words = {"Hawaiian": ("kaʻa", 3), "Hausa": ("ƙaʼida", 3), "Navajo": ("naʼadąʼ", 4), "Catalan": ("col·legi", 3)}
words |= {"Gurage": ("አ𞟠ነ", 3), "Hawaiian with U+A78C": ("kaꞌa", 1), "Yoruba": ("ọ̀nà", 1), "Amharic": ("አማርኛ", 1)}
right = True
for language, (word, number) in words.items():
    pieces, free = learned(word), learned(word, split_by_unicode_script=False)
    print(f"{language} {word}: {len(pieces)} {pieces}, without the option {len(free)}")
    right = right and len(pieces) == number and len(free) == 1
sys.exit(not right)
PYTHON
