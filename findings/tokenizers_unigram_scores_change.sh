#!/usr/bin/env bash
# The scores of a Unigram vocabulary in a tokenizer.json have 17 digits, which Python reads back bit for bit. tokenizers
# 0.23.3 writes them so, and reads some of them with another last digit, so that a file that is loaded and saved differs from
# itself, and from the same vocabulary given by Python. Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet tokenizers==0.23.3 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import json
import random
import sys

import tokenizers
from tokenizers import Tokenizer, models

print("tokenizers", tokenizers.__version__)
random.seed(0)
vocabulary = [("<unk>", 0.0)] + [(f"p{number}", -12 * random.random()) for number in range(2_000)]
text = Tokenizer(models.Unigram(vocabulary, unk_id=0)).to_str()
given, written = dict(vocabulary), dict(json.loads(text)["model"]["vocab"])
read = dict(json.loads(Tokenizer.from_str(text).to_str())["model"]["vocab"])
changed = [piece for piece in written if read[piece] != written[piece]]
print(f"written as given: {written == given}; read with another value: {len(changed)} of {len(given)}")
for piece in changed[:2]:
    print(f"  {written[piece]!r} is read as {read[piece]!r}")
sys.exit(0 if written == given and changed else 1)
PYTHON
