"""Stages read one JSON object from standard input, because Linux limits arguments; its file and its log repeat them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import stages
from vernacular import cli

RULES = Path(__file__).parents[2] / "workflow" / "rules"


def run(command: str, fields: str, directory: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "vernacular", command]
    return subprocess.run(command, cwd=directory, input=fields, capture_output=True, text=True, check=False)


def test_long_spec_is_read_from_standard_input(tmp_path):
    spec = {
        "name": "gone",
        "source": "./gone",
        "kind": "auto",
        "allow_pickle": False,
        "files": "x" * 300_000,
    }
    process = run("model", json.dumps({"spec": spec, "out": "gone.json"}), tmp_path)
    assert process.returncode == 0
    assert process.stdout.startswith("model: gone: unavailable (model file or directory not found: ./gone")


def test_names_of_files_may_exceed_the_limit_of_arguments(tmp_path):
    """As the shell commands of the rules pass them."""
    metrics = [f"{'m' * 80}{number}/metrics.parquet" for number in range(30_000)]
    fields = stages.text("summary", metrics=metrics, out="summary")
    assert len(fields) > 2**21
    (tmp_path / "job.sh").write_text(f"exec {sys.executable} -m vernacular summary <<< {shlex.quote(fields)}")
    process = subprocess.run(["bash", "job.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith(f"summary: {'m' * 80}0/tokens.parquet: file not found")


def test_rules_pass_fields_on_standard_input():
    rules = [rule for path in RULES.glob("*.smk") for rule in re.split(r"(?m)^ *rule ", path.read_text())[1:]]
    with_spec = [rule for rule in rules if "spec=" in rule]
    assert len(with_spec) >= 12
    for rule in with_spec:
        assert re.search(r"\n +shell:\n +stage\(.*\)\s*((#|if ).*\s*)*$", rule), rule
    (command,) = re.findall(r"\n    return f(\".*VERNACULAR.*)", (RULES / "common.smk").read_text())
    assert " <<< " in command


def test_log_names_the_file_and_the_line_that_repeats_the_stage(tmp_path):
    """Also with a space in the path."""
    (tmp_path / "notes.csv").write_text("kind,note,count,models,evaluations\n", "utf-8-sig")
    fields = {"notes": "notes.csv", "out": "complete.txt", "log": "my logs/finish.log", "threads": 2, "attempt": "1of3"}
    assert run("finish", json.dumps(fields), tmp_path).returncode == 0
    assert json.loads((tmp_path / "my logs" / "finish.json").read_text("utf-8")) == fields
    (tmp_path / "complete.txt").unlink()
    log = (tmp_path / "my logs" / "finish.log").read_text("utf-8")
    (name, line) = re.search(r": (.*) has the fields of this stage\. To repeat it: (.*)", log).groups()
    assert name == "my logs/finish.json"
    subprocess.run(line, cwd=tmp_path, shell=True, check=True, capture_output=True)
    assert (tmp_path / "complete.txt").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "finish: expected one JSON object on standard input, got ''"),
        ("[1]", "finish: expected one JSON object on standard input, got '[1]'."),
        ('{"notes": "n.csv", "output": "o.txt"}', 'finish: unknown field "output". Did you mean "out"?'),
        ('{"notes": "n.csv"}', 'finish: the field "out" is missing.'),
        ('{"notes": "n.csv", "out": "o.txt", "attempt": "last"}', "finish: attempt: expected Part, got 'last'."),
        ('{"notes": "n.csv", "out": "o.txt", "log": 1}', "finish: log: expected Path, got 1."),
    ],
)
def test_fields_that_do_not_fit_are_named_in_one_line(tmp_path, fields, message):
    process = run("finish", fields, tmp_path)
    assert process.returncode == 1
    (line,) = process.stderr.splitlines()
    assert line.startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", cli.STAGES)
def test_help_of_a_stage_describes_each_field_and_those_of_its_spec(name, capsys):
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    fields = re.findall(r"(?m)^    (\w+): .*?(?:  # (.+))?$", capsys.readouterr().out)
    assert [name for name, description in fields if not description] == []
    assert {"log", "threads", "attempt"} < {name for name, _ in fields}
    assert ("code" in dict(fields)) == (name not in ("finish", "print-results")), "all others have a spec"
