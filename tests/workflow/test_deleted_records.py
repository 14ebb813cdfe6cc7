"""Runs after `.snakemake` was deleted: nothing states which config the files are from, so they are brought up to date.

Every result must equal that of all stages in an empty directory.
"""

import copy
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support.workspace import Workspace, output_tail

pytestmark = pytest.mark.slow

RIVERS = "id,question,a,b,answer\n"
FIRST = [f"{n},Cal é o río {n}?,o Tambre,o Miño,{'AB'[n % 2]}\n" for n in range(8)]
SECOND = [f"{n},Que río pasa por Ourense {n}?,o Ulla,o Sil,{'BA'[n % 3 == 0]}\n" for n in range(5)]
TASK = {
    "task": "rivers",
    "title": "Rivers",
    "citation": "own",
    "protocols": ["options", "generation", "letters"],
    "item_type": "question",
    "columns": {"id": "id", "question": "question", "choices": ["a", "b"], "gold": "answer", "gold_format": "letter"},
    "languages": {"gl": {"source": {"file": "rivers.csv"}}},
}
CONFIG = {
    "models": {"tiny": {"source": "./causal", "dtype": "float32"}, "other": {"source": "./other", "dtype": "float32"}},
    "tasks": ["mine"],
    "evaluations": [
        {"task": "rivers", "languages": ["gl"], "protocols": ["options", "generation", "letters"], "shots": [0, 2]}
    ],
    "similarity": {"metrics": ["cosine"], "encoders": {"default": "./encoder"}},
}


def replaced_rows(directory: Path, config: dict) -> None:
    """Replace the rows of the dataset by a file with the time of the old one, as `rsync -t` or `git` may leave it."""
    path = directory / "mine" / "rivers.csv"
    times = path.stat()
    path.write_text(RIVERS + "".join(SECOND), "utf-8")
    os.utime(path, (times.st_atime, times.st_mtime))


def changed_task(directory: Path, config: dict) -> None:
    del config["models"]["other"]
    columns = {**TASK["columns"], "choices": ["b", "a"]}
    (directory / "mine" / "rivers.yaml").write_text(yaml.safe_dump({**TASK, "columns": columns}))


def changed_settings(directory: Path, config: dict) -> None:
    config["models"]["tiny"] |= {"max_length": 24, "bos": "never"}
    config["models"]["other"]["source"] = "./causal"


def changed_encoder(directory: Path, config: dict) -> None:
    config["similarity"]["encoders"]["default"] = "./masked"


def write_task(directory: Path) -> None:
    (directory / "mine").mkdir(parents=True)
    (directory / "mine" / "rivers.csv").write_text(RIVERS + "".join(FIRST), "utf-8")
    (directory / "mine" / "rivers.yaml").write_text(yaml.safe_dump(TASK))


def complete_run(workspace: Workspace) -> pd.DataFrame:
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    return workspace.results()


@pytest.fixture(scope="module")
def first_run(tmp_path_factory) -> Path:
    """The directory of a run of CONFIG, which the tests copy."""
    directory = tmp_path_factory.mktemp("first") / "run"
    write_task(directory)
    workspace = Workspace(directory, [])
    workspace.config = copy.deepcopy(CONFIG)
    assert workspace.run_stages() == 0
    complete_run(workspace)
    return directory


def in_copy(first_run: Path, directory: Path) -> Workspace:
    """Return a workspace in a copy of the first run, with the times of its files."""
    workspace = Workspace(directory / "models", [])  # the models of another directory, removed for those of the run
    shutil.rmtree(directory / "models")
    shutil.copytree(first_run, directory / "run")
    workspace.directory, workspace.config = directory / "run", copy.deepcopy(CONFIG)
    return workspace


CASES = {
    "rows and settings": (".snakemake", [replaced_rows, changed_settings, changed_encoder]),
    "task and models": (".snakemake/metadata", [changed_task]),  # `rm -r` of its many files
}


@pytest.mark.parametrize(("deleted", "changes"), CASES.values(), ids=CASES)
def test_results_after_a_deletion_equal_those_of_an_empty_directory(deleted, changes, first_run, tmp_path):
    workspace = in_copy(first_run, tmp_path)
    before = workspace.results()
    for change in changes:
        change(workspace.directory, workspace.config)
    shutil.rmtree(workspace.directory / deleted)
    after = complete_run(workspace)
    assert workspace.planned_jobs() == {}
    for name in ("results", "resources"):
        shutil.rmtree(workspace.directory / name)
    assert workspace.run_stages() == 0
    expected = workspace.results()
    pd.testing.assert_frame_equal(after, expected)
    assert not after.equals(before)
