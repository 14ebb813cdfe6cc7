"""Files of a user in the directory of the results: they are kept, and a run refuses to share directories with them."""

import re
import shutil

import pytest
import yaml
from support.workspace import Workspace, output_tail
from vernacular.cli import main
from vernacular.config.directories import clear_unavailable

EVALUATIONS = [
    {"task": "palmx_culture", "languages": ["ar"], "protocols": ["letters"], "limit": 4},
    {"task": "cola", "languages": ["es"], "limit": 4},
]
DIRECTORIES = ["report", "report/data", "comparisons", "comparisons/tiny--second", "summary/lm_eval",
               "summary/every_eval_ever/data", "exports/tiny/palmx_culture.ar.letters.0shot"]  # fmt: skip
FREE = [".", "summary", "exports", "exports/tiny", "tiny", "notes"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("foreign"), EVALUATIONS)
    workspace.config["models"]["second"] = {"source": "./other", "dtype": "float32"}
    return workspace


def add_files(workspace, directories) -> dict:
    """Write a file of a user to each directory of the results; return content and time of all of them."""
    paths = [workspace.directory / "results" / directory / "thesis.tex" for directory in directories]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"precious {path.parent.name}")
    return {path: (path.read_text(), path.stat().st_mtime_ns) for path in paths}


def test_damaged_files_of_other_names_are_not_deleted(tmp_path):
    """A run deletes files that say why something is unavailable, and damaged ones, so that the next run tries again."""
    names = {"tiny", "items", "evaluation", "encoder"}
    outputs = ["resources/items/items.parquet", "resources/models/tiny.json", "resources/encoders/encoder.json",
               "results/requests/evaluation.parquet", "results/tiny/tasks/evaluation.parquet",
               "results/tiny/metrics.parquet", "results/inference_status/tiny/1of1.json"]  # fmt: skip
    own = ["resources/items/own.parquet", "resources/models/own.json", "results/requests/own.parquet",
           "results/own/metrics.parquet", "results/own/tasks/evaluation.parquet", "results/tiny/tasks/own.parquet",
           "results/tiny/own/evaluation.parquet", "results/own/similarity/evaluation.parquet",
           "results/inference_status/own/1of1.json", "results/own/lm_eval/x.parquet"]  # fmt: skip
    for name in (*outputs, *own):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    deleted = clear_unavailable(tmp_path / "resources", tmp_path / "results", names)
    assert {path.relative_to(tmp_path).as_posix() for path in deleted} == set(outputs)
    assert all((tmp_path / name).read_text() == "precious" for name in own)


def unchanged(files: dict) -> bool:
    return all((path.read_text(), path.stat().st_mtime_ns) == state for path, state in files.items())


@pytest.mark.slow
def test_files_of_a_user_outlive_every_run(workspace, monkeypatch, capsys):
    files = add_files(workspace, DIRECTORIES)
    free_files = add_files(workspace, FREE)
    run = workspace.run()
    assert run.returncode == 1
    lines = [line for line in run.stderr.splitlines() if line.startswith("results/")]
    assert len(lines) == 5
    assert all(any(str(path.relative_to(workspace.directory)) in line for line in lines) for path in files)
    assert unchanged(files | free_files)
    assert not (workspace.directory / "resources").exists(), "nothing ran"

    monkeypatch.chdir(workspace.directory)
    assert main(["check"]) == 1
    assert set(capsys.readouterr().err.splitlines()) >= set(lines)

    for directory in ("report", "comparisons", "summary/lm_eval", "summary/every_eval_ever", "exports/tiny"):
        for path in (workspace.directory / "results" / directory).rglob("thesis.tex"):
            if path in files:
                path.unlink()
    assert workspace.run_stages(exports=True) == 0
    assert unchanged(free_files)
    assert main(["check"]) == 0
    workspace.free_files = free_files


@pytest.mark.slow
def test_results_of_an_earlier_version_are_continued(workspace):
    """Without the lists of files, as earlier versions wrote them, and with Snakemake's file of output directories."""
    output = workspace.directory / "results"
    directories = {path.parent for path in output.rglob(".vernacular")}
    assert len(directories) == 6
    for directory in directories:
        (directory / ".snakemake_timestamp").touch()
        for path in directory.glob(".vernacular*"):
            path.unlink()
    assert (output / "report" / "data" / "e1").is_dir()
    (output / "report" / "data" / "own.js").write_text("vernacular.own()")
    run = workspace.run("-n")
    assert run.returncode == 1
    (line,) = (line for line in run.stderr.splitlines() if line.startswith("results/"))
    assert "results/report/data/own.js." in line
    (output / "report" / "data" / "own.js").unlink()

    workspace.config["evaluations"] = EVALUATIONS[:1]
    del workspace.config["models"]["second"]
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    assert not (output / "report" / "data" / "e1").exists()
    assert not list((output / "comparisons").glob("*--*"))
    assert [path.name for path in (output / "summary" / "lm_eval").glob("*.json")] == ["results_tiny.json"]
    assert len(list((output / "summary" / "every_eval_ever").rglob("*.json"))) == 1
    assert unchanged(workspace.free_files)
    assert workspace.planned_jobs() == {}


@pytest.mark.slow
def test_another_config_file_with_the_same_output_stops(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace.directory)
    second = workspace.directory / "configs" / "second.yaml"
    second.parent.mkdir()
    second.write_text(yaml.safe_dump(workspace.config))
    run = workspace.run("--configfile", "configs/second.yaml")
    assert run.returncode == 1
    (line,) = (line for line in run.stderr.splitlines() if "config.yaml" in line)
    assert re.match(r"configs/second\.yaml: results has the results of config\.yaml\. Choose another output ", line)
    assert main(["check", "configs/second.yaml"]) == 1
    assert line in capsys.readouterr().err

    workspace.config["limit"] = 5  # edited
    assert workspace.run("-n").returncode == 0
    shutil.copytree(workspace.directory, workspace.directory.with_name("copy"))
    monkeypatch.chdir(workspace.directory.with_name("copy"))
    assert main(["check"]) == 0, "moved or copied with its results"
    (second.parents[1].with_name("copy") / "config.yaml").unlink()
    assert main(["check", "configs/second.yaml"]) == 0, "renamed"
