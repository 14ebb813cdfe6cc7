"""Command `curves` on a task of lm-eval: the results define its metrics, and a checkpoint without results is a gap."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import stages
from support.result_rows import EVALUATION, row
from vernacular.core import artifacts
from vernacular.core.metadata import unavailable
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.protocols.evaluate import label_values
from vernacular.protocols.lm_eval.metrics import to_metric

N = 200
NAME = "arc_gl.gl.lm_eval.0shot"
SETTING = {key: value for key, value in EVALUATION.items() if key != "evaluation"} | {
    "task": "arc_gl",
    "protocol": "lm_eval",
}
COMMON = {"metric_group": "surprisal", "about": "of lm-eval", "headline": True}
DEFINITIONS = [
    COMMON | {"name": "acc", "unit": "share", "higher_is_better": True, "proportion": True, "corpus": None, "needs": []},
    COMMON | {"name": "mcc", "unit": "score", "higher_is_better": True, "proportion": False,
              "corpus": "matthews_corrcoef", "needs": ["gold", "predicted"]},
]  # fmt: skip
SHARES = {100: 0.5, 200: 0.6, 300: None, 400: 0.75, 500: 0.9}


def write_results(model: str, share: float | None) -> None:
    """Write the results of a checkpoint that answers this share of the items correctly; None: lm-eval failed."""
    rows, note = [], {"outcome": unavailable("lm-eval stopped")}
    if share is not None:
        correct = np.random.default_rng(0).permutation(N) < share * N
        gold = np.arange(N) % 2
        predicted = np.where(correct, gold, 1 - gold)
        columns = zip(correct.tolist(), gold.tolist(), predicted.tolist(), strict=True)
        rows = [
            row(f"i{i}") | {"metrics": {"acc": float(c), "gold": float(g), "predicted": float(p)}}
            for i, (c, g, p) in enumerate(columns)
        ]
        note = {"metrics": DEFINITIONS}
    artifacts.write(
        Path("results", model, "tasks", f"{NAME}.parquet"), TASK_RESULTS, rows, {"fingerprint": model, **note}
    )
    values = aggregate(rows, [to_metric(d) for d in DEFINITIONS], seed=0, categories=True) if rows else []
    labels = dict.fromkeys(METRICS.schema.names) | SETTING | {"model": model, "evaluation": NAME}
    metadata = {"fingerprint": model, "record": {"name": model, "parameters": 135_000_000}, "evaluations": {NAME: note}}
    artifacts.write(Path("results", model, "metrics.parquet"), METRICS, label_values(values, labels, {}), metadata)


@pytest.fixture
def summary(tmp_path, monkeypatch) -> Path:
    """The directory of the tables of a series with a checkpoint for each of `SHARES`."""
    monkeypatch.chdir(tmp_path)
    checkpoints = []
    for step, share in SHARES.items():
        model = f"mine.step{step}"
        position = {"name": f"checkpoint-{step}", "step": step, "tokens": None, "words": None}
        checkpoints.append({"model": model, "series": "mine", "curve": "mine", **position})
        write_results(model, share)
    spec = {"evaluations": {NAME: SETTING}, "checkpoints": checkpoints}
    assert stages.run("curves", spec=spec, results="results", out="summary") == 0
    return Path("summary")


def test_metrics_of_lm_eval_have_curves(summary):
    points = pd.read_csv(summary / "curves.csv")
    accuracy = points.query("metric == 'acc'")
    assert accuracy["step"].tolist() == list(SHARES)
    assert accuracy["value"].tolist() == pytest.approx([share or np.nan for share in SHARES.values()], nan_ok=True)
    assert accuracy["note"].fillna("").tolist() == ["", "", "lm-eval stopped", "", ""]
    assert accuracy["last_difference"].tolist() == pytest.approx([-0.4, -0.3, np.nan, -0.15, np.nan], nan_ok=True)
    statistics = pd.read_csv(summary / "curve_statistics.csv").set_index("metric")
    assert set(statistics.index) == {"acc", "mcc"}
    assert statistics.loc["acc", ["last", "n_checkpoints", "n_missing", "above_chance_since"]].tolist() == [
        0.9,
        4,
        1,
        200,
    ]
    assert statistics.loc["mcc", "last"] == pytest.approx(0.8, abs=0.02)
    assert statistics.loc["mcc", "last_low"] < statistics.loc["mcc", "last"] < statistics.loc["mcc", "last_high"]


def test_the_sentence_on_tasks_includes_those_of_lm_eval(summary):
    trust = pd.read_csv(summary / "task_trust.csv")
    assert trust["verdict"].tolist() == ["not judged", "not judged"]
    sentence = artifacts.metadata(summary / "task_trust.parquet")["sentence"]
    assert (
        sentence
        == f"For models of this size (135M parameters): no verdict (fewer than 5 checkpoints or 100 items) on {NAME}."
    )
