#!/usr/bin/env bash
# Treebanks that come from fieldwork keep interlinear glosses in the column MISC of CoNLL-U, and glosses mark the boundary of
# a clitic by "=" (Leipzig glossing rules): Gloss=1SG=FOC. conllu 6.0.0 divides an attribute at every "=" and keeps the first
# two parts: the gloss becomes 1SG, so that words with and without a clitic have the same gold gloss, and "Gloss==Q" of a bare
# clitic becomes an attribute without a value. Writing the sentence back stores what is left. No error or warning is given.
# pyconll 3.3.1 and udapi 0.5.2 keep the same lines as they are.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet conllu==6.0.0 pyconll==3.3.1 udapi==0.5.2 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

import conllu
import pyconll
from udapi.core.document import Document

print(*(f"{name} {version(name)}" for name in ("conllu", "pyconll", "udapi")))
glosses = ["1SG", "1SG=FOC", "1SG=Q", "go-PST=3SG.OBJ=REL", "=Q"]  # of invented words
lines = [
    f"{number}\tw{number}\t_\tX\t_\t_\t{0 if number == 1 else 1}\t{'root' if number == 1 else 'dep'}\t_\tGloss={gloss}|Translit=w"
    for number, gloss in enumerate(glosses, start=1)
]
text = "# sent_id = 1\n# text = " + " ".join(f"w{number}" for number in range(1, 6)) + "\n" + "\n".join(lines) + "\n\n"
sentence = conllu.parse(text)[0]
document = Document()
document.from_conllu_string(text)
read = {
    "conllu": [token["misc"].get("Gloss") for token in sentence],
    "pyconll": [next(iter(token.misc["Gloss"])) for token in pyconll.load_from_string(text)[0]],
    "udapi": [node.misc["Gloss"] for node in document.bundles[0].trees[0].descendants],
}
print("in the file:", glosses)
for name, values in read.items():
    print(f"{name}: {values}, {len(set(values))} different ones of {len(set(glosses))}")
written = [line.split("\t")[-1] for line in sentence.serialize().splitlines() if "\t" in line]
print("written back by conllu:", written)
kept = all(read[name] == glosses for name in ("pyconll", "udapi"))
cut = read["conllu"] == ["1SG", "1SG", "1SG", "go-PST", None] and written[1] == "Gloss=1SG|Translit=w"
sys.exit(not (kept and cut))
PYTHON
