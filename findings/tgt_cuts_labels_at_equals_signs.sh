#!/usr/bin/env bash
# A Praat TextGrid in its usual long format has lines such as: text = "kitabu = book". tgt 1.5 divides the line at each
# " = " and keeps the second part, of which it removes the first and last character for the quotes: the label is
# "kitab", cut at the equals sign and without its last letter. Glosses, translations and comments of fieldwork have
# such signs; a label of one letter before the sign becomes empty, and its interval is left out as empty by default. So
# with tier names. Writing the file stores what is left, without a message. The same tier in Praat's short format is
# read as it is, and textgrid 1.6.1 and praatio 6.2.2 read both.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet numpy==2.2.6 tgt==1.5 \
    textgrid==1.6.1 praatio==6.2.2 2>/dev/null
"$directory/venv/bin/python" - "$directory" <<'PYTHON'
import sys
from importlib.metadata import version
from pathlib import Path

import textgrid
import tgt
from praatio.textgrid import openTextgrid

print(*(f"{name} {version(name)}" for name in ("tgt", "textgrid", "praatio")))
labels = ["kitabu = book", "go = PST = 3SG", "a = he", "1SG=FOC", "neno"]
end = len(labels)
head = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
long = f"{head}xmin = 0 \nxmax = {end} \ntiers? <exists> \nsize = 1 \nitem []: \n    item [1]:\n"
long += '        class = "IntervalTier" \n        name = "gloss" \n'
long += f"        xmin = 0 \n        xmax = {end} \n        intervals: size = {end} \n"
short = f'{head}0\n{end}\n<exists>\n1\n"IntervalTier"\n"gloss"\n0\n{end}\n{end}\n'
for start, label in enumerate(labels):
    long += f"        intervals [{start + 1}]:\n            xmin = {start} \n            xmax = {start + 1} \n"
    long += f'            text = "{label}" \n'
    short += f'{start}\n{start + 1}\n"{label}"\n'
seen = {}
for name, text in (("long", long), ("short", short)):
    path = Path(sys.argv[1], f"{name}.TextGrid")
    path.write_text(text, encoding="utf-8")
    seen[name] = [interval.text for interval in tgt.read_textgrid(path).tiers[0]]
    others = [interval.mark for interval in textgrid.TextGrid.fromFile(str(path))[0]]
    tier = openTextgrid(str(path), includeEmptyIntervals=True).getTier("gloss")
    others = [others, [entry.label for entry in tier.entries]]
    print(f"{name} format: tgt {seen[name]}")
    assert others == [labels, labels]
print(f"textgrid and praatio, both formats: {labels}")
sys.exit(seen != {"long": ["kitab", "g", "1SG=FOC", "neno"], "short": labels})
PYTHON
