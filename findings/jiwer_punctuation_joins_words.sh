#!/usr/bin/env bash
# jiwer's RemovePunctuation is the usual first step before WER is computed. Version 4.0.0 deletes each character of
# Unicode's categories P and puts nothing in its place. In some scripts, a character of P stands between words where
# others have a space: the Ethiopic wordspace ፡ (Amharic, Tigrinya, Ge'ez), the Tibetan tsheg ་ after each syllable,
# the Ugaritic or Old Persian divider. A sentence is then one word: WER is 0 or 1, and 1 for any single error, where
# the same words with spaces between them have 0.2. A Hebrew or Armenian compound with its hyphen (־ ֊) becomes one
# word as well. The default transform keeps these characters, and also sees one word. No message is given.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet jiwer==4.0.0 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import sys
import unicodedata
from importlib.metadata import version

import jiwer

print("jiwer", version("jiwer"))
transform = jiwer.Compose([jiwer.RemovePunctuation(), jiwer.RemoveMultipleSpaces(), jiwer.ReduceToListOfListOfWords()])
texts = {  # separator, reference and hypothesis with one wrong word of five
    "Amharic": ("፡", "ሰላም፡ለዓለም፡ሁሉ፡ዛሬ፡ነው።", "ሰላም፡ለዓለም፡ሁሉ፡ነገ፡ነው።"),
    "Tibetan": ("་", "ང་བོད་ཡིག་སློབ་པ", "ང་བོད་སྐད་སློབ་པ"),
    "Swahili": (" ", "habari ya leo asubuhi, rafiki.", "habari ya leo jioni, rafiki."),
}
results = {}
for language, (mark, reference, hypothesis) in texts.items():
    values = [
        jiwer.wer(reference.replace(mark, sign), hypothesis.replace(mark, sign), transform, transform)
        for sign in (mark, " ")
    ]
    words = transform(reference)[0]
    results[language] = (len(words), *(round(value, 3) for value in values))
    name = f"{language}, U+{ord(mark):04X} ({unicodedata.category(mark)})"
    print(f"{name}: {len(words)} words {words}, WER {values[0]:.1f}, with spaces instead {values[1]:.1f}")
sys.exit(results != {"Amharic": (1, 1.0, 0.2), "Tibetan": (1, 1.0, 0.2), "Swahili": (5, 0.2, 0.2)})
PYTHON
