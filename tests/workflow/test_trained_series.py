"""A real series: eight checkpoints of a tiny model trained here, through all stages.

The stages run in this process, in the order of the rules; the tests run in file order.
"""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import series_training
from support.series_training import EVALUATION, STEPS, TASK
from support.stage_run import Run
from vernacular.checkpoints.inputs import DELETED_REASON
from vernacular.config import load as config
from vernacular.core import artifacts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Train the series, evaluate it, and return its directory, which is the working directory of all tests."""
    directory = tmp_path_factory.mktemp("trained")
    previous = os.getcwd()
    os.chdir(directory)
    series_training.copy_trained(tmp_path_factory, directory / "out")
    series_training.write_pairs(directory / "pairs.jsonl")
    (directory / "grammar.yaml").write_text(yaml.safe_dump(TASK))
    content = {
        "models": {
            "mine": {"series": "./out/checkpoint-*", "dtype": "float32", "device": "cpu", "tokens_per_step": 512}
        },
        "tasks": ["."],
        "evaluations": [{"task": "grammar", "data": "hub"}],
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    evaluate()
    yield directory
    os.chdir(previous)


def evaluate() -> None:
    """Run all stages with the current config."""
    assert Run(config.load(["config.yaml"])).run_all() == 0


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(Path("results/summary", f"{name}.csv"))


def test_the_curve_rises_and_the_task_is_useful(workspace):
    statistics = table("curve_statistics").query("category.isna() and metric == 'accuracy'")
    (row,) = statistics.to_dict("records")
    assert row["n_checkpoints"] == len(STEPS)
    assert row["last"] > 0.9
    assert row["first"] < 0.75
    assert row["above_chance_since"] in STEPS
    assert row["learned_50"] <= row["learned_90"] <= STEPS[-1]
    assert row["monotonicity"] > 0.5
    points = table("curves").query("category.isna() and metric == 'accuracy'")
    assert points["step"].tolist() == list(STEPS)
    assert points["tokens"].tolist() == [512 * step for step in STEPS]
    results = table("results").query("category.isna() and metric == 'accuracy'").sort_values("step")
    assert points["value"].tolist() == results["value"].tolist()
    (trust,) = table("task_trust").query("metric == 'accuracy'").to_dict("records")
    assert trust["verdict"] == "useful"
    sentence = artifacts.metadata(workspace / "results" / "summary" / "task_trust.parquet")["sentence"]
    assert f"look at {EVALUATION}" in sentence
    assert (workspace / "results" / "report" / "data" / "e0" / "curves.js").exists()


def test_deleted_checkpoint_keeps_its_results(workspace):
    """The jobs that Snakemake plans are tested in test_series_runs."""
    before = table("results")
    shutil.move("out/checkpoint-1", "elsewhere")
    evaluate()
    pd.testing.assert_frame_equal(table("results"), before)
    content = yaml.safe_load(Path("config.yaml").read_text())
    content["evaluations"] = [
        {"task": "grammar", "data": "hub"},
        {"task": "cola", "languages": ["gl"], "data": "samples"},
    ]
    Path("config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    evaluate()
    notes = table("notes").query("kind == 'not applicable'")
    assert notes["note"].tolist() == [DELETED_REASON]
    assert notes["models"].tolist() == ["mine.step1"]
    after = table("results").query(f"evaluation == '{EVALUATION}'").reset_index(drop=True)
    pd.testing.assert_frame_equal(after, before)
    gaps = table("curves").query("task == 'cola' and step == 1")
    assert gaps["value"].isna().all()
    assert set(gaps["note"]) == {DELETED_REASON}
