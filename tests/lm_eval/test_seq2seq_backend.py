"""Encoder-decoders in lm-eval: the values of `--model hf` with `backend=seq2seq`, on the same tasks.

Needs the environment of the benchmarks (`make .bench/.complete`), which has lm_eval and torch; skipped without it.
"""

import json
import os
import subprocess

import pytest
from support import encoder_decoders, lm_eval_cases
from support.optional import BENCH, needs_bench
from support.workspace import ROOT, output_tail

pytestmark = [pytest.mark.slow, needs_bench]

COMPARE = """
import json, logging, sys
import vernacular
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

logging.disable(logging.WARNING)
manager, found = TaskManager(include_path="tasks", include_defaults=False), {}
settings = {"dtype": "float32", "device": "cpu", "batch_size": 4, "max_length": 64}
models = {"hf": HFLM(pretrained=sys.argv[1], backend="seq2seq", **settings),
          "vernacular": vernacular.lm_eval_model(sys.argv[1], **settings)}
for name, model in models.items():
    for task in json.loads(sys.argv[2]):
        results = simple_evaluate(model=model, tasks=[task], task_manager=manager, num_fewshot=2, bootstrap_iters=0)
        samples = {t: [[r["doc_id"], r["resps"]] for r in rows] for t, rows in results["samples"].items()}
        found.setdefault(task, {})[name] = [results["results"], samples]
json.dump(found, open("found.json", "w"), default=str)
"""
# not of generated texts: there, lm-eval counts the tokens of the prompt as generated ones
TASKS = ["letters", "texts", "several", "last", "mutual", "contexts", "pairs", "weighted"]


def flat(value):
    """Return the numbers and other values of nested lists and dicts."""
    if isinstance(value, dict):
        value = [part for key in sorted(value) for part in (key, value[key])]
    if not isinstance(value, list):
        return [value]
    return [leaf for part in value for leaf in flat(part)]


@pytest.mark.parametrize("arch", ["t5", "bart", "byt5"])
def test_values_are_those_of_the_backend_seq2seq(arch, tmp_path):
    lm_eval_cases.write(tmp_path / "tasks", tmp_path)
    encoder_decoders.save(arch, tmp_path / "model")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "HF_HUB_OFFLINE": "1"}
    command = [str(BENCH), "-c", COMPARE, "./model", json.dumps(TASKS)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, output_tail(done)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.keys() == {*TASKS}
    for task, by_model in found.items():
        expected, actual = flat(by_model["hf"]), flat(by_model["vernacular"])
        assert len(actual) == len(expected) > 4
        for a, b in zip(actual, expected, strict=True):
            numbers = [float(x) for x in (a, b) if isinstance(x, float) or (isinstance(x, str) and x[-1:].isdigit())]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-5, abs=1e-4) if len(numbers) == 2 else a == b, task
