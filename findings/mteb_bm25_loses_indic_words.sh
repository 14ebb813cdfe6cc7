#!/usr/bin/env bash
# The baseline that MTEB compares retrievers with, baseline-bm25s, chooses a stemmer by language (Hindi, Nepali and Tamil have
# one) and letters as tokens for scripts without spaces; its docstring says that all else is divided at whitespace. It is
# divided by the pattern of bm25s, \w\w+, for which the vowel signs of Indian scripts are no part of a word: दिल्ली (Delhi) is
# द, ल and ल, of which single letters are dropped, so that nothing is left. mteb 2.26.24 with bm25s 0.3.16 finds 14 of 30
# towns in Hindi, Nepali, Bengali, Tamil and Telugu by their own names, through what is left of them, and all in Georgian,
# Amharic and Basque; divided at whitespace, all in each language.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    mteb==2.26.24 bm25s==0.3.16 PyStemmer==3.1.0 torch==2.13.0 2>/dev/null
HF_HUB_OFFLINE=1 HF_HOME="$directory/home" "$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

import bm25s
from mteb.models.model_implementations.bm25 import BM25Tokenizer

print("mteb", version("mteb"), "bm25s", version("bm25s"))
TOWNS = {
    "hin": "दिल्ली मुंबई काशी पुणे नासिक रायपुर", "nep": "काठमाडौँ पोखरा धरान विराटनगर हेटौँडा जुम्ला",
    "ben": "ঢাকা দিল্লি খুলনা সিলেট বগুড়া কুমিল্লা", "tam": "சென்னை மதுரை கோவை திருச்சி சேலம் ஈரோடு",
    "tel": "తిరుపతి నెల్లూరు కడప గుంటూరు ఏలూరు ఢిల్లీ", "kat": "თბილისი ქუთაისი ბათუმი გორი თელავი ზუგდიდი",
    "amh": "ጎንደር መቀሌ ጅማ ሐረር ባሕርዳር አዋሳ", "eus": "Bilbo Donostia Gasteiz Iruñea Baiona Maule",
}


def found(code, tokenizer=None):
    """How many of the documents, of one town each, are the only best one for its name."""
    towns = TOWNS[code].split()
    divide = BM25Tokenizer(code, tokenizer=tokenizer)
    index = bm25s.BM25(k1=1.5, b=0.75, delta=0.5, method="lucene")
    index.index(divide.fit_transform(towns), show_progress=False)
    documents, scores = index.retrieve(divide.transform(towns), k=len(towns), show_progress=False)
    return sum(int(row[0] == number and values[0] > values[1]) for number, (row, values) in enumerate(zip(documents, scores)))


seen = {}
for code in TOWNS:
    sample = TOWNS[code].split()[0]
    pieces = list(bm25s.tokenize([sample], stopwords=None, show_progress=False).vocab)
    seen[code] = found(code)
    print(f"{code}: {sample} is divided into {[piece for piece in pieces if piece]}; "
          f"{seen[code]} of 6 towns found, {found(code, str.split)} if divided at whitespace")
complete = all(found(code, str.split) == 6 for code in TOWNS)
n_found = sum(seen[code] for code in ("hin", "nep", "ben", "tam", "tel"))
print(f"Hindi, Nepali, Bengali, Tamil, Telugu: {n_found} of 30")
sys.exit(not (complete and n_found == 14 and all(seen[code] == 6 for code in ("kat", "amh", "eus"))))
PYTHON
