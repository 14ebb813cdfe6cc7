"""The config key `store`, the directory of model outputs."""

import os
import re
import tempfile
from pathlib import Path

import pytest
from vernacular.config import load as config
from vernacular.config.directories import store_directory
from vernacular.core.errors import ConfigError
from vernacular.core.paths import WORKFLOW

PLAIN = """\
models:
  mine: {source: ./mine}
evaluations:
  - {task: cola, languages: [gl], data: samples}
"""


def load_store(line: str) -> str:
    Path("config.yaml").write_text(PLAIN + line)
    return config.load(["config.yaml"]).store


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_store_path_expands_home_and_creates_nothing(directory):
    assert load_store("") == "results/store"
    assert load_store("store: ~/lab\n") == str(directory / "home" / "lab")
    assert load_store("store: ../lab/store\n") == "../lab/store"
    assert load_store(f"store: {directory}/new/lab\n") == f"{directory}/new/lab"
    assert load_store("store: results/store/of mine\n") == "results/store/of mine"
    assert load_store("store: resultsandstore\n") == "resultsandstore"
    (directory / "there").mkdir()
    assert load_store("store: there\n") == "there"
    assert sorted(path.name for path in directory.iterdir()) == ["config.yaml", "there"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("config.yaml", 'expected a directory, got "config.yaml": {here}/config.yaml is not a directory.'),
        ("config.yaml/store", 'expected a directory, got "config.yaml/store": {here}/config.yaml is not a directory.'),
        ("link", 'expected a directory, got "link": {here}/link is not a directory.'),
        ("results", 'expected results/store or a directory outside of results/, which the workflow clears, got "results".'),
        ("results/exports/x", 'expected results/store or a directory outside of results/, which the workflow clears, got "results/exports/x".'),
        ("./x/../logs", 'expected results/store or a directory outside of logs/, which the workflow clears, got "./x/../logs".'),
        ("s3://bucket/store", 'expected a directory, got the address "s3://bucket/store". Mount it, or use a directory of this machine.'),
        ('"a\\u202eb"', 'expected the name of a directory, got "a\\u202eb", which contains U+202E.'),
        ("[a]", 'expected text, got ["a"].'),
        ('""', None),
    ],
)  # fmt: skip
def test_invalid_store_raises_one_line_error(directory, value, expected):
    (directory / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError) as error:
        load_store(f"store: {value}\n")
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("config.yaml, line 5: store: ")
    if expected:
        assert str(error.value).endswith(expected.format(here=directory))


@pytest.mark.parametrize(("mode", "subpath", "action"), [(0o555, "new", "created"), (0o311, "", "read")])
def test_store_without_permission_raises_one_line_error(mode, subpath, action):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(mode)
        if root := os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        try:
            setting = str(Path(directory) / subpath)
            expected = f'store: "{setting}" cannot be {action}: permission denied in {directory}.'
            messages = []
            store_directory(setting, "results", messages.append)
            assert [f"store: {text}" for text in messages] == [expected]
        finally:
            if root:
                os.seteuid(0)
                os.setegid(0)
            Path(directory).chmod(0o755)


def test_rules_take_store_path_from_config():
    text = "".join(path.read_text("utf-8") for path in (WORKFLOW / "rules").glob("*.smk"))
    # infer, for models here and behind servers, and collect; the same three for judges; similarity
    assert text.count("store=") == text.count("store=CONFIG.store") == 7


def test_every_rule_runs_the_package_beside_it():
    lines = [line for path in (WORKFLOW / "rules").glob("*.smk") for line in path.read_text("utf-8").splitlines()]
    assert sum(line.startswith("        stage(") for line in lines) == sum(line == "    shell:" for line in lines) >= 17
    commands = [line for line in lines if re.search(r"['\"](exec )?(python|\{python\}) ", line)]
    assert len(commands) == 2  # of all stages, and at the end of a run
    assert [line for line in commands if not re.search(r'(python|\{python\}) \\?"\$VERNACULAR\\?" ', line)] == []
