"""Regenerate golden.json: requests, responses and metrics of lm-evaluation-harness on tests/support/lm_eval_cases.py.

    .venv/bin/python tests/data/lm_eval_golden/make.py PYTHON

PYTHON is an interpreter of a separate environment with lm_eval 0.4.13 and torch. The model is the seeded tiny random
Llama of tests/support/tiny.py with several tokenizers; nothing is downloaded.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

DIRECTORY = Path(__file__).parent
SHOTS = {"truth": [0]}  # has no rows for few-shot examples
TOKENIZERS = ["bytes", "bytes-bos", "prepend"]

SCRIPT = """
import json, sys
import lm_eval
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from lm_eval.evaluator import simple_evaluate

models, tasks, shots = json.loads(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
golden = {"lm_eval": lm_eval.__version__, "requests": {}, "answers": {}}
manager = TaskManager(include_path=".", include_defaults=False)
for tokenizer, path in models.items():
    model = HFLM(pretrained=path, dtype="float32", device="cpu", batch_size=1)
    for task in tasks:
        for k in shots.get(task, [0, 3]):
            name = f"{task}.{k}shot"
            loaded = manager.load([task])["tasks"][task]
            loaded.set_config("num_fewshot", k)
            output = simple_evaluate(model=model, tasks=[loaded], task_manager=manager,
                                     bootstrap_iters=0, log_samples=True, cache_requests=False)
            samples = sorted(output["samples"][task], key=lambda sample: sample["doc_id"])
            golden["requests"][name] = [[list(a) for a in sample["arguments"]] for sample in samples]
            metrics = {k.split(",")[0]: v for k, v in output["results"][task].items()
                       if isinstance(v, float) and "stderr" not in k}
            item_metrics = [{m: s[m] for m in s["metrics"] if isinstance(s[m], (int, float))} for s in samples]
            golden["answers"][f"{tokenizer}.{name}"] = {
                "metrics": metrics, "answers": [s["filtered_resps"] for s in samples], "items": item_metrics}
print("GOLDEN" + json.dumps(golden, ensure_ascii=False))
"""


def main(python: str) -> None:
    sys.path.insert(0, str(DIRECTORY.parents[1]))
    from support import lm_eval_cases, tiny

    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        lm_eval_cases.write(directory / "tasks", for_lm_eval=True)
        models = {tokenizer: str(directory / tokenizer) for tokenizer in TOKENIZERS}
        for tokenizer, path in models.items():
            tiny.save("llama", path, tokens=tokenizer)
        run = subprocess.run(
            [python, "-c", SCRIPT, *map(json.dumps, (models, list(lm_eval_cases.TASKS), SHOTS))],
            cwd=directory / "tasks", env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
                                       "HF_DATASETS_CACHE": str(directory / "cache")},
            capture_output=True, text=True,
        )  # fmt: skip
    lines = [line for line in run.stdout.split("\n") if line.startswith("GOLDEN")]
    if not lines:
        sys.exit(run.stderr[-4000:] + run.stdout[-2000:])
    golden = json.loads(lines[0].removeprefix("GOLDEN"))
    (DIRECTORY / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
