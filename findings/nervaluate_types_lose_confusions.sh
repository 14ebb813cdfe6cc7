#!/usr/bin/env bash
# nervaluate scores named entities as SemEval 2013 did: `exact` compares boundaries whatever the type, `ent_type` the type of
# what overlaps. Its documentation says that a place taken for a person is incorrect, and scored against the true entity
# only, not as spurious. In 1.2.1, the rows of a type see the entities of that type alone: the place is missed and the person
# spurious, also for `exact`, although the boundaries are right. So `exact` and `ent_type` of each type are `strict`, the
# rows do not add up to `overall`, and the same predictions have other values by type than in 0.3.1, where they do add up.
# Tables by type (PER, LOC) of the two versions cannot be compared. No message is given.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cat > "$directory/score.py" <<'PYTHON'
import json
import sys
import warnings
from importlib.metadata import version

from nervaluate import Evaluator

warnings.simplefilter("ignore")
GOLD = [["B-LOC", "I-LOC", "O", "B-PER", "O"], ["B-PER", "O", "O", "O", "O"]]
PREDICTED = [["B-PER", "I-PER", "O", "B-PER", "O"], ["B-PER", "O", "O", "B-LOC", "O"]]  # a place is taken for a person
COUNTS = ("correct", "incorrect", "missed", "spurious")
result = Evaluator(GOLD, PREDICTED, tags=["PER", "LOC"], loader="list").evaluate()
overall, types = (result[0], result[1]) if isinstance(result, tuple) else (result["overall"], result["entities"])
seen = {}
for schema in ("strict", "exact", "ent_type"):
    rows = {"overall": overall[schema], **{name: types[name][schema] for name in ("LOC", "PER")}}
    rows = {name: row if isinstance(row, dict) else vars(row) for name, row in rows.items()}
    seen[schema] = {
        name: [*(row[key] for key in COUNTS), round(row["precision"], 2), round(row["f1"], 2)] for name, row in rows.items()
    }
    print(f"nervaluate {version('nervaluate')}, {schema}: {COUNTS}, precision, F1: {seen[schema]}", file=sys.stderr)
adds_up = all(rows["LOC"][i] + rows["PER"][i] == rows["overall"][i] for rows in seen.values() for i in range(len(COUNTS)))
print(json.dumps([adds_up, seen["exact"]["LOC"] == seen["strict"]["LOC"], seen["strict"]["PER"][4], seen["exact"]["LOC"][5]]))
PYTHON
declare -A scored
for release in 0.3.1 1.2.1; do
    python3 -m venv --without-pip "$directory/$release"
    python3 -m pip --python "$directory/$release/bin/python" install --quiet "nervaluate==$release" 2>/dev/null
    scored[$release]=$("$directory/$release/bin/python" "$directory/score.py" 2> "$directory/lines")
    grep '^nervaluate' "$directory/lines"
    echo "types add up to overall, exact of LOC is strict, precision of PER, exact F1 of LOC: ${scored[$release]}"
done
[[ ${scored[0.3.1]} == '[true, false, 1.0, 0.67]' && ${scored[1.2.1]} == '[false, true, 0.67, 0]' ]]
