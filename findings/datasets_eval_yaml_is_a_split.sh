#!/usr/bin/env bash
# A benchmark on the Hub has a file eval.yaml at its root (Inspect, EuroEval and the Hub's leaderboards read it). datasets
# 5.2.0 takes it for data of the split `test`, because `eval` is one of the names of that split: rows in train.jsonl, without
# configurations in the dataset card, can then not be loaded ("Couldn't infer the same data file format for all splits"),
# while the same directory without eval.yaml can.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet datasets==5.2.0 2>/dev/null
HF_HUB_OFFLINE=1 HF_HOME="$directory/home" "$directory/venv/bin/python" - "$directory/data" <<'PYTHON'
import sys
from pathlib import Path

import datasets

datasets.disable_progress_bars()
print("datasets", datasets.__version__)
data = Path(sys.argv[1])
data.mkdir()
(data / "train.jsonl").write_text('{"question": "a"}\n')
loaded = datasets.load_dataset(str(data))
print("without eval.yaml:", {name: split.num_rows for name, split in loaded.items()})
(data / "eval.yaml").write_text("tasks: []\n")
try:
    loaded = datasets.load_dataset(str(data))
    print("with eval.yaml:", {name: split.num_rows for name, split in loaded.items()})
except ValueError as error:
    print("with eval.yaml:", str(error)[:120])
    sys.exit(0)
sys.exit(1)
PYTHON
