"""Audit lists from stored results: the tables, what they state, and what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch
from support.faulty_items import CLOSE, EVALUATION, WRONG_GOLD, simulate, write_run
from vernacular import cli
from vernacular.comparison.audit import answered
from vernacular.comparison.schema import AUDIT_LIST
from vernacular.config.load import load
from vernacular.config.series import families
from vernacular.core import artifacts
from vernacular.metrics.schema import as_table


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return simulate(np.random.default_rng(1), 5, 150, ability=(1, 4))


def table(name="audit") -> pd.DataFrame:
    return pd.read_csv(f"results/summary/{name}.csv")


def test_a_list_is_written_without_a_forward_pass(drawn, capsys):
    write_run(Path(), drawn)
    forward_passes = []
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: forward_passes.append(1))
    torch.nn.Linear(1, 1)(torch.ones(1))
    assert forward_passes, "the counter counts"
    forward_passes.clear()
    assert cli.main(["audit"]) == 0
    handle.remove()
    assert not forward_passes
    rows = table()
    assert rows["rank"].tolist() == list(range(1, 41))
    assert rows["score"].is_monotonic_decreasing
    wrong = {f"q{i:03}" for i in np.flatnonzero(drawn.kind == WRONG_GOLD)}
    assert len(wrong & set(rows["item_id"])) >= 0.6 * len(wrong)
    top = rows.iloc[0]
    number = int(top["item_id"][1:])
    assert (top["task"], top["language"], top["evaluation"]) == ("rivers", "gl", EVALUATION)
    assert top["prompt"] == f"Which river is number {number}?"
    assert top["choices"] == f"A{number} | B{number} | C{number} | D{number}"
    assert top["gold"] in top["choices"]
    assert top["favorite"] in top["choices"]
    assert top["favorite"] != top["gold"]
    assert "of 3 families do not choose the gold" in top["reason"]
    assert rows[["decision", "annotator", "date"]].isna().all(axis=None)
    [summary] = table("audit_lists").to_dict("records")
    assert (summary["items"], summary["listed"], summary["models"], summary["families"]) == (150, 40, 5, 3)
    assert 0 < summary["reach_favorite"] <= summary["reach_any"] < 1
    out = capsys.readouterr().out
    assert "3 families, 5 models" in out
    assert "Items on this list are hard or faulty. Removing them raises every score" in out
    assert "If one gold in fifty is wrong, at most" in out
    assert (
        f"at most {100 * summary['reach_favorite']:.0f} to {100 * summary['reach_any']:.0f} % of all wrong golds" in out
    )
    assert "A speaker decides." in out
    assert "Options give answers away: 50 % without the question, " in out


def test_the_sheet_has_the_sentences_and_offers_the_decisions(drawn):
    write_run(Path(), drawn)
    assert cli.main(["audit", "--items", "20"]) == 0
    book = openpyxl.load_workbook("results/summary/audit.xlsx")
    about = "\n".join(str(cell.value) for row in book["about"].iter_rows() for cell in row)
    assert "Items on this list are hard or faulty" in about
    sheet = book[EVALUATION]
    titles = [cell.value for cell in sheet[1]]
    assert sheet.max_row == 21
    letter = sheet.cell(1, titles.index("decision") + 1).column_letter
    assert not sheet.column_dimensions[letter].hidden
    [choice] = sheet.data_validations.dataValidation
    assert str(choice.sqref) == f"{letter}2:{letter}21"
    assert "wrong gold" in choice.formula1


def test_two_runs_write_the_same_tables(drawn):
    write_run(Path(), drawn)
    assert cli.main(["audit"]) == 0
    first = [Path("results/summary", name).read_bytes() for name in ("audit.csv", "audit_lists.csv", "audit.parquet")]
    assert cli.main(["audit"]) == 0
    assert first == [
        Path("results/summary", name).read_bytes() for name in ("audit.csv", "audit_lists.csv", "audit.parquet")
    ]
    assert artifacts.read("results/summary/audit.parquet", AUDIT_LIST).num_rows == 40


@pytest.mark.parametrize(
    ("n_items", "n_models", "reason"),
    [
        (8, 5, "no audit list: expected at least 100 items with scores of their options, got 8."),
        (150, 2, "no audit list: expected at least 3 models that scored 90 % of the items, got 2."),
        (150, 3, "no audit list: expected models of at least 2 families, got 3 models of one."),
    ],
)
def test_too_little_is_refused_in_one_sentence(tmp_path, monkeypatch, capsys, n_items, n_models, reason):
    monkeypatch.chdir(tmp_path)
    drawn = simulate(np.random.default_rng(2), 5, n_items, ability=(2, 4))
    given = replace(drawn.responses, families=["a"] * 5) if n_models == 3 else drawn.responses
    write_run(tmp_path, replace(drawn, languages=[given.part(range(n_models), np.arange(n_items))]))
    assert cli.main(["audit"]) == 0
    assert table().empty
    assert table("audit_lists")["reason"].tolist() == [reason]
    assert capsys.readouterr().out.splitlines()[:2] == [EVALUATION, f"  {reason}"]


def test_results_must_exist(drawn, capsys):
    write_run(Path(), drawn)
    paths = [Path(f"results/m{number}/tasks/{EVALUATION}.parquet") for number in range(5)]
    paths[1].unlink()  # of a model that failed
    assert cli.main(["audit"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Left out, because results are missing: {paths[1]}\n")
    assert "3 families, 4 models" in out
    for path in paths:
        path.unlink(missing_ok=True)
    assert cli.main(["audit"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{paths[0]}: file not found. Run `")
    assert cli.main(["audit", "--evaluation", "rivers.gl.option.0shot"]) == 1
    assert f'Did you mean "{EVALUATION}"?' in capsys.readouterr().err
    assert cli.main(["audit", "--items", "0"]) == 1


def test_families_are_adapters_with_their_base_series_and_entries_of_one_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step in (1, 2):
        Path("out", f"checkpoint-{step}").mkdir(parents=True)
    config = """
models:
  base: {source: lab/base}
  exact: {source: lab/base@v2, dtype: float32}
  small: {source: lab/base-GGUF/base-Q4.gguf}
  larger: {source: lab/base-GGUF/base-Q8.gguf}
  tuned: {base: base, adapter: lab/lora}
  mine: {series: "./out/checkpoint-*"}
  olmo: {source: lab/olmo, revisions: [step1, step2]}
  last: {source: lab/olmo}
  served: {source: "http://localhost:1/v1", model: a}
  beside: {source: "http://localhost:1/v1", model: b}
evaluations: [{task: cola}]
"""
    Path("config.yaml").write_text(config)
    loaded = load(["config.yaml"])
    assert families(loaded.models, loaded.checkpoints) == {
        "base": "base", "exact": "base", "small": "small", "larger": "small", "tuned": "base", "mine.step1": "mine.step1", "mine.step2": "mine.step1",
        "olmo.step1": "olmo.step1", "olmo.step2": "olmo.step1", "last": "olmo.step1", "served": "served",
        "beside": "beside",
    }  # fmt: skip


@pytest.mark.parametrize("n_languages", [2, 4])
def test_drops_of_a_parallel_task(tmp_path, monkeypatch, capsys, n_languages):
    monkeypatch.chdir(tmp_path)
    faults = (0.03, 0, 0.03)
    drawn = simulate(np.random.default_rng(3), 5, 300, ability=(2, 5), languages=n_languages, faults=faults, **CLOSE)
    write_run(tmp_path, drawn)
    assert cli.main(["audit", "--items", "20"]) == 0
    own = table().query("language == 'gl'")
    assert own["rank"].max() == own["drop_rank"].max() == 20
    first = own.dropna(subset="drop_rank").sort_values("drop_rank")
    assert first["drop"].is_monotonic_decreasing
    assert (first["drop"] > 0).all()
    is_fault = [drawn.kind[int(item_id[1:])] > 0 for item_id in first["item_id"]]
    assert np.mean(is_fault) > 5 * 0.06
    assert (first["accuracy_here"] < first["accuracy_elsewhere"]).mean() > 0.9
    assert first["q"].is_monotonic_increasing
    out = capsys.readouterr().out
    assert "harder in gl than elsewhere: a fault of the translation, or of the models' knowledge of it." in out
    assert ("About one in ten of these items is expected to be no exception" in out) == (n_languages > 2)
    assert ("With two languages, drops are a list to read" in out) == (n_languages == 2)


def test_languages_without_matching_ids_are_not_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, simulate(np.random.default_rng(3), 3, 110, ability=(2, 5), languages=3), same_ids=False)
    assert cli.main(["audit"]) == 0
    rows = table()
    assert rows["drop"].isna().all()
    assert len(rows) == 3 * 40
    assert "not compared with other languages: 0 of 110 items have the same ID." in capsys.readouterr().out


def test_options_in_another_order_are_the_same_item():
    rows = [{"item_id": "q", "choices": choices, "gold": gold, "option_scores": scores, "prompt": "?", "metrics": {}}
            for choices, gold, scores in [
                (["a", "b", "c"], [1], [1.0, 3.0, 2.0]), (["c", "a", "b"], [2], [20.0, 10.0, 30.0]),
                (["c", "a", "b"], [0], [20.0, 10.0, 30.0]), (["c", "a", "d"], [0], [20.0, 10.0, 30.0]),
            ]]  # fmt: skip
    tables = {"m": [as_table([row]) for row in rows]}
    given = answered(tables, {"m": "m"})
    assert [run.tolist() for run in given.responses.scores[0]] == [[[1.0, 3.0, 2.0]], [[10.0, 30.0, 20.0]]]
    assert given.differing == 2
