"""A run after `.snakemake` was deleted: nothing states which config the files are from, so they are brought up to date.

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

EVERY = dict.fromkeys(("items", "requests", "encoder", "compare", "changes", "summary", "report", "finish", "all"), 1)
EVERY |= dict.fromkeys(("model", "infer", "collect", "similarity", "metrics", "export"), 2)


def replaced_rows(directory: Path, config: dict) -> None:
    """Replace the rows of the dataset by a file with the time of the old one, as `rsync -t` or `git` may leave it."""
    path = directory / "mine" / "rivers.csv"
    times = path.stat()
    path.write_text(RIVERS + "".join(SECOND), "utf-8")
    os.utime(path, (times.st_atime, times.st_mtime))


def changed_task(directory: Path, config: dict) -> None:
    columns = {**TASK["columns"], "choices": ["b", "a"]}
    (directory / "mine" / "rivers.yaml").write_text(yaml.safe_dump({**TASK, "columns": columns}))


def changed_settings(directory: Path, config: dict) -> None:
    config["models"]["tiny"] |= {"max_length": 24, "bos": "never"}
    config["models"]["other"]["source"] = "./causal"


def removed_model(directory: Path, config: dict) -> None:
    del config["models"]["removed"]


def changed_encoder(directory: Path, config: dict) -> None:
    config["similarity"]["encoders"]["default"] = "./masked"


def write_task(directory: Path) -> None:
    (directory / "mine").mkdir(parents=True)
    (directory / "mine" / "rivers.csv").write_text(RIVERS + "".join(FIRST), "utf-8")
    (directory / "mine" / "rivers.yaml").write_text(yaml.safe_dump(TASK))


def check_run(workspace: Workspace, *changes) -> None:
    """Change the inputs, run, and compare with all stages in an empty directory."""
    before = workspace.results()
    for change in changes:
        change(workspace.directory, workspace.config)
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    after = workspace.results()
    assert workspace.planned_jobs() == {}
    empty = Workspace(workspace.directory.with_name("empty"), [])
    shutil.copytree(workspace.directory / "mine", empty.directory / "mine")
    empty.config = workspace.config
    assert empty.run_stages() == 0
    # a cosine near 0 differs by float noise with the number of threads
    pd.testing.assert_frame_equal(after, empty.results(), atol=1e-6)
    assert not after.equals(before)


def test_results_after_a_deletion_equal_those_of_an_empty_directory(tmp_path):
    """The stages, which run without Snakemake, leave what a run leaves whose `.snakemake` is deleted."""
    write_task(tmp_path / "run")
    workspace = Workspace(tmp_path / "run", [])
    workspace.config = copy.deepcopy(CONFIG)
    workspace.config["models"]["removed"] = {"source": "./other", "dtype": "float32", "bos": "never"}
    assert workspace.run_stages() == 0
    assert not (workspace.directory / ".snakemake").exists()
    check_run(workspace, replaced_rows, changed_task, changed_settings, changed_encoder, removed_model)
    shutil.rmtree(workspace.directory / ".snakemake" / "metadata")  # the same by `rm -r` of its many files alone
    assert workspace.planned_jobs() == EVERY
