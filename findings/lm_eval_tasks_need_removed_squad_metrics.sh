#!/usr/bin/env bash
# lm_eval 0.4.13 puts no upper bound on transformers. Nine Python files of its tasks (galician_bench, catalan_bench, spanish_bench,
# xquad, NorQuAD, CoQA, ReCoRD, SCROLLS) import transformers.data.metrics, which transformers 5.8.1 has and 5.24.0 lacks: with the
# newest transformers, a task that names any function of such a file cannot be loaded, also if the function uses nothing of it.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
for transformers in 5.8.1 5.24.0; do
    environment=$directory/$transformers
    python3 -m venv --without-pip "$environment"
    python3 -m pip --python "$environment/bin/python" install --quiet pip==26.3 2>/dev/null
    "$environment/bin/python" -m pip install --quiet lm_eval==0.4.13 "transformers==$transformers" datasets==5.2.0 2>/dev/null
    HF_HUB_OFFLINE=1 HF_HOME="$directory/home" "$environment/bin/python" - > "$directory/$transformers.txt" 2>/dev/null <<'PYTHON'
import importlib.util
from pathlib import Path

import lm_eval

tasks = Path(lm_eval.__file__).parent / "tasks"
for path in sorted(tasks.rglob("*.py")):
    if "squad_metrics" not in path.read_text("utf-8"):
        continue
    spec = importlib.util.spec_from_file_location("module", path)
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        outcome = "imported"
    except ModuleNotFoundError as error:
        outcome = str(error)
    print(f"{path.relative_to(tasks)}: {outcome}")
PYTHON
    echo "transformers $transformers:"
    cat "$directory/$transformers.txt"
done
! grep -q "'transformers.data.metrics'" "$directory/5.8.1.txt"
[ "$(grep -c "'transformers.data.metrics'" "$directory/5.24.0.txt")" = 9 ]
