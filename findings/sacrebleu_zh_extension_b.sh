#!/usr/bin/env bash
# sacrebleu's tokenizer `zh` does not separate the ideographs of Unicode's Extension B and later ones, as Cantonese and
# names have (𠺢, 𡃁), but takes punctuation marks and arrows (U+2001 to U+2A6D) for ideographs: its ranges are written
# '\u20000', which is two characters, '\u2000' and '0'. A sentence of such letters is one word for BLEU.
# Exits with an error if the behavior has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet --disable-pip-version-check sacrebleu==2.6.0 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh

print("sacrebleu", version("sacrebleu"))
tokenize = TokenizerZh()
seen = {text: tokenize(text) for text in ("漢字漢字", "𠺢𡃁𠺢𡃁", "a→b")}
for text, tokens in seen.items():
    print(f"{text}: {tokens.split()}")
text = "𠺢𡃁𠻹𠱁"
score = BLEU(tokenize="zh").corpus_score([text], [[text]]).score
print("BLEU of a perfect translation of four such letters:", score)
assert seen == {"漢字漢字": "漢 字 漢 字", "𠺢𡃁𠺢𡃁": "𠺢𡃁𠺢𡃁", "a→b": "a → b"}, "the behavior has changed"
assert score == 0, "the behavior has changed"
PYTHON
