"""A real series: eight checkpoints of a tiny model trained here, through all stages, and the jobs that Snakemake plans.

The stages run in this process, in the order of the rules; the tests run in file order.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import series_training
from support.series_training import STEPS
from support.stage_run import Run
from support.workspace import ROOT, RULES, output_tail
from vernacular.checkpoints.inputs import DELETED_REASON
from vernacular.config import load as config
from vernacular.core import artifacts

pytestmark = pytest.mark.slow

TASK = {
    "task": "grammar",
    "protocols": ["minimal_pair"],
    "item_type": "pair",
    "columns": {"good": "good", "bad": "bad", "category": "phenomenon", "cluster": "frame"},
    "languages": {"gl": {"source": {"file": "pairs.jsonl"}}},
}
EVALUATION = "grammar.gl.minimal_pair.0shot"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Train the series, evaluate it, and return its directory, which is the working directory of all tests."""
    directory = tmp_path_factory.mktemp("trained")
    previous = os.getcwd()
    os.chdir(directory)
    series_training.train(directory / "out")
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
    run = Run(config.load(["config.yaml"]))
    assert run("items") == run("requests") == 0
    for model in run.config.models:
        for command in ("model", "infer", "collect", "metrics"):
            assert run(command, model) == 0
    for command in ("compare", "curves", "summary", "report", "verify"):
        assert run(command) == 0


def planned_jobs() -> dict[str, int]:
    """Return the jobs that Snakemake plans, by rule."""
    command = [sys.executable, "-m", "snakemake", "-n", "-c2", "--snakefile", str(ROOT / "Snakefile")]
    command += ["--workflow-profile", str(ROOT / "profiles" / "default"), "--rerun-triggers", "mtime"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    subprocess.run(command, capture_output=True, check=False, env=environment)  # creates .snakemake
    os.utime(".snakemake", (0, 0))  # as if its records, which this process does not write, were older than the results
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, output_tail(run)
    started = re.findall(r"^(\w+): ", run.stdout + run.stderr, re.MULTILINE)
    return dict(Counter(rule for rule in started if rule in RULES))


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


def test_adding_a_checkpoint_plans_one_inference_job(workspace):
    shutil.copytree("out/checkpoint-200", "out/checkpoint-240")
    planned = planned_jobs()
    assert {rule: planned.get(rule) for rule in ("model", "infer", "collect", "metrics")} == {
        "model": 1, "infer": 1, "collect": 1, "metrics": 1
    }  # fmt: skip
    assert not {"items", "requests"} & set(planned)
    shutil.rmtree("out/checkpoint-240")


def test_deleted_checkpoint_plans_nothing_and_keeps_its_results(workspace):
    before = table("results")
    shutil.move("out/checkpoint-1", "elsewhere")
    planned = planned_jobs()
    assert not {"model", "infer", "collect", "metrics", "curves", "summary"} & set(planned), planned
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
