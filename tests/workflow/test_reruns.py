"""Jobs planned by a second run after each kind of change; the workflow is a clone that the tests may edit.

The tests run in file order, and each one reverts its changes.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.stage_run import Run
from support.workspace import ROOT, Clone, output_tail
from vernacular.config.dependencies import encoder_spec
from vernacular.config.load import load
from vernacular.core import artifacts
from vernacular.core.metadata import unavailable
from vernacular.data.schema import ITEMS
from vernacular.inference.job.work import engine_version
from vernacular.metrics.schema import METRICS

pytestmark = pytest.mark.slow

EVALUATIONS = [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options"], "limit": 4}]
GENERATION = "openbookqa.gl.generation.0shot"
PAIRS = [{"baseline": "tiny", "candidate": "other"}]
AFTER_METRICS = {"changes", "compare", "summary", "report", "finish", "all"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reruns")
    (directory / "work").mkdir()
    workspace = Clone(directory, EVALUATIONS)
    workspace.config["similarity"]["metrics"] = ["cosine"]
    workspace.config["comparisons"] = PAIRS
    workspace.config["models"]["other"] = {"source": "./other", "dtype": "float32"}
    assert workspace.run_stages() == 0
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    return workspace


@pytest.fixture
def config(workspace):
    """The config of the workspace; changes are reverted after the test."""
    original = copy.deepcopy(workspace.config)
    yield workspace.config
    workspace.config = original


@pytest.fixture
def append_code(workspace):
    """Return a function that appends text to a file of the clone until the end of the test."""
    originals: dict[Path, str] = {}

    def append(path: str, text: str) -> None:
        file = workspace.code_path(path)
        originals[file] = file.read_text("utf-8")
        file.write_text(originals[file] + text, "utf-8")

    yield append
    for file, text in originals.items():
        file.write_text(text, "utf-8")


def test_new_timestamps_comments_and_the_progress_bar_rerun_nothing(workspace, append_code, install_version):
    append_code("vernacular/inference/scoring/score.py", "\n# another remark\n")
    append_code("vernacular/protocols/evaluate.py", "\n# another remark\n")
    append_code("rules/inference.smk", "\n# another remark\n")
    for path in workspace.clone.rglob("*"):
        os.utime(path)
    shutil.rmtree(workspace.clone / "workflow" / "vernacular" / "__pycache__", ignore_errors=True)
    install_version("tqdm", "99.0")
    assert workspace.planned_jobs() == {}


def test_editing_the_scorer_reruns_inference_with_code_as_the_reason(workspace, append_code):
    append_code("vernacular/inference/scoring/score.py", "\n\ndef another(x):\n    return x\n")
    run = workspace.run("-n", "--quiet", "host")  # the profile omits reasons by default
    planned = workspace.jobs(run)
    assert planned["infer"] == planned["collect"] == 2
    assert not {"items", "requests", "model"} & set(planned)
    assert "Params have changed since last execution" in run.stdout + run.stderr
    assert '"code"' in run.stdout + run.stderr


def test_editing_the_metrics_reruns_no_inference(workspace, append_code):
    """That each of their modules is in the key: tests/core/test_code_fingerprint.py."""
    append_code("vernacular/metrics/bits.py", "\n\ndef another(x):\n    return x\n")
    planned = workspace.planned_jobs()
    assert set(planned) <= {"metrics", "export"} | AFTER_METRICS
    assert planned["metrics"] == 2


def test_edit_and_upgrade_for_the_tables_and_a_removed_model_rerun_only_the_tables(
    workspace, append_code, install_version, config
):
    append_code("vernacular/summary/grid.py", "\n\ndef another(x):\n    return x\n")
    install_version("openpyxl", "99.0")
    del config["models"]["other"], config["comparisons"]
    assert set(workspace.planned_jobs()) <= AFTER_METRICS


@pytest.mark.parametrize(
    ("key", "text", "stages"),
    [
        (
            "labels",
            f"evaluation,item_id,response_id,scale,label,annotator\n{GENERATION},a,b,correct,correct,Ana\n",
            {"estimates"},
        ),
        ("verdicts", "task,language,item_id,content,decision,annotator,date\n", {"faults"}),
        ("external_results", f"evaluation,item_id,correct\n{GENERATION},a,1\n", {"external", "changes"}),
    ],
)
def test_what_speakers_and_others_add_reruns_its_stage_and_what_reads_it(workspace, config, key, text, stages):
    """`changes` lists the items of pairs with external results, too."""
    (workspace.directory / "added.csv").write_text(text, "utf-8")
    config[key] = {"theirs": {"path": "added.csv"}} if key == "external_results" else "added.csv"
    if key == "external_results":
        config["comparisons"] = [*PAIRS, {"baseline": "theirs", "candidate": "tiny"}]
    added = workspace.planned_jobs()
    assert added.keys() - stages == {"summary", "report", "finish", "all"}
    assert stages <= added.keys()


def file_states(directory: Path) -> dict:
    """Return modification time, inode and content of every file, except those of Snakemake."""
    files = [path for path in directory.rglob("*") if path.is_file() and ".snakemake" not in path.parts]
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) for path in files}


def test_planning_writes_and_deletes_nothing(workspace):
    """This includes files that the next run would recreate: an unavailable dataset and a damaged file."""
    items = workspace.directory / "resources" / "items" / "openbookqa.gl.limit4.parquet"
    requests = workspace.directory / "results" / "requests" / "openbookqa.gl.options.0shot.parquet"
    original_items, original_requests = items.read_bytes(), requests.read_bytes()
    workspace.write_config()
    artifacts.write(items, ITEMS, [], {"outcome": unavailable("gated"), "fingerprint": "x"})
    requests.write_bytes(original_requests[:100])
    try:
        previous = file_states(workspace.directory)
        for planning in ("-n", "--summary", "--list-rules", "--unlock"):
            run = workspace.run(planning)
            assert run.returncode == 0, output_tail(run)
            states = file_states(workspace.directory)
            previous[workspace.directory / "config.yaml"] = states[workspace.directory / "config.yaml"]
            assert states == previous, planning
    finally:
        items.write_bytes(original_items)
        requests.write_bytes(original_requests)


@pytest.fixture
def install_version(workspace, tmp_path):
    """Return a function that installs another version of a library until the end of the test."""
    environment = workspace.environment

    def install(name: str, version: str) -> None:
        metadata_dir = tmp_path / f"{name}-{version}.dist-info"
        metadata_dir.mkdir()
        (metadata_dir / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        workspace.environment = environment | {"PYTHONPATH": str(tmp_path)}

    yield install
    workspace.environment = environment


def test_upgrade_of_an_inference_dependency_reruns_inference(workspace, install_version):
    install_version("tokenizers", "0.23.99")
    planned = workspace.planned_jobs()
    assert planned["infer"] == planned["collect"] == 2
    assert "items" not in planned
    assert "requests" not in planned


def encoder_specs(workspace) -> dict:
    """Return what the encoders of the config depend on, by name."""
    workspace.write_config()
    loaded = load([workspace.directory / "config.yaml"])
    return {name: encoder_spec(loaded, name) for name in loaded.encoders}


def test_changing_similarity_metrics_or_encoders_reruns_no_inference(workspace, config):
    of_encoder = encoder_specs(workspace)
    config["similarity"] = config["similarity"] | {"metrics": ["cosine", "bertscore"]}
    assert encoder_specs(workspace) == of_encoder, "a metric alone plans no encoder"
    encoders = {"gl": "./masked", "default": "./encoder"}
    config["similarity"] = {"metrics": ["cosine", "bertscore"], "encoders": encoders}
    planned = workspace.planned_jobs()
    assert set(planned) <= {"encoder", "similarity", "metrics", "export"} | AFTER_METRICS
    assert planned["similarity"] == 2
    assert planned["encoder"] == 1


def test_adding_a_comparison_reruns_no_inference(workspace, config):
    config["comparisons"] = ["all_pairs", {"baseline": "other", "candidate": "tiny"}]  # by default, tiny with other
    planned = workspace.planned_jobs()
    assert planned
    assert set(planned) <= AFTER_METRICS


def test_only_a_model_with_changed_weights_is_evaluated_again(workspace):
    weights = workspace.directory / "other" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-4] + b"\0\0\0\0")
    planned = workspace.planned_jobs()
    weights.write_bytes(content)
    assert planned["model"] == planned["infer"] == 1


JUDGED, UNJUDGED = "results/tiny/metrics.parquet", "results/other/metrics.parquet"


def test_judge_plans_jobs_of_the_judged_model_only_and_changes_no_stored_output(workspace, config):
    rubric = {"template": "{prompt}\n{response}\n{scale}", "scale": {"boa": 1, "mala": 0}}
    (workspace.directory / "tone").mkdir()
    (workspace.directory / "tone" / "gl.yaml").write_text(yaml.safe_dump(rubric, sort_keys=False))
    entry = {"model": "other", "rubric": "./tone", "read": "log_probabilities"}
    files = {path: path.read_bytes() for path in (workspace.directory / "results" / "store").rglob("*.parquet")}
    config["judges"] = {"tone": entry}
    planned = workspace.planned_jobs()
    added = {name: planned.pop(name) for name in ("judge_requests", "judge", "judge_collect", "metrics")}
    assert added == dict.fromkeys(added, 1)
    assert set(planned) <= AFTER_METRICS
    run = workspace.run(JUDGED, UNJUDGED)
    assert run.returncode == 0, output_tail(run)
    assert "infer: other: 1 evaluation computed" in (workspace.directory / "logs/judge/tone/tiny.log").read_text()
    after = {path: path.read_bytes() for path in (workspace.directory / "results" / "store").rglob("*.parquet")}
    assert after.items() >= files.items()
    assert len(after) == len(files) + 1
    values = artifacts.read(workspace.directory / JUDGED, METRICS).to_pandas()
    judged = values[values["metric"] == "judge_tone_unvalidated"]
    assert judged["evaluation"].to_list() == ["openbookqa.gl.generation.0shot"]
    others = artifacts.read(workspace.directory / UNJUDGED, METRICS).to_pandas()
    assert not others["metric"].str.startswith("judge").any()
    assert set(workspace.planned_jobs()) <= AFTER_METRICS


OPTIONS = [{**EVALUATIONS[0], "protocols": ["options"]}]


def test_more_shards_and_a_removed_task_recompute_nothing_and_files_of_the_task_are_kept(workspace, config):
    config["models"]["tiny"]["shards"] = 3
    config["evaluations"] = OPTIONS
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    logs = [(workspace.directory / "logs" / "infer" / f"tiny.{k}of3.log").read_text() for k in (1, 2, 3)]
    logs += [path.read_text() for path in (workspace.directory / "logs" / "infer").glob("other.*log")]
    assert len(logs) == 4
    assert not any("computed" in log for log in logs)
    assert set(workspace.results()["evaluation"]) == {"openbookqa.gl.options.0shot"}
    assert (workspace.directory / "results" / "tiny" / "tasks" / "openbookqa.gl.generation.0shot.parquet").exists()


def test_results_of_different_versions_in_one_summary_are_noted(workspace, config, set_version, monkeypatch):
    """The stages of an added model run in this process, after an upgrade."""
    config["models"]["third"] = {"source": "./causal", "dtype": "float32", "bos": "never"}
    config["evaluations"] = OPTIONS
    workspace.write_config()
    monkeypatch.chdir(workspace.directory)
    set_version("tokenizers", "0.23.99")
    run = Run(load(["config.yaml"]))
    engine_version.cache_clear()
    try:
        assert [run(command, "third") for command in ("model", "infer", "collect", "metrics")] == [0] * 4
        assert run("compare") == run("changes") == run("summary") == 0
    finally:
        engine_version.cache_clear()
    notes = workspace.notes().query("kind == 'mixed versions'")
    assert list(notes["count"]) == [1]
    assert "tiny, other: " in notes["note"].iloc[0]
    assert "third: " in notes["note"].iloc[0]


def planned(workspace, *arguments: str) -> subprocess.CompletedProcess:
    """Plan with the config and the directory of the workspace in a fresh clone."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "snakemake", "-n", *arguments, "--directory", str(workspace.directory)]
    command += ["--configfile", str(workspace.directory / "config.yaml")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, output_tail(run)
    return run


MODEL = ["resources/models/tiny.json", "--forcerun", "model", "-p"]


@pytest.mark.parametrize("profile", ["--profile slurm", "--profile profiles/slurm", "--workflow-profile slurm"])
def test_cluster_profile_of_a_fresh_clone_is_found_by_path_and_by_name(workspace, profile):
    run = planned(workspace, *MODEL, *profile.split())
    assert re.search(rf"[Uu]sing .*\b{profile.split()[1]}\b", run.stderr), output_tail(run)
    assert tries(run) == {"1of3"}, output_tail(run)


@pytest.mark.parametrize(("arguments", "label"), [([], "1of1"), (["--retries", "2"], "1of3")])
def test_jobs_are_told_how_often_they_are_tried(workspace, arguments, label):
    run = planned(workspace, *MODEL, "--cores", "1", *arguments)
    assert tries(run) == {label}, output_tail(run)


def tries(run: subprocess.CompletedProcess) -> set[str]:
    """Return what the planned jobs are told of their tries."""
    return set(re.findall(r'"attempt": "(\w+)"', run.stdout + run.stderr))
