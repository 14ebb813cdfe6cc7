"""The config key `store:`, where the outputs of models are kept."""

import os
import tempfile
from pathlib import Path

import pytest
from vernacular.config import load as config
from vernacular.core.errors import ConfigError

PLAIN = """\
models:
  mine: {source: ./mine}
evaluations:
  - {task: cola, languages: [gl], data: samples}
"""


def store_of(line: str) -> str:
    Path("config.yaml").write_text(PLAIN + line)
    return config.load(["config.yaml"]).store


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_store_is_a_path_with_the_home_directory_spelt_out_and_nothing_is_created(folder):
    assert store_of("") == "results/store"
    assert store_of("store: ~/lab\n") == str(folder / "home" / "lab")
    assert store_of("store: ../lab/store\n") == "../lab/store"
    assert store_of(f"store: {folder}/new/lab\n") == f"{folder}/new/lab"
    assert store_of("store: results/store/of mine\n") == "results/store/of mine"
    assert store_of("store: resultsandstore\n") == "resultsandstore"
    (folder / "there").mkdir()
    assert store_of("store: there\n") == "there"
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "there"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("config.yaml", 'expected a directory, got "config.yaml": {here}/config.yaml is not a directory.'),
        ("config.yaml/store", 'expected a directory, got "config.yaml/store": {here}/config.yaml is not a directory.'),
        ("link", 'expected a directory, got "link": {here}/link is not a directory.'),
        ("results", 'expected results/store or a directory outside of results/, which the workflow clears, got "results".'),
        ("results/exports/x", 'expected results/store or a directory outside of results/, which the workflow clears, got "results/exports/x".'),
        ("./x/../logs", 'expected results/store or a directory outside of logs/, which the workflow clears, got "./x/../logs".'),
        ("[a]", 'expected text, got ["a"].'),
        ('""', None),
    ],
)  # fmt: skip
def test_what_cannot_be_a_store_is_one_line_that_names_it(folder, value, said):
    (folder / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError) as error:
        store_of(f"store: {value}\n")
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("config.yaml, line 5: store: ")
    if said:
        assert str(error.value).endswith(said.format(here=folder))


@pytest.mark.parametrize(("mode", "at", "said"), [(0o555, "new", "created"), (0o311, "", "read")])
def test_a_store_without_permission_is_one_line(mode, at, said):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(mode)
        if root := os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        try:
            given = str(Path(folder) / at)
            expected = f'store: "{given}" cannot be {said}: permission denied in {folder}.'
            raised = []
            config._store(given, raised.append)
            assert [f"store: {text}" for text in raised] == [expected]
        finally:
            if root:
                os.seteuid(0)
                os.setegid(0)
            Path(folder).chmod(0o755)


def test_nothing_names_the_default_store_but_the_config():
    root = Path(config.__file__).parents[2]
    files = [root.parent / "Snakefile", *(root / "rules").glob("*.smk")]
    commands = [line for path in files for line in path.read_text("utf-8").splitlines() if "--store" in line]
    assert len(commands) == 2
    assert all('--store "$VERNACULAR_STORE"' in line for line in commands)
