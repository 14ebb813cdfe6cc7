#!/usr/bin/env bash
# sacremoses is a port of the Moses tokenizer, which keeps what Perl calls alphanumeric (\p{IsAlnum}) in words. Its list of
# these characters ends at U+FFDC and is that of an old Unicode: sacremoses 0.2.0 makes a token of each single letter of
# Adlam (Fulani), Osage, Chakma, Hanifi Rohingya, Wancho, Warang Citi (Ho), Miao, of Cherokee in lower case and of Georgian
# in capitals, whereas N'Ko, Ol Chiki and Georgian of lower case keep their words. So BLEU of a wrong word of such a language
# has credit for each letter, counts of tokens are those of letters, and detokenizing does not undo it. The Unicode of
# Python's `regex`, whose [\p{Alphabetic}\p{Nd}] is Perl's class, has their letters.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet sacremoses==0.2.0 regex==2026.11.19 sacrebleu==2.6.0 \
    2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

import regex
import sacrebleu
from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.corpus import Perluniprops

print(*(f"{name} {version(name)}" for name in ("sacremoses", "regex", "sacrebleu")))
SPLIT = {
    "Fulani, Adlam": "𞤆𞤵𞤤𞤢𞤪", "Osage": "𐓏𐓘𐓻𐓘𐓻𐓟", "Chakma": "𑄌𑄋𑄴𑄟𑄳𑄦", "Rohingya, Hanifi": "𐴌𐴗𐴥𐴝𐴙𐴚𐴒𐴙𐴝", "Wancho": "𞋒𞋀𞋉𞋃𞋕",
    "Ho, Warang Citi": "𑢹𑣗𑣁𑣜𑣊", "Miao, three letters": "𖼀𖼁𖼂", "Cherokee, lower case": "ꮳꮃꭹ", "Georgian, capitals": "ᲥᲐᲠᲗᲣᲚᲘ",
}
KEPT = {"N'Ko": "ߒߞߏ", "Santali, Ol Chiki": "ᱥᱟᱱᱛᱟᱲᱤ", "Cherokee, capitals": "ᏣᎳᎩ", "Georgian": "ქართული", "Tamazight": "ⵜⴰⵎⴰⵣⵉⵖⵜ"}
last = max(ord(character) for character in "".join(Perluniprops().chars("IsAlnum")))
print(f"the last alphanumeric character of sacremoses: U+{last:04X}")
tokenize = MosesTokenizer(lang="en").tokenize
detokenize = MosesDetokenizer(lang="en").detokenize
held = True
for name, word in {**SPLIT, **KEPT}.items():
    tokens = tokenize(word, escape=False)
    letters = bool(regex.fullmatch(r"[\p{Alphabetic}\p{Nd}]+", word)) or name == "Chakma"  # which has a virama as well
    print(f"{name}: {word} has {len(tokens)} tokens: {tokens}; again as text: {detokenize(tokens)}")
    held = held and letters and len(tokens) == (len(word) if name in SPLIT else 1)
    held = held and (detokenize(tokens) == word) == (name in KEPT)
pair = [(" ".join(["𞤆𞤵𞤤𞤢𞤪"] * 4), " ".join(["𞤆𞤵𞤤𞤢𞤯"] * 4)), ("ߒߞߏ ߒߞߏ ߒߞߏ ߒߞߏ", "ߒߞߊ ߒߞߊ ߒߞߊ ߒߞߊ")]
scores = []
for hypothesis, reference in pair:
    texts = [" ".join(tokenize(text, escape=False)) for text in (hypothesis, reference)]
    scores.append(sacrebleu.corpus_bleu(texts[:1], [texts[1:]], tokenize="none", force=True).score)
print(f"BLEU of four words with a wrong last letter each: {scores[0]:.1f} in Adlam, {scores[1]:.1f} in N'Ko")
sys.exit(not (held and last == 0xFFDC and scores[0] > 40 and scores[1] == 0))
PYTHON
