#!/usr/bin/env bash
# Word lists of tone languages write tones as tone letters (˥ ˦ ˧ ˨ ˩) or as digits (⁵ … ¹) after the syllable. lingpy 2.6.14
# turns segments into sound classes before it aligns words and looks for cognates. It knows four of the five letters: ˩, and
# each contour that begins with it, is of class 0 ("unknown") in all of its models, also in `cv`, where tones are T. So the
# low tone is no tone: ˩ and ˥ stand in two columns, ma˩ is farther from ma˥ than ma without a tone is, and it is nearly as
# close to ma as to itself. ˥, ˦, ˧ and ˨ are one class, hence distance 0. As digits (¹¹, ⁵⁵), the same tones have each a
# class.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet lingpy==2.6.14 2>/dev/null
HOME="$directory" XDG_CACHE_HOME="$directory" "$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import logging
import sys
from importlib.metadata import version

logging.disable(logging.CRITICAL)
from lingpy import Pairwise, ipa2tokens, tokens2class

print("lingpy", version("lingpy"))
MODELS = ("sca", "dolgo", "asjp", "art", "cv")
classes = {}
for tone in ("˥", "˦", "˧", "˨", "˩", "˥˩", "˩˥", "⁵", "¹", "⁵⁵", "¹¹", "⁵¹", "¹⁵"):
    classes[tone] = [tokens2class(["m", "a", tone], model)[2] for model in MODELS]
    print(f"{tone}: " + ", ".join(f"{model} {value}" for model, value in zip(MODELS, classes[tone])))


def distance(first, second):
    """Print the alignment of two words, and return their distance by the model `sca`."""
    pair = Pairwise(first, second)
    pair.align(distance=True)
    upper, lower, value = pair.alignments[0]
    print(f"{ipa2tokens(first)} and {ipa2tokens(second)}: {' '.join(upper)} with {' '.join(lower)}, distance {value:.3f}")
    return value


high_low, high_none, low_none = distance("ma˥", "ma˩"), distance("ma˥", "ma"), distance("ma˩", "ma")
high_mid, contours = distance("ma˥", "ma˨"), distance("ma˥˩", "ma˩˥")
digits, digits_none = distance("ma⁵⁵", "ma¹¹"), distance("ma¹¹", "ma")
unknown = all(classes[tone] == ["0"] * 5 for tone in ("˩", "˩˥"))
known = all("0" not in values and values[-1] == "T" for tone, values in classes.items() if tone[0] != "˩")
print(f"the low tone is of no class: {unknown}; all others have one: {known}")
order = high_low > high_none > low_none > high_mid == 0 and contours == high_low and digits < digits_none == high_none
sys.exit(not (unknown and known and order))
PYTHON
