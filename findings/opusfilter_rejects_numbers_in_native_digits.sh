#!/usr/bin/env bash
# OpusFilter cleans the parallel corpora that translation models of small languages are trained and tested on. Two of
# its filters compare the segments of a pair, and know the characters of English only. In version 3.3.1,
# NonZeroNumeralsFilter (do both segments have the same digits?) sees 0-9: a Bengali, Nepali, Burmese, Khmer, Persian
# or Dzongkha translation with its own digits has none, and the pair is removed, as if the number were missing, while
# pairs without numbers and those with a wrong word for it stay. TerminalPunctuationFilter counts . ? ! and …: four
# sentences that end with । ။ ። or ۔ count as none, and the pair is removed too. No message is given; the default
# thresholds are used.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
install() { python3 -m pip --python "$directory/venv/bin/python" install --quiet "$@" 2>/dev/null; }
install --no-deps opusfilter==3.3.1
install regex rapidfuzz ruamel.yaml tqdm iso639-lang numpy==2.4.6 pandas==3.1.1 # what its filters import
"$directory/venv/bin/python" - <<'PYTHON'
import sys
import unicodedata
from importlib.metadata import version

from opusfilter.filters import NonZeroNumeralsFilter, TerminalPunctuationFilter

print("opusfilter", version("opusfilter"))
english = "It was founded in 1971."
translations = {
    "Bengali": "এটি ১৯৭১ সালে প্রতিষ্ঠিত হয়।",
    "Nepali": "यो १९७१ मा स्थापना भएको थियो।",
    "Persian": "در سال ۱۹۷۱ تأسیس شد.",
    "Burmese": "၁၉၇၁ ခုနှစ်တွင် တည်ထောင်ခဲ့သည်။",
    "Khmer": "វាត្រូវបានបង្កើតឡើងនៅឆ្នាំ ១៩៧១។",
}
numerals, ends = NonZeroNumeralsFilter(), TerminalPunctuationFilter()
right = True
for language, text in translations.items():
    ascii_digits = "".join(str(unicodedata.digit(letter)) if letter.isdecimal() else letter for letter in text)
    scores = [score[0] for score in numerals.score([(english, text), (english, ascii_digits)])]
    kept = [numerals.accept([score]) for score in scores]
    print(f"{language}: own digits {scores[0]}, kept {kept[0]}; the same with 0-9 {scores[1]}, kept {kept[1]}")
    right = right and scores == [0.0, 1.0] and kept == [False, True]
wrong = next(iter(numerals.score([("He came in two years.", "সে আসেনি।")])))
print(f"a wrong pair without digits: {wrong[0]}, kept {numerals.accept(wrong)}")
four = "He came. He saw. He ate. He left."
for language, text in {"Nepali": "ऊ आयो। उसले देख्यो। उसले खायो। ऊ गयो।", "Amharic": "መጣ። አየ። በላ። ሄደ።"}.items():
    own, dots = ends.score([(four, text), (four, text.replace("।", ".").replace("።", "."))])
    kept = ends.accept(own), ends.accept(dots)
    print(f"{language}, four sentences: {own:.2f}, kept {kept[0]}; with full stops {dots:.2f}, kept {kept[1]}")
    right = right and kept == (False, True)
sys.exit(not (right and numerals.accept(wrong)))
PYTHON
