"""What a second run would do after each kind of change, by the plan: the workflow is a clone that the tests may edit.

The tests stand in the order of a story, and each undoes what it did.
"""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.workplace import ROOT, Clone, said
from vernacular.core import artifacts
from vernacular.data.schema import ITEMS

EVALUATIONS = [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options"]}]
AFTER_METRICS = {"compare", "summary", "report", "verify", "all"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reruns")
    (folder / "work").mkdir()
    place = Clone(folder, EVALUATIONS)
    place.config["similarity"]["metrics"] = ["cosine"]
    place.config["models"]["other"] = {"source": "./other", "dtype": "float32"}
    run = place.run()
    assert run.returncode == 0, said(run)
    return place


@pytest.fixture
def changed(place):
    """The place's config, to be changed for one test."""
    kept = copy.deepcopy(place.config)
    yield place.config
    place.config = kept


@pytest.fixture
def edited(place):
    """Appends text to a file of the clone for one test."""
    kept: dict[Path, str] = {}

    def append(path: str, text: str) -> None:
        file = place.code(path)
        kept[file] = file.read_text("utf-8")
        file.write_text(kept[file] + text, "utf-8")

    yield append
    for file, text in kept.items():
        file.write_text(text, "utf-8")


def test_a_fresh_clone_with_other_times_reruns_nothing(place):
    for path in place.clone.rglob("*"):
        os.utime(path)
    shutil.rmtree(place.clone / "workflow" / "vernacular" / "__pycache__", ignore_errors=True)
    assert place.planned() == {}


def test_comments_and_docstrings_rerun_nothing(place, edited):
    edited("vernacular/inference/scoring/score.py", "\n# another remark\n")
    edited("vernacular/protocols/evaluate.py", "\n# another remark\n")
    edited("rules/inference.smk", "\n# another remark\n")
    assert place.planned() == {}


def test_editing_the_scorer_asks_again_and_says_that_the_code_is_why(place, edited):
    edited("vernacular/inference/scoring/score.py", "\n\ndef another(x):\n    return x\n")
    why = place.run("-n", "--quiet", "host")  # by default the profile leaves reasons out
    planned = place.jobs(why)
    assert planned["infer"] == planned["collect"] == 2
    assert not {"items", "requests", "model"} & set(planned)
    assert "Params have changed since last execution" in why.stdout + why.stderr
    assert '"code"' in why.stdout + why.stderr


def test_editing_the_metrics_asks_no_model(place, edited):
    edited("vernacular/protocols/evaluate.py", "\n\ndef another(x):\n    return x\n")
    planned = place.planned()
    assert set(planned) <= {"metrics", "export"} | AFTER_METRICS
    assert planned["metrics"] == 2


def test_editing_the_summary_runs_the_summary(place, edited):
    edited("vernacular/summary/grid.py", "\n\ndef another(x):\n    return x\n")
    assert set(place.planned()) <= AFTER_METRICS


def state(folder: Path) -> dict:
    """Every file but Snakemake's own, with what a change of it would show."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts]
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in files}


@pytest.mark.parametrize("planning", [["-n"], ["--summary"], ["--list-rules"], ["--unlock"]], ids=" ".join)
def test_planning_writes_and_deletes_nothing(place, planning):
    """Not even what the next run would make again: a file that states why it has no rows, and a damaged one."""
    items = place.folder / "resources" / "items" / "openbookqa.gl.parquet"
    requests = place.folder / "results" / "requests" / "openbookqa.gl.options.0shot.parquet"
    kept = items.read_bytes(), requests.read_bytes()
    place.run("-n")  # writes the config
    artifacts.write(items, ITEMS, [], {"unavailable": "gated", "fingerprint": "x"})
    requests.write_bytes(kept[1][:100])
    try:
        before = state(place.folder)
        run = place.run(*planning)
        before[place.folder / "config.yaml"] = state(place.folder)[place.folder / "config.yaml"]
        assert state(place.folder) == before
        assert run.returncode == 0, said(run)
    finally:
        items.write_bytes(kept[0])
        requests.write_bytes(kept[1])


@pytest.fixture
def upgraded(place, tmp_path):
    """A function that installs another version of a library, for the plan and the jobs of one test."""
    before = place.environment

    def install(name: str, version: str) -> None:
        about = tmp_path / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        place.environment = before | {"PYTHONPATH": os.pathsep.join([before["PYTHONPATH"], str(tmp_path)])}

    yield install
    place.environment = before


def test_an_upgrade_of_what_computes_log_probabilities_computes_them_again(place, upgraded):
    upgraded("tokenizers", "0.23.99")
    planned = place.planned()
    assert planned["infer"] == planned["collect"] == 2
    assert "items" not in planned
    assert "requests" not in planned


def test_an_upgrade_of_what_makes_the_tables_makes_the_tables(place, upgraded):
    upgraded("openpyxl", "99.0")
    assert set(place.planned()) <= AFTER_METRICS - {"compare"}


def test_an_upgrade_of_what_shows_progress_does_nothing(place, upgraded):
    upgraded("tqdm", "99.0")
    assert place.planned() == {}


def test_another_similarity_metric_or_encoder_asks_no_model(place, changed):
    changed["similarity"]["metrics"] = ["cosine", "bertscore"]
    with_metric = place.planned()
    assert set(with_metric) <= {"similarity", "metrics", "export"} | AFTER_METRICS
    assert with_metric["similarity"] == 2
    changed["similarity"] = {"metrics": ["cosine"], "encoders": {"gl": "./masked", "default": "./encoder"}}
    with_encoder = place.planned()
    assert set(with_encoder) <= {"encoder", "similarity", "metrics", "export"} | AFTER_METRICS
    assert with_encoder["encoder"] == 1


def test_a_comparison_runs_no_model(place, changed):
    changed["comparisons"] = [{"baseline": "tiny", "candidate": "other"}]
    planned = place.planned()
    assert planned
    assert set(planned) <= AFTER_METRICS


def test_a_model_that_is_removed_leaves_no_work_but_the_tables(place, changed):
    del changed["models"]["other"]
    assert set(place.planned()) <= AFTER_METRICS


def test_a_model_that_is_trained_further_is_asked_and_no_other(place):
    weights = place.folder / "other" / "model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-4] + b"\0\0\0\0")
    planned = place.planned()
    weights.write_bytes(before)
    assert planned["model"] == planned["infer"] == 1


@pytest.mark.slow
def test_other_shards_ask_nothing_again(place, changed):
    changed["models"]["tiny"]["shards"] = 3
    run = place.run()
    assert run.returncode == 0, said(run)
    logs = [(place.folder / "logs" / "infer" / f"tiny.{k}of3.log").read_text() for k in (1, 2, 3)]
    assert not any("computed" in log for log in logs)


@pytest.mark.slow
def test_results_of_two_versions_in_one_summary_are_noted(place, changed, upgraded):
    upgraded("tokenizers", "0.23.99")
    changed["models"]["third"] = {"source": "./causal", "dtype": "float32", "bos": "never"}
    run = place.run("--rerun-triggers", "mtime")
    assert run.returncode == 0, said(run)
    notes = place.notes().query("kind == 'mixed versions'")
    assert list(notes["count"]) == [2]
    assert "tiny, other: " in notes["note"].iloc[0]
    assert "third: " in notes["note"].iloc[0]


@pytest.mark.slow
def test_a_removed_task_drops_out_of_the_summary_and_its_files_stay(place, changed):
    changed["evaluations"] = [{**EVALUATIONS[0], "protocols": ["options"]}]
    run = place.run()
    assert run.returncode == 0, said(run)
    assert set(place.results()["evaluation"]) == {"openbookqa.gl.options.0shot"}
    assert (place.folder / "results" / "tiny" / "tasks" / "openbookqa.gl.generation.0shot.parquet").exists()
    assert not any("computed" in path.read_text() for path in (place.folder / "logs" / "infer").glob("other.*"))


@pytest.mark.parametrize("profile", [["--profile", "profiles/slurm"], ["--workflow-profile", "slurm"]], ids=" ".join)
def test_the_cluster_profile_is_found_by_its_path_and_by_its_name(place, profile):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "snakemake", "-n", "--quiet", "all", *profile]
    command += ["--directory", str(place.folder), "--configfile", str(place.folder / "config.yaml")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert "profiles/slurm" in run.stderr, said(run)
    assert run.returncode == 0, said(run)
