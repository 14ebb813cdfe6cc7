#!/usr/bin/env bash
# lm_eval 0.4.13 keeps one set of files for all includes of a task file, where a set for each path from the task would
# find cycles. Two included files that share a third, such as the columns of a dataset and the words of a language that
# both include the benchmark's defaults, are "Include cycle", although nothing includes itself. The index states that at
# level DEBUG only: the task is missing without a line, a group that names it ends with "expected str, bytes or
# os.PathLike object, not NoneType", and a tag runs with the other tasks alone.
# Exits with 0 if this is still so.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install -q lm_eval==0.4.13
mkdir "$directory/tasks"
cd "$directory/tasks"
printf 'dataset_path: json\ntest_split: test\noutput_type: multiple_choice\ntag: animais\n' > defaults
printf 'include: defaults\ndoc_to_text: "{{pregunta}}"\ndoc_to_choice: "{{opcions}}"\ndoc_to_target: 0\n' > columns
printf 'include: defaults\ndescription: "Responde en galego."\n' > galician
printf 'task: animais_gl\ninclude: [columns, galician]\n' > gl.yaml
printf 'task: animais_ca\ninclude: [columns]\ndescription: "Respon en català."\n' > ca.yaml
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import logging
from importlib.metadata import version

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

print("lm_eval", version("lm_eval"))
manager = TaskManager(include_path="tasks", include_defaults=False)
print("tasks:", manager.all_subtasks, "tag animais:", manager.match_tasks(["animais*"]))
try:
    load_yaml("tasks/gl.yaml", resolve_func=False)
    message = ""
except ValueError as error:
    message = str(error)
print("load_yaml:", message.replace(str(__import__("pathlib").Path.cwd().resolve()), "…"))
found = [manager.all_subtasks == ["animais_ca"], message.startswith("Include cycle at"), message.endswith("defaults")]
raise SystemExit(0 if all(found) else 1)
PYTHON
