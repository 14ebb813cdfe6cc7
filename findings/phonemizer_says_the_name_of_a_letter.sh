#!/usr/bin/env bash
# Phoneme error rates and speech corpora of small languages are often built with phonemizer on eSpeak NG. Guarani,
# K'iche', Oromo, Haitian and others are typed with ʼ (U+02BC, the letter that Unicode has for a glottal stop and for
# ejectives). eSpeak NG 1.52 (espeakng-loader 0.2.4) says its English name, "ejective", and the rest of the word letter
# by letter: Guarani mbaʼe (thing) has the phonemes of "m, ve, a, ejective, e". phonemizer 3.3.0 warns of extra phones
# and keeps them: with language_switch="remove-flags", nothing in the line tells them from Guarani ones. The same word
# with ' or ’ is read well, and so is ʼ in Ukrainian. A decomposed Vietnamese word is also spelled, with English
# sounds.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet phonemizer==3.3.0 \
    espeakng-loader==0.2.4 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import logging
import os
import sys
import unicodedata
from importlib.metadata import version

import espeakng_loader

os.environ["ESPEAK_DATA_PATH"] = espeakng_loader.get_data_path()
from phonemizer.backend import EspeakBackend
from phonemizer.backend.espeak.wrapper import EspeakWrapper

EspeakWrapper.set_library(espeakng_loader.get_library_path())
number = ".".join(map(str, EspeakBackend.version()))
print(f"phonemizer {version('phonemizer')}, espeakng-loader {version('espeakng-loader')}, eSpeak NG {number}")
words = {"gn": "mba'e", "quc": "k'iche'", "om": "ba'e", "ht": "m'ap", "uk": "п'ять"}
english = "ɪdʒɛktɪv"
messages = []
logger = logging.getLogger("own")
logger.addFilter(lambda record: messages.append(record.getMessage()))
right = True
for language, word in words.items():
    backend = EspeakBackend(language, language_switch="remove-flags", with_stress=False, logger=logger)
    seen = [backend.phonemize([word.replace("'", mark)], strip=True)[0] for mark in "'’ʼ"]
    print(f"{language}: {word} {seen[0]!r}, with ’ {seen[1]!r}, with ʼ {seen[2]!r}")
    right = right and seen[0] == seen[1] and english not in seen[0]
    right = right and ((english in seen[2]) if language != "uk" else seen[2] == seen[0])
backend = EspeakBackend("vi", language_switch="remove-flags", with_stress=False, logger=logger)
forms = [unicodedata.normalize(form, "người") for form in ("NFC", "NFD")]
composed, decomposed = backend.phonemize(forms, strip=True)
print(f"vi: người composed {composed!r}, decomposed {decomposed!r}")
print("warnings:", sorted({message for message in messages if "extra" in message}))
sys.exit(not (right and composed != decomposed))
PYTHON
