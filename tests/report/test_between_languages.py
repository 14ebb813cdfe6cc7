"""A run with a parallel task in several languages: tables, sheets, notes, DataFrames and the report."""

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

SOURCES = {"gl": "río", "en": "river", "es": "otro"}
ID = "rivers.{}.options.0shot"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    languages = {}
    for language, word in SOURCES.items():
        rows = [
            {"id": f"{'x' * (language == 'es')}q{i}", "q": f"{word} {i}?", "gold": i % 3}
            | {x: f"{word} {x} {i}" for x in "abc"}
            for i in range(40)
        ]
        Path(f"{language}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        languages[language] = {"source": {"file": f"{language}.jsonl"}}
    task = {"task": "rivers", "protocols": ["options"], "item_type": "question", "parallel": True}
    task["columns"] = {"id": "id", "question": "q", "choices": ["a", "b", "c"], "gold": "gold", "gold_format": "index"}
    Path("rivers.yaml").write_text(yaml.safe_dump(task | {"languages": languages}))
    for name, kind in (("one", "llama"), ("two", "gpt2")):
        tiny.save(kind, Path(name))
    return tmp_path


def config(languages: list[str]):
    values = {
        "models": {name: {"source": f"./{name}", "dtype": "float32"} for name in ("one", "two")},
        "evaluations": [{"task": "rivers", "data": "hub", "languages": languages, "protocols": ["options"]}],
        "tasks": ["."],
        "comparisons": [{"baseline": "one", "candidate": "two"}],
    }
    Path("config.yaml").write_text(yaml.safe_dump(values))
    return load(["config.yaml"])


def test_a_run_shows_what_differs_between_languages(workspace):
    assert Run(config(list(SOURCES))).run_all() == 0
    table = results.between_languages("results")
    assert set(table["language"]) == {"gl", "en"}
    assert set(table["baseline"]) == {"", "one"}
    values = table[(table["baseline"] == "") & (table["language"] == "gl")].set_index(["model", "metric"])
    frames = {name: results.items("results", "one", ID.format(name)).set_index("item_id") for name in ("gl", "en")}
    here, there = (frames[name]["correct"].astype(bool) for name in ("gl", "en"))
    assert values.loc[("one", "correct_if_correct_there"), "value"] == pytest.approx(here[there].mean())
    items = results.language_items("results")
    assert set(items[items["models"].map(lambda names: "one" in names)]["item_id"]) == set(here.index[there & ~here])
    assert pd.read_csv("results/summary/language_items.csv")["text"].str.contains("río").all()
    book = openpyxl.load_workbook("results/summary/leaderboard.xlsx")
    titles = [cell.value for cell in book["between languages"][1]]
    assert {"RankC", "Same option if both are incorrect", "Correct here if correct there"} == {
        row[titles.index("measure")].value for row in book["between languages"].iter_rows(min_row=2)
    }
    assert book["language items"].max_row == len(items) + 1
    notes = pd.read_csv("results/summary/notes.csv")
    [note] = notes[notes["kind"] == "between languages"].to_dict("records")
    assert (note["evaluations"], note["note"]) == (ID.format("es"), "not compared with en: no item has the same ID")
    shown = Path("results/report/data/languages.js").read_text("utf-8")
    shown = json.loads(shown.partition(",")[2].rpartition(")")[0])
    assert len(shown["rows"]) == len(table)
    assert shown["notes"] == [f"{ID.format('es')}: not compared with en: no item has the same ID."]


def test_a_task_in_one_language_has_no_such_stage(workspace):
    run = Run(config(["gl"]))
    assert "between-languages" not in run.comparing_stages()
    assert run.run_all() == 0
    assert not Path("results/summary/between_languages.parquet").exists()
    assert "between languages" not in openpyxl.load_workbook("results/summary/leaderboard.xlsx").sheetnames


def test_the_view_has_languages_by_languages_and_the_items(workspace, run_report):
    assert Run(config(list(SOURCES))).run_all() == 0
    page = run_report(Path("results/report").resolve())
    page.open("#/languages")
    assert page.text("h1") == "Between languages"
    assert page.find("nav a[href='#/languages']").is_displayed()
    assert "faults of a translation" in page.text("main")
    assert page.text("details.note summary") == "Not compared"  # one language of one task, and not a task
    table = results.between_languages("results").set_index(["model", "baseline", "language", "metric"])
    values = [f"{table.loc[('one', '', language, 'rank_c'), 'value']:.3f}" for language in ("gl", "en")]
    rows = page.texts("main table")
    assert all(value in rows[0] for value in values)
    assert "unrelated: 0.475" in rows[0]
    page.open(f"#/languages/{ID.format('gl')}?model=two&metric=correct_if_correct_there")
    assert "Differences of models" in page.text("main")
    items = results.language_items("results")
    shown = page.texts("main table")[-1]
    assert items.iloc[0]["text"].strip() in shown
    assert items.iloc[0]["reference_text"].strip() in shown
    assert "two: río" in shown
