"""From trained models to a filled sheet: incorrect golds planted into minimal pairs are found, read, and taken out.

The stages run in this process, in the order of the rules; the tests run in file order.
"""

import json
import os
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
import yaml
from support import series_training
from support.series_training import EVALUATION
from support.stage_run import Run
from vernacular.config import load as config

pytestmark = pytest.mark.slow

TASK = series_training.TASK | {"columns": series_training.TASK["columns"] | {"id": "id"}}
STEPS = (40, 120, 200)
PLANTED = [f"p{number}" for number in range(7, 200, 20)]  # ten of 200


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Train two series, evaluate them, and return the directory, which is the working directory of all tests."""
    directory = tmp_path_factory.mktemp("audit")
    previous = os.getcwd()
    os.chdir(directory)
    for seed, name in enumerate(("one", "two")):
        series_training.copy_trained(tmp_path_factory, directory / name, seed=seed, steps=STEPS)
    series_training.write_pairs(directory / "pairs.jsonl")
    rows = [json.loads(line) for line in Path("pairs.jsonl").read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        row["id"] = f"p{number}"
        if row["id"] in PLANTED:
            row["good"], row["bad"] = row["bad"], row["good"]
    Path("pairs.jsonl").write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")
    Path("grammar.yaml").write_text(yaml.safe_dump(TASK))
    write_config()
    run = load()
    assert run("items") == run("requests") == 0
    for model in run.config.models:
        for command in ("model", "infer", "collect", "metrics"):
            assert run(command, model) == 0
    for command in ("compare", "changes", "curves", "audit-lists", "summary"):
        assert run(command) == 0
    yield directory
    os.chdir(previous)


def write_config(**settings) -> None:
    models = {
        name: {"series": f"./{name}/checkpoint-*", "dtype": "float32", "device": "cpu"} for name in ("one", "two")
    }
    pair = {"baseline": f"one.step{STEPS[0]}", "candidate": f"two.step{STEPS[-1]}"}
    content = {"models": models, "tasks": ["."], "evaluations": [{"task": "grammar", "data": "hub"}]}
    content |= {"comparisons": [pair], "audit": {"items": 20}} | settings
    Path("config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def load() -> Run:
    return Run(config.load(["config.yaml"]))


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(Path("results/summary", f"{name}.csv"))


def test_planted_golds_are_found(workspace):
    [summary] = table("audit_lists").to_dict("records")
    assert (summary["models"], summary["families"], summary["items"]) == (6, 2, 200)
    rows = table("audit")
    recall = rows["item_id"].isin(PLANTED).sum() / len(PLANTED)
    assert recall >= 0.48  # of pairs, by models of 60 to 80 %; these are better
    assert rows["item_id"].isin(PLANTED).mean() > 4 * len(PLANTED) / 200
    assert abs(summary["reach_any"] - recall) <= 0.3


def test_a_filled_sheet_gives_a_second_value(workspace):
    before = table("results")
    compared = table("comparisons")
    book = openpyxl.load_workbook("results/summary/audit.xlsx")
    sheet = book[EVALUATION]
    columns = {cell.value: cell.column for cell in sheet[1]}
    found = []
    for row in range(2, sheet.max_row + 1):
        item_id = sheet.cell(row, columns["item_id"]).value
        is_fault = item_id in PLANTED
        found += [item_id] * is_fault
        for name, value in (
            ("decision", "wrong gold" if is_fault else "ok"),
            ("annotator", "Ana"),
            ("date", "2026-11-20"),
        ):
            sheet.cell(row, columns[name]).value = value
    book.save("read.xlsx")
    write_config(verdicts="read.xlsx")
    run = load()
    for command in ("compare", "faults", "changes", "curves", "audit-lists", "summary"):
        assert run(command) == 0
    after = table("results")
    new = ["value_without_faults", "n_without_faults", "difference_without_faults"]
    pd.testing.assert_frame_equal(after.drop(columns=new), before)
    shown = after.query("metric == 'accuracy' and category.isna()")
    assert (shown["n_without_faults"] == 200 - len(found)).all()
    assert (shown["n"] == 200).all()
    np.testing.assert_allclose(shown["difference_without_faults"], shown["value_without_faults"] - shown["value"])
    best = shown.set_index("model").loc[f"two.step{STEPS[-1]}"]
    n_correct = round(best["value"] * 200)
    assert best["value_without_faults"] > best["value"]
    assert best["value_without_faults"] <= n_correct / (200 - len(found))
    [row] = table("comparisons").query("metric == 'accuracy' and category.isna()").to_dict("records")
    [earlier] = compared.query("metric == 'accuracy' and category.isna()").to_dict("records")
    assert row["n_without_faults"] == 200 - len(found)
    expected = shown.set_index("model")["value_without_faults"]
    assert row["difference_without_faults"] == pytest.approx(expected[row["candidate"]] - expected[row["baseline"]])
    assert {name: row[name] for name in earlier if name != "note"} == pytest.approx(
        {name: value for name, value in earlier.items() if name != "note"}, nan_ok=True
    )
    [note] = table("notes").query("kind == 'verdicts'").to_dict("records")
    assert note["note"].startswith(
        f"read.xlsx: 20 items read by Ana (2026-11-20), {len(found)} confirmed faults: wrong gold {len(found)}. "
    )
    assert "Read as many random items" in note["note"]
    leaderboard = openpyxl.load_workbook("results/summary/leaderboard.xlsx")
    titles = [cell.value for cell in leaderboard["without faults"][1]]
    assert "without confirmed faults" in titles
    assert leaderboard["without faults"].max_row > 6
