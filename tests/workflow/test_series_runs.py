"""Runs with a series of checkpoints: one that is added, one that is deleted, and the tables of curves.

The tests run in file order and continue in one workspace. What Snakemake plans is tested with its first run; later stages
run in this process.
"""

import shutil

import pandas as pd
import pytest
from support import tiny
from support.workspace import Workspace, output_tail
from vernacular.config.directories import clear_unavailable
from vernacular.core import artifacts

pytestmark = pytest.mark.slow

EVALUATION = "openbookqa.gl.options.0shot"
LATER = "calame.gl.last_word.0shot"
AFTER_METRICS = {"changes", "compare", "curves", "summary", "report", "finish", "all"}


def save_checkpoint(workspace: Workspace, step: int) -> None:
    directory = workspace.directory / "out" / f"checkpoint-{step}"
    tokenizer = tiny.tokenizer("prepend")
    tiny.model("llama", len(tokenizer), seed=step).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("series"), [])
    workspace.config["evaluations"] = [{"task": "openbookqa", "languages": ["gl"], "protocols": ["options"]}]
    workspace.config["models"] = {"mine": {"series": "./out/checkpoint-*", "dtype": "float32", "tokens_per_step": 64}}
    for step in (2, 10):
        save_checkpoint(workspace, step)
    assert workspace.run_stages() == 0
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    assert "For models of this size" in (workspace.directory / "logs" / "curves" / "curves.log").read_text()
    return workspace


def test_each_checkpoint_is_a_row_with_its_position(workspace):
    results = workspace.results().query("metric == 'accuracy' and category == ''")
    columns = ["model", "series", "curve", "step", "tokens"]
    assert results[columns].to_numpy().tolist() == [
        [f"mine.step{step}", "mine", "mine", step, 64 * step] for step in (2, 10)
    ]
    wide = pd.read_csv(workspace.directory / "results" / "summary" / "wide.csv")
    assert wide["step"].tolist() == [2, 10]
    points = pd.read_csv(workspace.directory / "results" / "summary" / "curves.csv")
    points = points.query("metric == 'accuracy' and category.isna()")
    assert points["value"].tolist() == results["value"].tolist()
    assert points["checkpoint"].tolist() == ["checkpoint-2", "checkpoint-10"]


def test_adding_a_checkpoint_plans_one_inference_job_and_deleting_another_none(workspace):
    assert workspace.planned_jobs() == {}
    save_checkpoint(workspace, 20)
    shutil.rmtree(workspace.directory / "out" / "checkpoint-2")
    run = workspace.run("-n")
    planned = workspace.jobs(run)
    once = {"model", "infer", "collect", "metrics", "export"}
    assert {rule: planned[rule] for rule in planned if rule in once and rule != "export"} == {
        "model": 1, "infer": 1, "collect": 1, "metrics": 1
    }  # fmt: skip
    assert "model: fetch mine.step20" in run.stdout + run.stderr
    assert set(planned) <= once | AFTER_METRICS


def test_deleted_checkpoint_keeps_its_results_and_a_later_evaluation_is_a_gap_and_no_failure(workspace):
    before = workspace.results().query("model == 'mine.step2'")
    workspace.config["evaluations"].append({"task": "calame", "languages": ["gl"], "protocols": ["last_word"]})
    assert workspace.run_stages() == 0
    results = workspace.results()
    assert sorted(results["step"].unique()) == [2, 10, 20]
    after = results.query("model == 'mine.step2'")
    pd.testing.assert_frame_equal(after.reset_index(drop=True), before.reset_index(drop=True))
    notes = workspace.notes().query("model == 'mine.step2'")
    notes = notes[notes["kind"] != "diagnosis"]
    assert notes["kind"].tolist() == ["not applicable"]
    assert notes["note"].tolist() == ["the checkpoint was deleted before this evaluation"]
    results = workspace.results().query("category == ''")
    assert set(results.query("model == 'mine.step2'")["evaluation"]) == {EVALUATION}
    points = artifacts.metadata(workspace.directory / "results" / "summary" / "curves.parquet")
    assert LATER in points["sentence"]


def test_restored_checkpoint_is_evaluated(workspace):
    save_checkpoint(workspace, 2)
    clear_unavailable(workspace.directory / "resources", workspace.directory / "results")  # as at the end of a run
    assert workspace.run_stages() == 0
    assert set(workspace.results().query("model == 'mine.step2'")["evaluation"]) == {EVALUATION, LATER}
    assert clear_unavailable(workspace.directory / "resources", workspace.directory / "results") == []
