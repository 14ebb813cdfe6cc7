"""Write golden.json anew: what lm-evaluation-harness itself asks and answers on the tasks of tests/lm_eval_cases.py.

    .venv/bin/python tests/data/lm_eval_golden/make.py PYTHON

PYTHON is an interpreter with lm_eval 0.4.13 and torch in it (an environment of its own). The model is the tiny random
Llama of tests/tiny.py, seeded, with two kinds of tokenizer; nothing is downloaded.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SHOTS = {"truth": [0]}  # it has no rows of which one could be shown
KINDS = ["bytes", "bytes-bos", "prepend"]

ORACLE = """
import json, sys
import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.evaluator import simple_evaluate

models, tasks, shots = json.loads(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
found = {"lm_eval": lm_eval.__version__, "requests": {}, "answers": {}}
manager = TaskManager(include_path=".", include_defaults=False)
for kind, folder in models.items():
    model = HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=1)
    for task in tasks:
        for k in shots.get(task, [0, 3]):
            name = f"{task}.{k}shot"
            loaded = manager.load([task])["tasks"][task]
            loaded.set_config("num_fewshot", k)
            made = simple_evaluate(model=model, tasks=[loaded], task_manager=manager,
                                   bootstrap_iters=0, log_samples=True, cache_requests=False)
            samples = sorted(made["samples"][task], key=lambda sample: sample["doc_id"])
            found["requests"][name] = [[list(a) for a in sample["arguments"]] for sample in samples]
            metrics = {k.split(",")[0]: v for k, v in made["results"][task].items()
                       if isinstance(v, float) and "stderr" not in k}
            per = [{m: s[m] for m in s["metrics"] if isinstance(s[m], (int, float))} for s in samples]
            found["answers"][f"{kind}.{name}"] = {
                "metrics": metrics, "answers": [s["filtered_resps"] for s in samples], "items": per}
print("GOLDEN" + json.dumps(found, ensure_ascii=False))
"""


def main(python: str) -> None:
    sys.path.insert(0, str(HERE.parents[1]))
    from support import lm_eval_cases, tiny

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        lm_eval_cases.write(folder / "tasks", harness=True)
        models = {kind: str(folder / kind) for kind in KINDS}
        for kind, where in models.items():
            tiny.save("llama", where, tokens=kind)
        run = subprocess.run(
            [python, "-c", ORACLE, *map(json.dumps, (models, list(lm_eval_cases.TASKS), SHOTS))],
            cwd=folder / "tasks", env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
                                       "HF_DATASETS_CACHE": str(folder / "cache")},
            capture_output=True, text=True,
        )  # fmt: skip
    lines = [line for line in run.stdout.split("\n") if line.startswith("GOLDEN")]
    if not lines:
        sys.exit(run.stderr[-4000:] + run.stdout[-2000:])
    golden = json.loads(lines[0].removeprefix("GOLDEN"))
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
