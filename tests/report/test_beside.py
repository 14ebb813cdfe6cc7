"""What stands beside the values of a run: values of others, metrics that decide, choices within float noise."""

import json
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
import yaml
from support import tiny
from support.stage_run import Run
from vernacular import results
from vernacular.config.load import load

ID = "rivers.gl.options.0shot"


def stated(revision: str, perturbation: str = "") -> dict:
    """A record of Every Eval Ever of the same items."""
    source = {"hf_repo": "gl.jsonl", "hf_split": "gl", "additional_details": {"revision": revision}}
    uncertainty = {"standard_error": {"value": 0.02, "method": "analytic"}, "num_samples": 120}
    score = {"score": 0.6, "uncertainty": uncertainty, "details": {"perturbation": perturbation}}
    result = {"evaluation_name": "rivers", "source_data": source, "score_details": score}
    result |= {
        "metric_config": {"metric_name": "accuracy"},
        "generation_config": {"additional_details": {"shots": "0"}},
    }
    return {
        "model_info": {"name": "org/other"},
        "eval_library": {"name": "helm", "version": "1"},
        "evaluation_results": [result],
    }


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"q": f"río {i}?", "gold": i % 5} | {x: x for x in "abcde"} for i in range(120)]
    Path("gl.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    task = {"task": "rivers", "protocols": ["options"], "item_type": "question"}
    task["columns"] = {"question": "q", "choices": list("abcde"), "gold": "gold", "gold_format": "index"}
    task["languages"] = {"gl": {"source": {"file": "gl.jsonl", "split": "gl"}}}
    Path("rivers.yaml").write_text(yaml.safe_dump(task))
    for name, kind in (("one", "llama"), ("two", "gpt2")):
        tiny.save(kind, Path(name))
    return tmp_path


def run(**changes) -> None:
    evaluations = [{"task": "rivers", "data": "hub", "languages": ["gl"], "protocols": ["options"]}]
    models = {name: {"source": f"./{name}", "dtype": "bfloat16"} for name in ("one", "two")}
    values = {"models": models, "evaluations": evaluations, "tasks": ["."]}
    Path("config.yaml").write_text(yaml.safe_dump(values | changes))
    assert Run(load(["config.yaml"])).run_all() == 0


def test_the_report_shows_what_stands_beside(workspace, run_report):
    run()
    before = results.values("results")
    Path("others").mkdir()
    revision = before["dataset_revision"].iloc[0]
    for number, content in enumerate((stated(revision), stated(revision, "typos"), stated("another"))):
        Path("others", f"{number}.json").write_text(json.dumps(content))
    run(external_results={"others": {"path": "others"}},
        comparisons=[{"baseline": "one", "candidate": "two"}, {"baseline": "one", "candidate": "others"}])  # fmt: skip
    unpaired = pd.read_csv("results/summary/unpaired.csv")
    assert unpaired["items"].tolist() == ["same items", "other items", "other items"]
    same = unpaired.iloc[0]
    assert same["difference"] == pytest.approx(same["value"] - 0.6)
    assert unpaired["note"].iloc[1] == "HELM's items, changed: typos"
    assert unpaired["note"].iloc[2].startswith("dataset revision: another, here")
    assert results.values("results")["value"].equals(before["value"]), "nothing ranks them"
    assert set(pd.read_csv("results/summary/rankings.csv")["model"]) == {"one", "two"}

    deciding = results.deciding_metrics("results")
    assert set(deciding["axis"]) == {"item"}
    assert set(deciding["n_common"]) <= {120, 0}
    book = openpyxl.load_workbook("results/summary/leaderboard.xlsx")
    assert book["deciding metrics"].max_row == deciding["decision_accuracy"].count() + 1
    assert book["unpaired"].max_row == 4

    items = {name: results.items("results", name, ID).set_index("item_id") for name in ("one", "two")}
    noisy = {name: table.index[table["within_noise"] == 1] for name, table in items.items()}
    n_noisy = sum(map(len, noisy.values()))
    assert n_noisy, "bfloat16 has noise"
    notes = pd.read_csv("results/summary/notes.csv").query("kind == 'float noise'")
    assert notes["count"].sum() == n_noisy

    page = run_report(Path("results/report").resolve())
    page.open("#/overview")
    assert f"Float noise can change {n_noisy} choice" in page.text("main")
    name = next(name for name in noisy if len(noisy[name]))
    page.open(f"#/item/{ID}/{name}/{noisy[name][0]}")
    assert "float noise can change this choice" in page.text(".verdict")
    other = next(item for item in items[name].index if item not in noisy[name])
    page.open(f"#/item/{ID}/{name}/{other}")
    assert "float noise" not in page.text(".verdict")
    page.open("#/leaderboard")
    assert "Values of others, unpaired: 3" in page.text("main")
    assert "Which metric decides" in page.text("main")
    page.open(f"#/task/{ID}")
    assert "Values of others, unpaired: 1" in page.text("main")


def test_without_anything_beside_there_is_no_line(workspace, run_report):
    run(models={"one": {"source": "./one", "dtype": "float32"}})
    page = run_report(Path("results/report").resolve())
    for view in ("#/overview", "#/leaderboard", f"#/task/{ID}"):
        page.open(view)
        text = page.text("main")
        assert "Values of others" not in text
        assert "Which metric decides" not in text
    assert "deciding metrics" not in openpyxl.load_workbook("results/summary/leaderboard.xlsx").sheetnames
    assert len(results.deciding_metrics("results")) == 0
