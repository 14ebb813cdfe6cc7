#!/usr/bin/env bash
# Distances between IPA strings, as of phoneme recognition, G2P and cognates, are often those of panphon, which has tone
# letters as segments with the features hitone and hireg. Its file of weights has 22 values for 24 features, in another
# order, and none for these two: by the weighted distances of panphon 0.22.2, each tone is equal to each other (high for low,
# a falling one for a rising one: 0.0), while a tone that is missing costs as much as a missing consonant, and more than two
# wrong ones. So a recognizer that writes the same tone everywhere has no error, and one that writes none has a large one.
# The unweighted distance (feature_edit_distance) tells tones apart. That the order differs is known (panphon issue 62).
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet panphon==0.22.2 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version
from pathlib import Path

import panphon
import panphon.distance

print("panphon", version("panphon"))
table, distance = panphon.FeatureTable(), panphon.distance.Distance()
print(f"{len(table.names)} features, {len(table.weights)} weights")
weighted = Path(panphon.__file__).with_name("data").joinpath("feature_weights.csv").read_text().splitlines()[0].split(",")
print("features:", *table.names)
print("weights: ", *weighted)
PAIRS = {  # the first two are of words of Yoruba that differ by tone
    "high for low": ("iɡ͡ba˥", "iɡ͡ba˩"), "mid for high": ("i˧ɡ͡ba˧", "i˧ɡ͡ba˥"), "falling for rising": ("ma˥˩", "ma˩˥"),
    "tone missing": ("ma˥", "ma"), "consonant missing": ("mam", "ma"), "two other consonants": ("mata", "bada"),
}
seen = {}
for name, (first, second) in PAIRS.items():
    seen[name] = (
        distance.weighted_feature_edit_distance(first, second), distance.weighted_feature_edit_distance_div_maxlen(first, second),
        distance.feature_edit_distance(first, second),
    )
    print(f"{name}: {first} {second}, segments {table.ipa_segs(first)}: weighted {seen[name][0]}, by length {seen[name][1]:.2f}, "
          f"unweighted {seen[name][2]:.3f}")
TRUE = ["ma˥", "ma˩", "ma˧˥", "ma˥˩"]
same, none = (
    sum(distance.weighted_feature_edit_distance(word, other) for word, other in zip(TRUE, guesses))
    for guesses in (["ma˥", "ma˥", "ma˥˥", "ma˥˥"], ["ma"] * 4)
)
print(f"four words with four tones, sum of weighted distances: high tones everywhere {same}, no tones {none}")
tones = [seen[name] for name in ("high for low", "mid for high", "falling for rising")]
free = all(weighted == by_length == 0 and unweighted > 0 for weighted, by_length, unweighted in tones)
dear = seen["tone missing"][0] == seen["consonant missing"][0] > seen["two other consonants"][0] > 0
sys.exit(not (free and dear and same == 0 and none > 40 and (len(table.names), len(table.weights)) == (24, 22) and weighted != table.names[:22]))
PYTHON
