"""Two configs in one directory: a run of one does not change the outputs of the other."""

import pytest
from support.workspace import Workspace, output_tail

PALMX = {"task": "palmx_culture", "languages": ["ar"], "protocols": ["letters"]}
CLOZE = {"task": "serbian_cloze", "languages": ["sr"], "limit": 6}
NO_EXPORT = {"task": "cola", "languages": ["es"], "limit": 8}  # a protocol without an export format


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("configs"), [])


def run_evaluations(workspace, *evaluations) -> None:
    workspace.config["evaluations"] = list(evaluations)
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)


def exported_files(workspace) -> dict[str, tuple[bytes, int]]:
    """Return content and modification time of every file below `results/exports`, by relative path."""
    root = workspace.directory / "results" / "exports"
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.slow
def test_exports_of_one_config_outlive_a_run_of_the_other(workspace):
    workspace.config["models"]["other"] = {"source": "./other", "dtype": "float32"}
    workspace.config["evaluations"] = [PALMX]
    assert workspace.run_stages(exports=True) == 0
    palmx_files = exported_files(workspace)
    names = ("README.txt", "outputs_log.csv", "predictions.csv", "scores.txt")
    models = ("tiny", "other")
    assert set(palmx_files) == {f"{model}/palmx_culture.ar.letters.0shot/{name}" for model in models for name in names}

    del workspace.config["models"]["other"]
    workspace.config["evaluations"] = [NO_EXPORT]
    assert "export" not in workspace.planned_jobs()
    assert workspace.run_stages(exports=True) == 0
    assert exported_files(workspace) == palmx_files

    run_evaluations(workspace, NO_EXPORT, CLOZE)
    all_files = exported_files(workspace)
    assert set(all_files) - set(palmx_files) == {
        f"tiny/serbian_cloze.sr.cloze.0shot/{name}" for name in ("README.txt", "results.jsonl")
    }
    assert {name: all_files[name] for name in palmx_files} == palmx_files


@pytest.mark.slow
def test_results_of_another_output_are_apart_and_share_the_store(workspace):
    """Continues the last run of the previous test."""
    results = workspace.directory / "results" / "summary" / "results.csv"
    before = (results.read_bytes(), results.stat().st_mtime_ns)
    workspace.config["output"] = "of mine/second"
    run = workspace.run("all")
    assert run.returncode == 0, output_tail(run)
    second = workspace.directory / "of mine" / "second"
    assert (second / "summary" / "results.csv").read_bytes() == before[0]
    assert (results.read_bytes(), results.stat().st_mtime_ns) == before
    assert (second / "report" / "index.html").exists()
    stages = {line.split()[0] for line in run.stdout.partition("\nstage ")[2].splitlines()[1:] if line}
    assert stages >= {"infer", "metrics", "compare"}
    assert not {"items", "model"} & stages  # of the first run
    assert "Report (open it in a browser): of mine/second/report/index.html" in run.stdout
    log = (workspace.directory / "logs" / "infer" / "tiny.1of1.log").read_text()
    assert "found in the store" in log
    assert "computed" not in log
    assert workspace.planned_jobs() == {}
