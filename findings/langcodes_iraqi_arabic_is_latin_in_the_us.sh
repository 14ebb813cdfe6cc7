#!/usr/bin/env bash
# langcodes compares language tags by the script and region that CLDR finds likely. Version 3.5.1 lacks them for most
# languages, and takes "Latn, US" for these, although the tags are valid: Iraqi, Libyan, Omani and Gulf Arabic, South
# Azerbaijani, Southern Pashto, Assyrian, S'gaw Karen, Oji-Cree, Harari, Evenki, Nogai. Hence Iraqi Arabic (acm, one of
# FLORES) is nearer to English than to Persian, and has no match if the choice is Arabic or English, whereas acm-Arab and
# Moroccan Arabic (ary) match Arabic; and South Azerbaijani gets Azerbaijani in Latin rather than in its own Arabic script.
# CLDR as in Babel 2.19.0 has the script and region of each of them; it disagrees for more than 5,000 languages.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet langcodes==3.5.1 language_data==1.4.0 Babel==2.19.0 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

from babel.core import get_global
from langcodes import Language, closest_match, tag_distance

print(*(f"{name} {version(name)}" for name in ("langcodes", "language_data", "Babel")))
likely = {code: tag.replace("_", "-") for code, tag in get_global("likely_subtags").items() if "_" not in code and code != "und"}
held = True
for code in ("acm", "ayl", "acx", "afb", "azb", "pbt", "aii", "ksw", "ojs", "har", "evn", "nog"):
    language = Language.get(code)
    tag = language.maximize().to_tag()
    print(f"{language.display_name('en').split(' (')[0]} ({code}, valid: {language.is_valid()}): {tag}, in CLDR {likely[code]}")
    held = held and language.is_valid() and tag == f"{code}-Latn-US" and not likely[code].startswith(f"{code}-Latn")
for desired, supported, expected, with_script in [
    ("acm", ["ar", "en"], "und", "ar"), ("ary", ["ar", "en"], "ar", "ar"), ("pbt", ["ps", "en"], "und", "ps"),
    ("aii", ["syr", "en"], "und", "syr"), ("azb", ["az", "az-Arab"], "az", "az-Arab"),
]:
    match, other = closest_match(desired, supported)[0], closest_match(likely[desired], supported)[0]
    print(f"of {supported}, {desired} matches {match}, {likely[desired]} matches {other}")
    held = held and (match, other) == (expected, with_script)
distances = [[tag_distance(tag, other) for other in ("ar", "en", "fa")] for tag in ("acm", "acm-Arab")]
print(f"distance to Arabic, English, Persian: of acm {distances[0]}, of acm-Arab {distances[1]}")
held = held and distances[0][1] < distances[0][2] and distances[1][1] > distances[1][2]
invented = [code for code, tag in likely.items() if Language.get(code).maximize().territory == "US" and not tag.endswith("-US")]
script = [code for code in invented if likely[code].split("-")[1] != "Latn"]
print(f"{len(invented)} of {len(likely)} languages of CLDR are moved to the United States, {len(script)} of them to another script")
sys.exit(not (held and len(invented) > 5000 and len(script) > 600))
PYTHON
