"""Complete runs of lm-eval's tasks: equal to `lm_eval --model hf` on the same rows, and safe with untrusted files.

Needs the environment of the benchmarks (`make .bench/.complete`), which has lm_eval and torch; skipped without it.
"""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import lm_eval_cases, tiny
from support.optional import BENCH, needs_bench
from support.workspace import ROOT, output_tail
from vernacular.comparison.schema import PROMPTS as PROMPTS_TABLE
from vernacular.core import artifacts
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.lm_eval.catalog import FORMAT, index_path
from vernacular.metrics.schema import RESULTS, TASK_RESULTS

pytestmark = [
    pytest.mark.slow,
    needs_bench,
]
# (name, shots): None is what the task files say
RUNS = [
    *((name, shots) for name in ("letters", "texts", "several", "written", "filters", "last") for shots in (0, 3)),
    *((name, None) for name in ("mutual", "contexts", "glued", "truth", "rolling", "judged", "pairs")),
    *(("weighted", shots) for shots in (None, 2)),
    ("unweighted", None),
    ("mixed", 1),
]
PROMPTS = [(f"asked_prompt_{number}", 0) for number in range(1, 5)]  # the entry `asked`; the last has other rows
FAILING = [("malicious", 0), ("texts", 99), ("absent", 0)]  # 99: more examples than rows
ABSENT = "task: absent\ndataset_path: nowhere/absent\noutput_type: multiple_choice\ntest_split: test\ndoc_to_text: q\n"
TRUSTED = ("glued", "truth")  # their files have functions
MALICIOUS = """
task: malicious
dataset_path: json
dataset_kwargs: {data_files: {test: letters.test.jsonl}}
output_type: loglikelihood
test_split: test
doc_to_text: "{{ cycler.__init__.__globals__.os.system('touch written_by_template') }}"
doc_to_target: " a"
"""
LM_EVAL = """
import json, logging, sys
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

logging.disable(logging.WARNING)
manager = TaskManager(include_path="tasks", include_defaults=False)
model = HFLM(pretrained="causal", dtype="float32", device="cpu", batch_size=4)
found = []
for name, shots in json.load(sys.stdin):
    results = simple_evaluate(model=model, tasks=[name], num_fewshot=shots, task_manager=manager, bootstrap_iters=0)
    samples = {task: [[s["doc_id"], s["resps"]] for s in rows] for task, rows in results["samples"].items()}
    found.append([name, shots, results["results"], results["n-shot"], samples])
json.dump(found, open("expected.json", "w"), default=str)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """The interpreter of an environment with lm_eval and an index without the package's tasks, which takes minutes."""
    directory = tmp_path_factory.mktemp("lm_eval_environment")
    own, site_packages = lm_eval_cases.extend_environment(BENCH, directory)
    if "COVERAGE_PROCESS_CONFIG" in os.environ:  # `make coverage`: a stage in this environment counts, too
        (own / "coverage").symlink_to(importlib.util.find_spec("coverage").submodule_search_locations[0])
        (own / "vernacular.pth").write_text(f"{ROOT / 'workflow'}\n")
        (own / "with_coverage.pth").write_text("import coverage; coverage.process_startup()\n")
    content = {"format": FORMAT, "versions": {"lm_eval": "0.4.13"}, "python": "3", "tasks": {}}
    content |= {"directory": str(site_packages / "lm_eval" / "tasks"), "groups": {}, "tags": {}}
    python = directory / "bin" / "python"
    metrics = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "chrf", "mcc", "f1", "perplexity")
    content["metrics"] = [*metrics, "word_perplexity", "byte_perplexity", "bits_per_byte"]
    index_path(python).write_text(json.dumps(content))
    return python


@pytest.fixture(scope="module")
def directory(tmp_path_factory, environment) -> Path:
    """A directory in which both tools have run all tasks."""
    directory = tmp_path_factory.mktemp("lm_eval_run")
    tiny.save("llama", directory / "causal")
    lm_eval_cases.write(directory / "tasks", directory)
    (directory / "tasks" / "malicious.yaml").write_text(MALICIOUS)
    (directory / "tasks" / "absent.yaml").write_text(ABSENT)
    entries = [
        {"lm_eval": name}
        | ({} if shots is None else {"shots": shots})
        | ({"trust_functions": True} if name in TRUSTED else {})
        for name, shots in [*RUNS, *FAILING]
    ]
    entries.append({"lm_eval": "asked_tasks", "prompts": "all", "shots": 0})
    config = {
        "models": {"causal": {"source": "./causal", "dtype": "float32", "device": "cpu"}},
        "lm_eval": {"python": str(environment), "tasks": ["tasks"]},
        "evaluations": entries,
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    variables = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    variables |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(directory / "hf"), "TQDM_DISABLE": "1"}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    command = [sys.executable, "-m", "snakemake", "-c2", "--snakefile", str(ROOT / "Snakefile")]
    command += ["--workflow-profile", str(ROOT / "profiles" / "default")]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=variables)
    assert all(name in output_tail(run) for name, _ in FAILING), "the only evaluations without results"
    expected = subprocess.run(
        [str(environment), "-c", LM_EVAL], cwd=directory, input=json.dumps(RUNS + PROMPTS), capture_output=True, text=True,
        check=False, env={key: value for key, value in variables.items() if key != "PYTHONPATH"},
    )  # fmt: skip
    assert expected.returncode == 0, expected.stderr[-3000:]
    return directory


def test_all_values_equal_those_of_lm_eval(directory):
    rows = artifacts.read(directory / "results" / "summary" / "results.parquet", RESULTS).to_pylist()
    assert all(re.search(r"\|lm_eval:\d[\w.]*\+[0-9a-f]{8}\|", row["signature"]) for row in rows)
    own = {(row["task"], row["shots"], row["category"] or "", row["metric"]): row["value"] for row in rows}
    n_values = 0
    for name, shots, results, _, _ in expected_results(directory):
        for task, values in results.items():
            if task == "mixed":  # of its members, some are scored and some generate
                continue
            for key, value in values.items():
                if "," not in key or "_stderr" in key or not isinstance(value, int | float):
                    continue
                metric, _, filter_name = key.rpartition(",")
                label = metric if filter_name == "none" else f"{metric},{filter_name}"
                found = own_value(own, name, shots, task, label)
                # exponentials of log-likelihoods: perplexities, and the probabilities of `truth`
                tolerance = 1e-4 if "perplexity" in label else 1e-5 if name == "truth" else 1e-6
                assert math.isclose(found, value, rel_tol=tolerance, abs_tol=1e-9), (name, shots, task, label, found)
                n_values += 1
    assert n_values > 60


def own_value(own: dict, name: str, shots: int | None, task: str, label: str) -> float:
    """Return the value of a task: of its own evaluation, or in its group, whose number of shots is the largest."""
    grouped = name in ("weighted", "unweighted")
    unit, category = (name, "" if task == name else task) if grouped else (task, "")
    n_shots = 2 if name == "unweighted" else 0 if shots is None or (task == "pairs" and not grouped) else shots
    return own[unit, n_shots, category, label]


def test_log_likelihoods_and_texts_equal_those_of_lm_eval(directory):
    compared = 0
    for name, shots, _, _, samples in expected_results(directory):
        if name in ("weighted", "unweighted", "mixed"):
            continue
        generates = name in ("written", "filters")
        kind, protocol = (GENERATIONS, "lm_eval_generation") if generates else (SCORES, "lm_eval")
        n_shots = 0 if shots is None else shots
        path = directory / "results" / "causal" / kind.name / f"{name}.und.{protocol}.{n_shots}shot.parquet"
        outputs = {(row["item_id"], row["role"]): row for row in artifacts.read(path, kind).to_pylist()}
        for doc_id, responses in samples[name]:
            for index, (response, *_) in enumerate(responses):
                if generates:
                    # decoding without the prompt, as lm-eval does, drops a space before the first word
                    raw_output = outputs[str(doc_id), "response"]["raw_output"]
                    assert raw_output.lstrip().startswith(response.lstrip())
                else:
                    role = "text" if name == "rolling" else f"choice:{index}"
                    row = outputs[str(doc_id), role]
                    loglik, *greedy = response if isinstance(response, list) else [response]
                    assert math.fsum(row["logprobs"]) == pytest.approx(float(loglik), abs=1e-4, rel=1e-6)
                    assert [all(row["is_greedy"])] == greedy or not greedy
                compared += 1
    assert compared > 150


def test_text_longer_than_the_context_is_scored_in_windows(directory):
    path = directory / "results" / "causal" / "scores" / "rolling.und.lm_eval.0shot.parquet"
    rows = artifacts.read(path, SCORES).to_pylist()
    assert max(len(row["tokens"]) for row in rows) > 512
    assert all(row["flags"] is None and None not in row["logprobs"] for row in rows)


def test_untrusted_template_cannot_reach_python_and_the_notes_name_its_task(directory):
    assert not (directory / "written_by_template").exists()
    notes = (directory / "results" / "summary" / "notes.csv").read_text("utf-8")
    assert "malicious" in notes
    assert "unsafe" in notes


def test_dataset_that_is_not_available_offline_is_one_sentence_in_the_notes(directory):
    notes = (directory / "results" / "summary" / "notes.csv").read_text("utf-8").splitlines()
    (line,) = (line for line in notes if "absent.und.lm_eval.0shot" in line)
    assert "its dataset is unavailable" in line


def test_evaluation_with_too_many_examples_leaves_those_with_fewer_unaffected(directory):
    rows = artifacts.read(directory / "results" / "summary" / "results.parquet", RESULTS).to_pylist()
    assert {row["shots"] for row in rows if row["task"] == "texts"} == {0, 3}
    notes = (directory / "results" / "summary" / "notes.csv").read_text("utf-8")
    assert "texts.und.lm_eval.99shot" in notes
    assert "Sample larger than population" in notes


def test_tasks_whose_names_differ_in_the_prompt_are_prompts_of_one_evaluation(directory):
    summary = directory / "results" / "summary"
    rows = artifacts.read(summary / "results.parquet", RESULTS).to_pylist()
    own = {row["prompt"]: row for row in rows if row["task"] == "asked" and row["metric"] == "acc"}
    assert own.keys() == {"p1", "p2", "p3", "p4", "all"}
    expected = {
        f"p{name[-1]}": results[name]["acc,none"] for name, _, results, _, _ in expected_results(directory, PROMPTS)
    }
    assert {name: row["value"] for name, row in own.items() if name != "all"} == pytest.approx(expected)
    assert own["all"]["value"] == pytest.approx(sum(expected[f"p{number}"] for number in (1, 2, 3)) / 3)
    assert own["all"]["n"] == len(lm_eval_cases.QUIZ)
    assert own["all"]["evaluation"] == "asked.und.lm_eval.0shot.all"
    prompts = artifacts.read(summary / "prompts.parquet", PROMPTS_TABLE).to_pylist()
    assert {tuple(row["prompts"]) for row in prompts} == {("p1", "p2", "p3")}
    assert {row["question"] for row in prompts} == {"prompts like these"}
    notes = (summary / "notes.csv").read_text("utf-8").splitlines()
    assert any("documents differ" in line and "asked.und.lm_eval.0shot.p4" in line for line in notes)
    content = (directory / "results" / "report" / "data" / "prompts.js").read_text("utf-8")
    (group,) = json.loads(content.partition(",")[2].rpartition(")")[0])["groups"]
    texts = [prompt["text"] for prompt in group["prompts"]]
    assert [text.split()[0] for text in texts] == ["Q:", "Escolle.", "Di:"]
    assert len({text.splitlines()[1] for text in texts}) == 1, "the same item"
    assert group["prompts"][1]["differs"] == "asked_prompt_2 of lm-eval"


def expected_results(directory: Path, runs: list = RUNS) -> list:
    names = {name for name, _ in runs}
    found = json.loads((directory / "expected.json").read_text("utf-8"))
    return [run for run in found if run[0] in names]


def test_choices_of_its_tasks_know_their_float_noise(directory):
    for path in sorted((directory / "results" / "causal" / "tasks").glob("*.parquet")):
        table, metadata = artifacts.read_all(path, TASK_RESULTS)
        has_choices = table["option_scores"].null_count < len(table)
        values = [dict(row or ()).get("within_noise") for row in table["metrics"].to_pylist()]
        assert (metadata.within_noise is not None) == has_choices, path.name
        assert {value for value in values if value is not None} <= {0.0, 1.0}
        assert len(table) == 0 or (None in values) != has_choices, path.name
