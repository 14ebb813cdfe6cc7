"""The model class `vernacular` in lm-eval itself: values of `--model hf` on the same tasks, its cache, and arguments.

Needs the environment of the benchmarks (`make .bench/.complete`), which has lm_eval and torch; skipped without it.
"""

import json
import os
import subprocess
import tomllib

import pytest
from support import lm_eval_cases, tiny
from support.optional import BENCH, needs_bench
from support.workspace import ROOT, output_tail

pytestmark = [pytest.mark.slow, needs_bench]

TEMPLATE = (
    "{% for m in messages %}<|{{m['role']}}|>\n{{m['content']}}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
COMPARE = """
import json, logging, sys
import vernacular
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

logging.disable(logging.WARNING)
manager, names, chat = TaskManager(include_path="tasks", include_defaults=False), json.loads(sys.argv[1]), sys.argv[2] == "1"
settings = {"dtype": "float32", "device": "cpu", "max_length": json.loads(sys.argv[3]), "batch_size": 4}
models = {"hf": HFLM(pretrained="causal", **settings), "vernacular": vernacular.lm_eval_model("causal", **settings)}
found = {}
for name, model in models.items():
    for task in names:
        options = {"task_manager": manager, "num_fewshot": 2, "bootstrap_iters": 0, "apply_chat_template": chat}
        results = simple_evaluate(model=model, tasks=[task], **options)
        samples = {t: [[r["doc_id"], r["resps"]] for r in rows] for t, rows in results["samples"].items()}
        found.setdefault(task, {})[name] = [results["results"], samples]
json.dump(found, open("found.json", "w"), default=str)
"""
TASKS = ["letters", "texts", "several", "filters", "last", "mutual", "contexts", "pairs", "weighted", "rolling"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("harness")
    lm_eval_cases.write(path / "tasks", path)
    tiny.save("llama", path / "causal")
    settings = json.loads((path / "causal" / "tokenizer_config.json").read_text())
    (path / "causal" / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    return path


def run(directory, *arguments, status=0):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "HF_HUB_OFFLINE": "1"}
    command = [str(BENCH), *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, output_tail(done)
    return done


def numbers(value):
    """Yield the numbers and texts of nested results; numbers as lm-eval's texts of its samples have them, too."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value) if key not in ("alias", "name")]
    if isinstance(value, list):
        for each in value:
            yield from numbers(each)
    else:
        try:
            yield float(value)
        except (TypeError, ValueError):
            yield value


@pytest.mark.parametrize(
    ("tasks", "chat", "max_length"),
    [(TASKS, "0", "null"), (["rolling"], "0", "128"), (TASKS[:-1], "1", "null"), (TASKS[:-1], "0", "96")],
)
def test_values_and_texts_are_those_of_hf(directory, tasks, chat, max_length):
    run(directory, "-c", COMPARE, json.dumps(tasks), chat, max_length)
    found = json.loads((directory / "found.json").read_text("utf-8"))
    assert list(found) == tasks
    for name, results in found.items():
        expected, actual = (list(numbers(results[model])) for model in ("hf", "vernacular"))
        assert len(actual) == len(expected) > 10
        for own, other in zip(actual, expected, strict=True):
            is_number = isinstance(other, float)
            assert own == (pytest.approx(other, abs=2e-4, rel=1e-5, nan_ok=True) if is_number else other), name


def test_command_line_of_lm_eval_runs_it_and_resumes_from_its_cache(directory):
    arguments = [
        "-m",
        "vernacular",
        "lm-eval",
        "run",
        "--model_args",
        "pretrained=causal,dtype=float32",
        "--tasks",
        "letters",
    ]
    arguments += ["--include_path", "tasks", "--device", "cpu", "--batch_size", "8", "--use_cache", "cache/own"]
    first, second = (run(directory, *arguments) for _ in range(2))
    assert first.stdout.startswith("vernacular (")
    assert "|letters" in first.stdout.replace(" ", "")
    assert "Requests remaining: 0" in second.stdout + second.stderr


def test_entry_point_is_a_placeholder_that_the_class_replaces(directory):
    """The registry of 0.4.13 takes the entry points of later versions, which are registered before the class is imported."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["lm_eval.models"]
    program = """
import sys
from lm_eval.api.registry import get_model, model_registry
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

model_registry.register(sys.argv[1], target=sys.argv[2])
manager = TaskManager(include_path="tasks", include_defaults=False)
results = simple_evaluate(
    sys.argv[1], "pretrained=causal,dtype=float32", ["letters"], task_manager=manager, device="cpu", bootstrap_iters=0
)
print(get_model(sys.argv[1]).__name__, results["config"]["model"], sorted(results["results"]))
"""
    [(name, target)] = entries.items()
    done = run(directory, "-c", program, name, target)
    assert done.stdout.splitlines()[-1] == "VernacularLM vernacular ['letters']"


def test_unknown_arguments_are_refused_by_their_names(directory):
    arguments = ["-m", "vernacular", "lm-eval", "run", "--tasks", "letters", "--include_path", "tasks"]
    done = run(directory, *arguments, "--model_args", "pretrained=causal,dtpe=float32", status=1)
    assert 'unknown argument dtpe. Did you mean "dtype"?' in done.stderr
    done = run(directory, *arguments, "--model", "hf", status=1)
    assert "--model: it is always vernacular" in done.stderr
