#!/usr/bin/env bash
# The mean length of utterance in morphemes (MLUm) is the usual measure of a child's grammar. CHAT files have the morphemes
# on the line %mor, suffixes after "-": n|ev-PL-POSS-LOC (Turkish evlerimizde, in our houses) has four. pylangacq 0.23.0
# (`mlum`, documented as "mean length of utterance in morphemes", and `mlu`) counts the words and clitics of that line and no
# suffix: the value is 1, as for the bare stem, so that a child that learns to inflect does not move it. Version 0.19.1
# counts suffixes, and the full stop as a morpheme: 5. So the two versions differ for each utterance, and neither gives the
# four.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cat > "$directory/measure.py" <<'PYTHON'
import json
import sys
from importlib.metadata import version

import pylangacq

reader = getattr(pylangacq, "CHAT", None) or pylangacq.Reader
HEAD = "@UTF8\n@Begin\n@Languages:\ttur\n@Participants:\tCHI Target_Child\n@ID:\ttur|c|CHI|2;00.||||Target_Child|||\n"
UTTERANCES = [("ev .", "n|ev ."), ("evler .", "n|ev-PL ."), ("evlerimiz .", "n|ev-PL-POSS ."),
              ("evlerimizde .", "n|ev-PL-POSS-LOC ."), ("ev var .", "n|ev exist|var ."), ("dammelo .", "v|dare~pro|me~pro|lo .")]
rows = []
for words, morphemes in UTTERANCES:
    text = f"{HEAD}*CHI:\t{words}\n%mor:\t{morphemes}\n@End\n"
    file = reader.from_strs([text])
    rows.append((file.mluw()[0], file.mlum()[0], file.mlu()[0]))
    print(f"pylangacq {version('pylangacq')}: {morphemes} MLU in words {rows[-1][0]}, in morphemes {rows[-1][1]}", file=sys.stderr)
print(json.dumps(rows))
PYTHON
declare -A measured
for release in 0.19.1 0.23.0; do
    engine=(); [[ $release == 0.23.0 ]] && engine=(rustling==0.9.0)  # which computes the measures of this version
    python3 -m venv --without-pip "$directory/$release"
    python3 -m pip --python "$directory/$release/bin/python" install --quiet "pylangacq==$release" "${engine[@]}" 2>/dev/null
    measured[$release]=$("$directory/$release/bin/python" "$directory/measure.py" 2> "$directory/lines")
    grep '^pylangacq' "$directory/lines"
done
old='[[1.0, 2.0, 2.0], [1.0, 3.0, 3.0], [1.0, 4.0, 4.0], [1.0, 5.0, 5.0], [2.0, 3.0, 3.0], [1.0, 4.0, 4.0]]'
new='[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 3.0, 3.0]]'
[[ ${measured[0.19.1]} == "$old" && ${measured[0.23.0]} == "$new" ]]
