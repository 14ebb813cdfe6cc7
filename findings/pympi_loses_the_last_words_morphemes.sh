#!/usr/bin/env bash
# Recordings of little-documented languages are annotated in ELAN: a tier of words or sentences with times, and below it one of
# morphemes or glosses without times of their own (stereotype Symbolic_Subdivision). For the latter, pympi 1.71 has
# get_annotation_data_for_symbsub_tier, "a list of all annotations" with computed times. It adds those of a parent to the list
# when it meets the next parent, and never those of the last one: every file lacks the morphemes of its last word,
# and a file of one word gives an empty list, without an error. get_ref_annotation_data_for_tier returns them all.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet pympi-ling==1.71 2>/dev/null
"$directory/venv/bin/python" - "$directory" 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version
from pathlib import Path

import pympi

print("pympi-ling", version("pympi-ling"))
WORDS = [["ni", "na", "kuja"], ["u", "me", "fika"], ["wa", "li", "soma"]]  # Swahili: I am coming, you have arrived, they read


def saved(path, words):
    """Write an ELAN file in which each word is divided into its morphemes, and return its path."""
    file = pympi.Eaf()
    file.add_linguistic_type("words")
    file.add_linguistic_type("morphemes", constraints="Symbolic_Subdivision", timealignable=False)
    file.add_tier("word", "words")
    file.add_tier("morpheme", "morphemes", parent="word")
    for number, morphemes in enumerate(words):
        file.add_annotation("word", 1000 * number, 1000 * number + 1000, "".join(morphemes))
        previous = None
        for morpheme in morphemes:
            known = set(file.annotations)
            file.add_ref_annotation("morpheme", "word", 1000 * number + 500, morpheme, previous)
            (previous,) = set(file.annotations) - known
    file.to_file(str(path))
    return str(path)


counts = []
for n_words in (1, 2, 3):
    file = pympi.Eaf(saved(Path(sys.argv[1], f"{n_words}.eaf"), WORDS[:n_words]))
    complete = [annotation[2] for annotation in file.get_ref_annotation_data_for_tier("morpheme")]
    timed = [annotation[2] for annotation in file.get_annotation_data_for_symbsub_tier("morpheme")]
    print(f"{n_words} words: {complete}; with times: {timed}")
    counts.append((len(complete), len(timed)))
sys.exit(counts != [(3, 0), (6, 3), (9, 6)])
PYTHON
