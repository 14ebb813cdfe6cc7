"""Options without their question: requests, metrics, and what a run shows of them."""

import json
import math
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
import yaml
from support import tiny
from support.messages import assert_states
from support.scoring import build_requests, item, results_of, score_rows
from support.stage_run import Run
from vernacular import cli
from vernacular.config.load import load
from vernacular.core.errors import ConfigError
from vernacular.stages import print_results as stage

QUESTION = item(question="Which?", context="A passage.", choices=["a", "b", "c", "d"], gold=[1])
TASK = {
    "task": "rivers",
    "protocols": ["letters"],
    "item_type": "question",
    "columns": {"id": "id", "question": "q", "choices": ["a", "b", "c"], "gold": "gold", "gold_format": "index"},
    "languages": {"gl": {"source": {"file": "rivers.jsonl"}}},
}
ALONE = "rivers.gl.letters.0shot.options-only"
N = 110


def test_the_prompt_has_the_options_and_the_cue_alone():
    requests = build_requests([QUESTION], "passage", "letters", style="options-only", option_rotations=4)
    assert [row["role"] for row in requests] == [f"uncond:{i}" for i in range(4)]
    assert {row["text"] for row in requests} == {f"A. a\nB. b\nC. c\nD. d\nResposta: {letter}" for letter in "ABCD"}
    assert {row["messages"][-1]["content"] for row in requests} == {"A. a\nB. b\nC. c\nD. d\nResposta:"}
    english = build_requests([QUESTION], "passage", "letters", style="english-options-only")
    assert english[0]["text"] == "A. a\nB. b\nC. c\nD. d\nAnswer: A"
    nothing = build_requests([QUESTION | {"question": "", "context": ""}], "passage", "letters", style="options-only")
    assert [row["role"] for row in nothing] == ["skipped: neither context nor question"]


def test_the_only_metric_is_not_the_accuracy_of_the_task():
    requests = build_requests([QUESTION], "passage", "letters", style="options-only")
    [row] = results_of("letters", [QUESTION], requests, score_rows(requests, {"uncond:1": -1.0, "uncond:2": -2.0}))
    assert row["metrics"] == {"accuracy_uncond": 1.0, "margin": pytest.approx(1.0)}
    assert (row["prediction"], row["correct"], row["prompt"]) == ("B", True, "A. a\nB. b\nC. c\nD. d\nResposta:")
    [row] = results_of("letters", [QUESTION], requests, score_rows(requests, {"uncond:1": -1.0, "uncond:2": -1.0}))
    assert row["metrics"] == {"accuracy_uncond": 0.0, "tie:accuracy_uncond": 1.0, "margin": 0.0}
    [row] = results_of("letters", [QUESTION], requests, score_rows(requests, {"uncond:1": math.nan}))
    assert (row["metrics"], row["correct"]) == ({}, None)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"q{i}", "q": f"River {i}?", "gold": i % 3} | {x: f"{x}{i}" for x in "abc"} for i in range(N + 4)]
    Path("rivers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    Path("rivers.yaml").write_text(yaml.safe_dump(TASK))


def configure(*entries: dict, **settings):
    models = {name: {"source": f"./{name}", "dtype": "float32", "device": "cpu"} for name in ("one", "two")}
    evaluations = [{"task": "rivers", "data": "hub"} | entry for entry in entries]
    content = {"models": models, "tasks": ["."], "evaluations": evaluations, "audit": {}} | settings
    Path("config.yaml").write_text(yaml.safe_dump(content))
    return load(["config.yaml"])


def test_it_has_no_examples_seeds_and_prompts(workspace):
    entry = {"styles": ["default", "options-only"], "shots": [0, 5], "seeds": [0, 1], "prompts": ["default", "formal"]}
    names = list(configure(entry).evaluations)
    assert [name for name in names if "options-only" in name] == [ALONE]
    assert len(names) == 1 + 2 + 4 + 2
    for key, value in (("shots", 5), ("prompts", "all")):
        with pytest.raises(ConfigError) as raised:
            configure({"styles": "options-only", key: value})
        assert_states(raised.value, key, "options-only", f"remove {key}")


def test_a_run_shows_it_beside_the_value_of_the_task(workspace, capsys):
    """The question is not scored with it: no mean, rank, cell of the leaderboard or row of an audit list."""
    for name, kind in (("one", "llama"), ("two", "gpt2")):
        tiny.save(kind, name)
    tables = {}
    for styles in (["default"], ["options-only", "default"]):
        assert Run(configure({"styles": styles, "shots": [0, 2]})).run_all(exports=True) == 0
        tables[len(styles)] = {path.name: pd.read_csv(path) for path in Path("results/summary").glob("*.csv")}
    before, after = tables[1], tables[2]
    results = after["results.csv"]
    alone = results[results["evaluation"] == ALONE]
    assert alone["metric"].tolist() == ["accuracy_uncond"] * 2
    assert not alone["headline"].any()
    assert (alone["n"] == N + 4).all()
    assert alone["chance_level"].tolist() == pytest.approx([1 / 3] * 2)
    pd.testing.assert_frame_equal(results[results["evaluation"] != ALONE].reset_index(drop=True), before["results.csv"])
    for name in ("rankings.csv", "overall.csv", "audit.csv"):
        pd.testing.assert_frame_equal(after[name], before[name])
    compared = after["comparisons.csv"]
    assert not compared[compared["evaluation"] == ALONE]["headline"].any()
    book = openpyxl.load_workbook("results/summary/leaderboard.xlsx")
    shown = [str(cell.value) for name in ("overview", "gl") for row in book[name].iter_rows() for cell in row]
    assert not [text for text in shown if "options-only" in text]
    [listing] = after["audit_lists.csv"].to_dict("records")
    assert "options-only" not in listing["evaluations"]
    per_item = [pd.read_parquet(f"results/{model}/tasks/{ALONE}.parquet") for model in ("one", "two")]
    accuracy = 100 * sum(rows["correct"].mean() for rows in per_item) / 2
    assert f"{accuracy:.0f} % without the question, 33 % by chance" in listing["sentences"].replace("34 %", "33 %")
    assert listing["sentences"] in capsys.readouterr().out


def test_a_run_without_any_other_evaluation(workspace, capsys):
    for name, kind in (("one", "llama"), ("two", "gpt2")):
        tiny.save(kind, name)
    assert Run(configure({"styles": ["options-only"], "limit": 8})).run_all(exports=True) == 0
    assert "no audit list: the items are evaluated without their question only." in capsys.readouterr().out
    assert cli.main(["table"]) == 1
    assert "no headline metric" in capsys.readouterr().err
    stage.print_results(stage.PrintResults(results=Path("results/summary"), benchmarks=Path("results/benchmarks")))
    assert "no values" in capsys.readouterr().out


@pytest.fixture
def opened(workspace, run_report):
    """Open the report of a run with and without the questions in a browser."""
    tiny.save("llama", "one")
    tiny.save("gpt2", "two")
    assert Run(configure({"styles": ["default", "options-only"], "limit": 8})).run_all() == 0
    return run_report(Path("results/report").resolve())


def test_the_report_shows_it_beside_the_task_alone(opened):
    for view in ("overview", "leaderboard", "leaderboard?down=evaluations", "comparison", "audit", "provenance"):
        opened.open(f"#/{view}")
    opened.open("#/leaderboard?down=models")
    assert "options-only" not in opened.text("main")
    opened.open(f"#/task/{ALONE}")
    assert "Accuracy uncond" in opened.text("main")
    assert "choices are" not in opened.text("main"), "no diagnosis of a choice without a question"
