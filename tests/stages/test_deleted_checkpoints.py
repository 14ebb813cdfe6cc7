"""Commands on a checkpoint of a series that was deleted: its record and its results remain."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support import stages, tiny
from support.hub_server import environment
from support.stage_run import Run
from vernacular import cli
from vernacular.checkpoints.inputs import DELETED_REASON, deleted, is_deleted
from vernacular.config import load as config
from vernacular.config.directories import clear_unavailable
from vernacular.core.model_record import (
    AdapterRecord,
    Listing,
    ModelRecord,
    read_model,
    read_record,
    write_model,
    write_status,
)
from vernacular.stages.fetch import model

CONFIG = "models:\n  {series}\nevaluations:\n  - {{task: cola, languages: [gl], data: samples}}\n"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Record a checkpoint; return a function that runs the command again with changes of the spec."""
    monkeypatch.chdir(tmp_path)
    tiny.save("llama", Path("out/checkpoint-5"))
    path = Path("resources/models/mine.step5.json")
    path.parent.mkdir(parents=True)

    def run(**changes) -> ModelRecord:
        spec = {"name": "mine.step5", "source": "./out/checkpoint-5", "kind": "auto", "allow_pickle": False}
        model(stages.arguments(model, spec=spec | {"files": "key", "checkpoint": True} | changes, out=path))
        return read_model(path)

    run()
    return run


def test_record_of_a_deleted_checkpoint_is_written_again_from_its_copy(recorded):
    before = recorded()
    assert not is_deleted(before)
    shutil.rmtree("out/checkpoint-5")
    assert is_deleted(before)
    Path("resources/models/mine.step5.json").unlink()  # as Snakemake does before it runs the rule again
    assert recorded(files="later") == before | {"files_key": "later"}


def test_deleted_model_of_no_series_is_unavailable(recorded):
    shutil.rmtree("out/checkpoint-5")
    assert "not found: ./out/checkpoint-5" in recorded(checkpoint=False).unavailable


def test_damaged_checkpoint_is_unavailable_and_not_deleted(recorded):
    Path("out/checkpoint-5/config.json").write_text("{")
    assert "config.json" in recorded().unavailable


def test_adapter_of_another_base_does_not_keep_its_results(recorded, tmp_path):
    base = recorded() | {"name": "base"}
    write_model("resources/models/base.json", base)
    listing = Listing(str(tmp_path / "gone"), {"adapter_model.safetensors": {"sha256": "a"}})
    adapter = AdapterRecord("./gone", "gone", None, "LORA", 4, False, False, listing)
    known = base | {"name": "gl.step5", "base": "base", "adapter": adapter}
    Path("resources/models/.known").mkdir(exist_ok=True)
    write_model("resources/models/.known/gl.step5.json", known)
    spec = {"name": "gl.step5", "adapter": "./gone", "allow_pickle": False, "allow_base_mismatch": False}
    files = {"out": "resources/models/gl.step5.json", "base": "resources/models/base.json"}
    args = stages.arguments(model, spec=spec | {"checkpoint": True}, **files)
    model(args)
    assert read_model(args.out).adapter == adapter
    contents = replace(base.contents, files={"model.safetensors": {"sha256": "other"}})
    write_model("resources/models/base.json", base | {"contents": contents})
    model(args)
    assert read_model(args.out).unavailable


def test_missing_evaluations_of_a_restored_checkpoint_are_computed_by_the_next_run(recorded):
    recorded()
    evaluation = "cola.gl.acceptability.0shot"
    status = Path("results/inference_status/mine.step5/1of1.json")
    status.parent.mkdir(parents=True)
    write_status(status, {"mine.step5": {evaluation: deleted(recorded())}})
    shutil.move("out/checkpoint-5", "elsewhere")
    assert clear_unavailable(Path("resources"), Path("results")) == []
    shutil.move("elsewhere", "out/checkpoint-5")
    assert clear_unavailable(Path("resources"), Path("results")) == [status]


def test_check_notes_deleted_checkpoints(recorded, capsys):
    tiny.save("llama", Path("out/checkpoint-9"))
    scores = Path("results/mine.step5/scores/cola.gl.acceptability.0shot.parquet")
    scores.parent.mkdir(parents=True)
    scores.touch()
    shutil.rmtree("out/checkpoint-5")
    Path("config.yaml").write_text(CONFIG.format(series='mine: {series: "./out/checkpoint-*"}'))
    assert cli.main(["check"]) == 0
    assert "Note: model mine.step5: ./out/checkpoint-5 was deleted; its results are kept." in capsys.readouterr().out


def test_revisions_lists_branches_of_the_hub(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hub.add("org/run", {"config.json": "{}"})
    for step in (1000, 9000, 10000):
        hub.repositories["org/run"].push({"config.json": json.dumps({"step": step})}, branch=f"step{step}")
    Path("config.yaml").write_text(CONFIG.format(series='run: {source: org/run, revisions: "step*"}'))
    command = [sys.executable, "-m", "vernacular", "revisions"]
    variables = environment(hub.address, tmp_path / "hf")
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "run: 4 revisions of org/run" in run.stdout
    cfg = config.load(["config.yaml"])
    assert [settings["source"] for settings in cfg.models.values()] == [
        "org/run@step1000", "org/run@step9000", "org/run@step10000"
    ]  # fmt: skip
    assert read_record("resources/series/run.json")["revisions"]["step1000"] in hub.repositories["org/run"].commits
    Path("config.yaml").write_text(CONFIG.format(series='run: {source: org/nothing, revisions: "step*"}'))
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert run.returncode == 1
    assert "org/nothing: revisions cannot be listed (HTTP 404)" in run.stderr


@pytest.mark.parametrize("recorded_before", [False, True])
def test_checkpoint_that_is_deleted_before_its_first_evaluation_does_not_stop_others(
    tmp_path, monkeypatch, recorded_before
):
    """Between planning and its record, or between its record and its inference job."""
    monkeypatch.chdir(tmp_path)
    for step in (5, 9):
        tiny.model("llama", len(tiny.tokenizer("prepend")), seed=step).save_pretrained(f"out/checkpoint-{step}")
        tiny.tokenizer("prepend").save_pretrained(f"out/checkpoint-{step}")
    Path("config.yaml").write_text(CONFIG.format(series='mine: {series: "./out/checkpoint-*", dtype: float32}'))
    run = Run(config.load(["config.yaml"]))
    planned = {name: run.model(name) for name in run.config.models}
    assert run("items") == run("requests") == 0
    if not recorded_before:
        shutil.rmtree("out/checkpoint-5")
    for name, fields in planned.items():
        assert stages.run("model", **fields) == 0, name
    if recorded_before:
        shutil.rmtree("out/checkpoint-5")
    for name in run.config.models:
        for command in ("infer", "collect", "metrics"):
            assert run(command, name) == 0
    for command in ("compare", "changes", "curves", "summary"):
        assert run(command) == 0
    notes = pd.read_csv("results/summary/notes.csv").query("models == 'mine.step5'")
    assert notes["note"].tolist() == [
        DELETED_REASON if recorded_before else "./out/checkpoint-5 was deleted before its first evaluation"
    ]
    points = pd.read_csv("results/summary/curves.csv").query("category.isna() and metric == 'auc'")
    assert points["value"].isna().tolist() == [True, False]
    assert points["note"].fillna("").tolist() == [notes["note"].item(), ""]
