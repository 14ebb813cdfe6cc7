"""From generated responses to values by labels of speakers: a sheet is drawn, filled in by script, and in every table.

The stages run in this process, in the order of the rules; the tests run in file order.
"""

import json
import os
import shutil
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
import yaml
from support import tiny
from support.stage_run import Run
from vernacular import cli
from vernacular.config import load as config

pytestmark = pytest.mark.slow

N_ITEMS, N_LABELS = 90, 60
EVALUATION = "rivers.gl.generation.0shot"
TASK = {
    "task": "rivers",
    "protocols": ["generation"],
    "item_type": "question",
    "columns": {"id": "id", "question": "question", "choices": "options", "gold": "gold", "gold_format": "index"},
    "languages": {"gl": {"source": {"file": "rivers.jsonl"}}},
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Evaluate two models and return the directory, which is the working directory of all tests."""
    directory = tmp_path_factory.mktemp("labels")
    previous = os.getcwd()
    os.chdir(directory)
    tiny.save("llama", "one")
    tiny.save("gpt2", "two")
    tiny.save("bert", "encoder")
    rows = [
        {"id": f"q{i}", "question": f"Cal é o río {i}?", "options": [f"o Sil {i}", f"o Tea {i}"], "gold": i % 2}
        for i in range(N_ITEMS)
    ]
    Path("rivers.jsonl").write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")
    Path("rivers.yaml").write_text(yaml.safe_dump(TASK))
    write_config()
    Run(config.load(["config.yaml"])).run_all()
    yield directory
    os.chdir(previous)


def write_config(**settings) -> None:
    models = {name: {"source": f"./{name}", "dtype": "float32", "device": "cpu"} for name in ("one", "two")}
    content = {"models": models, "tasks": ["."], "evaluations": [{"task": "rivers", "data": "hub"}]}
    content |= {"comparisons": [{"baseline": "one", "candidate": "two"}]}
    content |= {"similarity": {"metrics": ["cosine"], "encoders": {"default": "./encoder"}}} | settings
    Path("config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def run_tables() -> None:
    run = Run(config.load(["config.yaml"]))
    for command in ("compare", "estimates", "changes", "summary", "report"):
        assert run(command) == 0


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(Path("results/summary", f"{name}.csv"))


def is_liked(response: str) -> bool:
    """Return what the speaker of this test thinks of a response."""
    return len(response) % 3 > 0


def test_a_sheet_is_drawn_and_names_no_model(workspace, capsys):
    assert cli.main(["labels", EVALUATION, "--n", str(N_LABELS)]) == 0
    assert f"on {N_LABELS} items in labels/{EVALUATION}.xlsx" in capsys.readouterr().out
    book = openpyxl.load_workbook(f"labels/{EVALUATION}.xlsx")
    assert book["instructions"]["A2"].value.startswith("A resposta é correcta? Escribe correct")
    sheet = book["labels"]
    titles = [cell.value for cell in sheet[1]]
    assert titles[:6] == ["number", "prompt", "reference", "response", "label", "annotator"]
    rows = pd.read_csv(f"labels/{EVALUATION}.csv", keep_default_na=False)
    assert sheet.max_row == len(rows) + 1
    assert rows["number"].nunique() == N_LABELS
    assert not {"one", "two"} & set(rows.drop(columns=["prompt", "response"]).to_numpy().ravel())
    for row in range(2, sheet.max_row + 1):
        response = str(sheet.cell(row, 4).value or "")
        sheet.cell(row, 5).value = "correct" if is_liked(response) else "incorrect"
        sheet.cell(row, 6).value = "Ana"
    book.save("ana.xlsx")
    for row in range(2, 40):  # another reads less, and is stricter
        sheet.cell(row, 6).value = "Brais"
        if row % 6 == 0:
            sheet.cell(row, 5).value = "incorrect"
    for row in range(40, sheet.max_row + 1):
        sheet.cell(row, 5).value = None
    book.save("brais.xlsx")


def test_values_by_labels_are_in_every_table(workspace):
    before, compared = table("results"), table("comparisons")
    write_config(labels=["ana.xlsx", "brais.xlsx"])
    run_tables()
    after = table("results")
    new = after[after["metric"].str.startswith("human")]
    old = after.drop(new.index).reset_index(drop=True)
    pd.testing.assert_frame_equal(old[before.columns], before)
    assert set(new["metric"]) >= {"human", "human_by_exact_match", "human_by_chrf", "human_by_cosine_correct"}
    assert (new["n"] == N_LABELS).all()
    assert (new["labels_only_low"] < new["labels_only"]).all()
    assert (new["ci_low"].between(0, new["value"]) & new["ci_high"].between(new["value"], 1)).all()
    scored = new[new["metric"] != "human"]
    assert (scored["n_scored"] > N_LABELS).all()
    assert scored["ratio"].notna().all()
    assert set(new["model"]) == {"one", "two"}

    wide = table("wide")
    assert any("human by chrf" in name.casefold() or "human_by_chrf" in name for name in wide.columns)
    rows = table("comparisons")
    extra = rows[rows["metric"].str.startswith("human")]
    pd.testing.assert_frame_equal(rows.drop(extra.index).reset_index(drop=True)[compared.columns], compared)
    [difference] = extra.query("metric == 'human'").to_dict("records")
    values = new.query("metric == 'human'").set_index("model")["value"]
    assert difference["difference"] == pytest.approx(values["two"] - values["one"])
    assert difference["ci_low"] < difference["difference"] < difference["ci_high"]

    labels = table("labels")
    assert labels["alpha"].between(0.3, 1, inclusive="neither").all()
    assert (labels["annotators"] == 2).all()
    sentences = labels.query("metric == 'human_by_chrf' and baseline.isna()")["sentence"]
    assert sentences.str.contains(f"; by {N_LABELS} labels and this score ").all()
    [note] = [text for text in table("notes").query("kind == 'labels'")["note"] if "agreement" in text]
    assert note.startswith("ana.xlsx, brais.xlsx: ")
    book = openpyxl.load_workbook("results/summary/leaderboard.xlsx")
    assert book["labels"].max_row == len(labels) + 1
    similarity = openpyxl.load_workbook("results/summary/similarity_summary.xlsx")
    texts = {str(cell.value) for sheet in similarity for row in sheet.iter_rows() for cell in row}
    assert any("Human" in text for text in texts)
    index = Path("results/report/data/index.js").read_text("utf-8")
    assert "Human by cosine accuracy" in index


def test_what_cannot_be_labeled_is_refused(workspace, capsys):
    for arguments, message in (
        (["rivers.gl.generaton.0shot"], f'Did you mean "{EVALUATION}"?'),
        ([EVALUATION, "--n", "0"], "--n: expected at least 1, got 0."),
        (["none.yaml", EVALUATION], "none.yaml"),
        ([EVALUATION, "config.yaml"], f"the config comes first: vernacular labels config.yaml {EVALUATION}"),
    ):
        assert cli.main(["labels", *arguments]) == 1
        assert message in capsys.readouterr().err
    write_config(evaluations=[{"task": "rivers", "data": "hub", "protocols": ["generation"], "shots": 1}])
    assert cli.main(["labels", "rivers.gl.generation.1shot"]) == 1
    assert "rivers.gl.generation.1shot.parquet: file not found. Run `" in capsys.readouterr().err
    write_config(tasks=[], evaluations=[{"task": "cola", "data": "samples", "languages": ["gl"]}])
    assert cli.main(["labels", "cola.gl.acceptability.0shot"]) == 1
    assert "acceptability has no responses to judge; use one that generates text." in capsys.readouterr().err
    write_config(labels=["ana.xlsx", "brais.xlsx"])


def test_a_model_that_failed_is_left_out_of_the_sheet(workspace, capsys, tmp_path):
    path = Path(f"results/two/tasks/{EVALUATION}.parquet")
    path.rename(tmp_path / "two")
    write_config()
    assert cli.main(["labels", EVALUATION, "--n", "5", "--out", str(tmp_path)]) == 0
    assert f"Left out, because results are missing: {path}\n" in capsys.readouterr().out
    (tmp_path / "two").rename(path)
    write_config(labels=["ana.xlsx", "brais.xlsx"])


def test_continuing_writes_the_next_items_only(workspace, capsys):
    assert cli.main(["labels", EVALUATION, "--n", str(N_LABELS)]) == 1
    assert f"the first {N_LABELS} items have labels already" in capsys.readouterr().err
    assert cli.main(["labels", EVALUATION, "--n", "70"]) == 0
    rows = pd.read_csv(f"labels/{EVALUATION}.csv")
    assert rows["number"].min() == N_LABELS + 1
    assert rows["number"].max() == 70
    shutil.copy("ana.xlsx", f"labels/{EVALUATION}.xlsx")  # somebody has begun: it is kept
    assert cli.main(["labels", EVALUATION, "--n", "70"]) == 0
    assert f"{EVALUATION}-2.xlsx" in capsys.readouterr().out


def test_labels_of_chosen_items_are_refused(workspace, capsys):
    rows = pd.read_csv(f"labels/{EVALUATION}.csv", keep_default_na=False)
    rows["label"] = ["correct" if number % 2 else "" for number in rows["number"]]
    rows.to_csv("chosen.csv", index=False)
    write_config(labels=["chosen.csv"])
    run_tables()
    out = capsys.readouterr().out
    first = rows.loc[rows["label"] == "correct", "item_id"].iloc[0]
    assert f"the labels are not those of the first items in the order of the draw: {first} has one" in out
    assert table("labels").empty
    assert not table("results")["metric"].str.startswith("human").any()


def test_a_model_on_some_items_borrows_from_another_on_all(workspace):
    shutil.copytree("results", "all")
    write_config(evaluations=[{"task": "rivers", "data": "hub", "limit": N_LABELS}], borrow_from=["all"])
    Run(config.load(["config.yaml"])).run_all()
    rows = table("results").query("metric == 'cosine_accuracy_borrowed'").set_index("model")
    own = table("results").query("metric == 'cosine_accuracy'").set_index("model")
    assert set(rows.index) == {"one", "two"}
    for model in rows.index:
        assert rows.loc[model, "labels_only"] == pytest.approx(own.loc[model, "value"])
        assert rows.loc[model, "ci_low"] < rows.loc[model, "value"] < rows.loc[model, "ci_high"]
    notes = table("notes").query("kind == 'borrowed'")["note"]
    assert notes.str.contains(f"Estimated from {N_LABELS} of {N_ITEMS} items and the answers of ").any()
    content = next(Path("results/report/data").glob("e0/task.js")).read_text("utf-8")
    assert "cosine_accuracy_borrowed" in content


RUBRIC = {
    "template": "P: {prompt}\nR: {response}\nG: {reference}\n{scale}",
    "scale": {"boa": 1, "mala": 0},
    "instruction": "Remata así: {cue} X",
    "cue": "Resposta:",
}


def test_labels_validate_the_values_of_a_judge_and_correct_them(workspace):
    Path("tone").mkdir()
    Path("tone", "gl.yaml").write_text(yaml.safe_dump(RUBRIC, sort_keys=False, allow_unicode=True), "utf-8")
    judge = {"model": "one", "rubric": "./tone", "read": "log_probabilities", "models": ["two"]}
    write_config(labels=["ana.xlsx", "brais.xlsx"], judges={"tone": judge})
    Run(config.load(["config.yaml"])).run_all()
    rows = table("results")
    rows = rows[rows["model"] == "two"].set_index("metric")
    assert "judge_tone_unvalidated" not in rows.index
    assert rows.loc["human_by_judge_tone", "n"] == N_LABELS
    assert rows.loc["human_by_judge_tone", "n_scored"] == rows.loc["judge_tone", "n"] == N_ITEMS
    assert rows.loc["human_by_judge_tone", "labels_only"] == pytest.approx(rows.loc["human", "value"])
    [row] = table("labels").query("metric == 'human_by_judge_tone'").to_dict("records")
    assert -1 <= row["rho"] <= 1
