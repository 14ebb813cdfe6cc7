#!/usr/bin/env bash
# chrF averages F-scores over n-grams of 1 to 6 characters. sacrebleu 2.6.0, whose chrF is the one that is reported,
# averages over the orders that the texts have (its `eps_smoothing`, off by default, is that of the first chrF++.py and
# NLTK). CHRFScore of torchmetrics 1.9.0, which documents that it follows sacrebleu, always divides by 6 (by 8 with
# words, its default), and an order for which a text is too short counts as 0: a translation equal to its reference has
# 50 for a word of three letters, 17 for one Chinese character, 83 for the Yoruba "ọ dára". So in lists of words, short
# answers and labels, a language with short words scores lower for the same quality, and sentence scores differ from
# those of sacrebleu. No message is given.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet torch==2.13.0 torchmetrics==1.9.0 \
    sacrebleu==2.6.0 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

from sacrebleu.metrics import CHRF
from torchmetrics.text import CHRFScore

print(*(f"{name} {version(name)}" for name in ("torchmetrics", "sacrebleu")))
expected = {"猫": (17, 25), "iya": (50, 50), "ნანა": (67, 62), "ọ dára": (83, 88), "საქართველო": (100, 88)}
seen = {}
for text, values in expected.items():
    ours = [round(100 * CHRFScore(n_word_order=order)([text], [[text]]).item(), 1) for order in (0, 2)]
    theirs = [round(CHRF(word_order=order).sentence_score(text, [text]).score, 1) for order in (0, 2)]
    seen[text] = ours, theirs
    print(f"{text} against itself, chrF and chrF++: torchmetrics {ours}, sacrebleu {theirs}")
words = ["iya", "ilé", "omi", "ọkọ", "ẹja"]  # mother, house, water, husband, fish
total = 100 * CHRFScore(n_word_order=0)(words, [[word] for word in words]).item()
theirs = CHRF(word_order=0).corpus_score(words, [words]).score
print(f"five Yoruba words, all right, as a corpus: torchmetrics {total:.1f}, sacrebleu {theirs:.1f}")
half = all(abs(a - b) < 1 for text, values in expected.items() for a, b in zip(seen[text][0], values, strict=True))
right = all(value == 100 for _, theirs in seen.values() for value in theirs)
sys.exit(not (half and right and round(total) == 50 and round(theirs) == 100))
PYTHON
