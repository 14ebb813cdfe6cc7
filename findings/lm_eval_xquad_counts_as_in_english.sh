#!/usr/bin/env bash
# XQuAD in lm_eval 0.4.13 (12 languages, among them Arabic, Greek, Hindi, Vietnamese and Chinese) computes exact_match and f1 by the
# functions of SQuAD in transformers 5.8.1, whose normalization is that of English for every language. Seen:
# - "a", "an" and "the" are removed as articles: "Hội" is an exact match of "Hội An", "vitamina" of "vitamina A", and an empty
#   response of the Vietnamese answer "An";
# - only ASCII punctuation is removed: the answer followed by the full stop of Hindi (।) or Chinese (。), the Arabic comma or
#   in ¿…? has exact_match 0 and f1 0, where the same answer with "." has 1.
# MLQA in the same release has rules for each language.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet pip==26.3 2>/dev/null
"$directory/venv/bin/python" -m pip install --quiet lm_eval==0.4.13 transformers==5.8.1 datasets==5.2.0 2>/dev/null
HF_HUB_OFFLINE=1 HF_HOME="$directory/home" "$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import lm_eval

print("lm_eval", version("lm_eval"), "transformers", version("transformers"))
spec = importlib.util.spec_from_file_location("utils", Path(lm_eval.__file__).parent / "tasks" / "xquad" / "utils.py")
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)
cases = [
    ("vi", "Hội An", "Hội", 1), ("vi", "An", "", 1), ("es", "vitamina A", "vitamina", 1), ("es", "Lugo", "Lugo.", 1),
    ("hi", "दिल्ली", "दिल्ली।", 0), ("zh", "北京大学", "北京大学。", 0), ("ar", "القاهرة", "القاهرة،", 0), ("es", "Lugo", "¿Lugo?", 0),
]
changed = False
for language, answer, response, expected in cases:
    values = utils.process_results_qa({"answers": {"text": [answer]}}, [response])
    print(f"{language}: answer {answer!r}, response {response!r}: {values}")
    changed |= values != {"f1": expected, "exact_match": expected}
sys.exit(changed)
PYTHON
