#!/usr/bin/env bash
# Apertium's analyzers, the only ones of many small languages, write a multiword lemma in two parts, the second after the
# tags and "#": ^va endavant/anar<vblex><pri><p3><sg># endavant$ (Catalan "goes ahead"). apertium-streamparser 5.0.2 takes
# the second part for a tag: the lemma is that of "goes", the list of tags ends with "# endavant", which is a feature of each
# such lemma in counts and scores, and the reading as text, with <# endavant> in it, is no valid stream. In a lemma of two
# joined words, it is a tag of the enclitic pronoun. The form with "#" before the tags is read as the lemma anar# endavant.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet apertium-streamparser==5.0.2 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

from streamparser import parse, reading_to_string

print("apertium-streamparser", version("apertium-streamparser"))
UNITS = {
    "one word": "^va/anar<vblex><pri><p3><sg>$",
    "analyzed": "^va endavant/anar<vblex><pri><p3><sg># endavant$",
    "before transfer": "^va endavant/anar# endavant<vblex><pri><p3><sg>$",
    "with a pronoun": "^take it out/take<vblex><sep><inf>+it<prn># out$",
}
readings = {}
for name, unit in UNITS.items():
    (lexical_unit,) = parse(unit)
    (reading,) = lexical_unit.readings
    readings[name] = [(part.baseform, part.tags) for part in reading], reading_to_string(reading)
    print(f"{name}: {unit} is read as {readings[name][0]} and written as {readings[name][1]}")
TAGS = ["vblex", "pri", "p3", "sg"]
expected = {
    "one word": [("anar", TAGS)], "analyzed": [("anar", [*TAGS, "# endavant"])], "before transfer": [("anar# endavant", TAGS)],
    "with a pronoun": [("take", ["vblex", "sep", "inf"]), ("it", ["prn", "# out"])],
}
kept = {name: readings[name][1] == UNITS[name].split("/")[1].rstrip("$") for name in UNITS}
print("written as it was read:", kept)
held = all(readings[name][0] == value for name, value in expected.items())
sys.exit(not (held and list(kept.values()) == [True, False, True, False]))
PYTHON
