"""Runs with several prompts and tiny models: their tables, and what a change of one wording computes again.

The runs share one directory and depend on each other, in the order of the file; only the last is one of Snakemake.
"""

import json

import openpyxl
import pandas as pd
import pytest
from support.faults import rows
from support.workspace import Clone, output_tail
from vernacular.core.model_record import read_status

pytestmark = pytest.mark.slow

EVALUATION = "openbookqa.gl.letters.0shot"
MEAN = f"{EVALUATION}.all"
NAMES = (" mean over prompts", " prompt formal", " prompt instructed")
ENTRY = {"task": "openbookqa", "languages": ["gl"], "protocols": ["letters"]}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("prompts")
    (directory / "work").mkdir()
    workspace = Clone(directory, [ENTRY])
    workspace.config["models"]["other"] = {"source": "./other", "dtype": "float32"}
    workspace.config["comparisons"] = ["all_pairs"]
    workspace.single = run(workspace)
    return workspace


def run(workspace) -> pd.DataFrame:
    assert workspace.run_stages() == 0
    return workspace.results()


def table(workspace, name: str) -> pd.DataFrame:
    return pd.read_parquet(workspace.directory / "results" / "summary" / f"{name}.parquet")


def computed(workspace) -> list[int]:
    """How many evaluations each model computed in its last job."""
    directory = workspace.directory / "results" / "inference_status"
    outcomes = [read_status(directory / name / "1of1.json")[name] for name in workspace.config["models"]]
    return [sum(o.reason == "computed" for o in by_evaluation.values()) for by_evaluation in outcomes]


def requests(workspace, evaluation: str) -> bytes:
    return (workspace.directory / "results" / "requests" / f"{evaluation}.parquet").read_bytes()


def rows_of(workspace, evaluation: str) -> str:
    return rows(workspace.directory / "results" / "requests" / f"{evaluation}.parquet")


def test_one_prompt_has_no_table_of_prompts(workspace):
    assert len(table(workspace, "prompts")) == 0
    assert set(workspace.single["prompt"]) == {"default"}
    book = openpyxl.load_workbook(workspace.directory / "results" / "summary" / "leaderboard.xlsx")
    assert "prompts" not in book.sheetnames
    assert not (workspace.directory / "results" / "report" / "data" / "prompts.js").exists()


def test_more_prompts_leave_the_default_as_it_was(workspace):
    before = requests(workspace, EVALUATION)
    workspace.config["evaluations"] = [ENTRY | {"prompts": ["default", "instructed", "formal"]}]
    results = run(workspace)
    assert requests(workspace, EVALUATION) == before
    assert computed(workspace) == [2, 2]  # two new prompts of each model
    default = results.query("evaluation == @EVALUATION").reset_index(drop=True)
    pd.testing.assert_frame_equal(default, workspace.single, check_dtype=False)


def test_tables_contain_the_mean_and_each_prompt(workspace):
    results = workspace.results().query("category == ''")
    assert set(results["evaluation"]) == {EVALUATION, f"{EVALUATION}.instructed", f"{EVALUATION}.formal", MEAN}
    values = results.query("metric == 'accuracy' and model == 'tiny'").set_index("prompt")["value"]
    assert values["all"] == pytest.approx(values[["default", "instructed", "formal"]].mean())
    mean = results.query("evaluation == @MEAN and metric == 'accuracy' and model == 'tiny'").iloc[0]
    assert "mean over 3 prompts" in mean["signature"]
    assert "prompts like these" in mean["signature"]
    prompts = table(workspace, "prompts").query("metric == 'accuracy'")
    assert prompts["baseline"].isna().tolist() == [True, True, False]
    frame = pd.read_csv(workspace.directory / "results" / "summary" / "prompts.csv")
    assert json.loads(frame["prompts"].iloc[0]) == ["default", "formal", "instructed"]


def test_mean_is_one_question(workspace):
    comparisons = table(workspace, "comparisons").query("metric == 'accuracy' and category == ''")
    assert set(comparisons.query("n_tests.notna()")["evaluation"]) == {MEAN}
    assert comparisons["n_tests"].max() == 1
    wide = pd.read_csv(workspace.directory / "results" / "summary" / "wide.csv")
    assert wide["model"].tolist() == ["other", "tiny"]
    settings = {column.split(" / ")[2] for column in wide.columns[1:]}
    assert settings == {f"letters 0 shots{name}" for name in ("", *NAMES)}


def test_leaderboard_holds_the_mean_and_the_sheet_its_parts(workspace):
    book = openpyxl.load_workbook(workspace.directory / "results" / "summary" / "leaderboard.xlsx")
    for sheet in ("overview", "gl"):
        shown = {str(cell.value) for row in book[sheet].iter_rows() for cell in row}
        settings = {text for text in shown if text.startswith("letters")}
        assert settings == {"letters · 0 shots · mean over prompts"}
    evaluations = [[cell.value for cell in row] for row in book["comparisons"].iter_rows()]
    prompts = {row[evaluations[0].index("prompt")] for row in evaluations[1:]}
    assert prompts == {"mean over prompts"}
    texts = {cell.value for row in book["prompts"].iter_rows() for cell in row}
    assert {"prompts like these", "tiny", "other", "SE of the mean"} <= texts


def test_export_of_the_mean_has_its_standard_error(workspace):
    prompts = table(workspace, "prompts").query("metric == 'accuracy' and model == 'tiny' and baseline.isna()").iloc[0]
    (path,) = (workspace.directory / "results" / "summary" / "lm_eval").glob("results_tiny.json")
    exported = json.loads(path.read_text("utf-8"))
    assert exported["results"][MEAN]["accuracy_stderr,none"] == pytest.approx(prompts["se"])
    assert exported["configs"][MEAN]["prompt"] == "all"
    assert "prompt" not in exported["configs"][EVALUATION]


def test_report_has_the_wordings(workspace):
    text = (workspace.directory / "results" / "report" / "data" / "prompts.js").read_text("utf-8")
    content = json.loads(text.partition(",")[2].rpartition(")")[0])
    (group,) = content["groups"]
    assert [prompt["name"] for prompt in group["prompts"]] == ["default", "formal", "instructed"]
    assert group["prompts"][2]["text"].startswith("Escolle a opción correcta.")
    assert group["prompts"][2]["reviewed"] is False
    index = (workspace.directory / "results" / "report" / "data" / "index.js").read_text("utf-8")
    assert f'"id":"{MEAN}"' in index


def test_another_prompt_and_another_wording_compute_those_prompts_alone(workspace):
    workspace.config["evaluations"] = [ENTRY | {"prompts": ["default", "instructed", "formal", "question_first"]}]
    del workspace.config["models"]["other"], workspace.config["comparisons"]
    file = workspace.code_path("prompts/gl.yaml")
    text = file.read_text("utf-8")
    others = {name: rows_of(workspace, f"{EVALUATION}{name}") for name in ("", ".formal")}
    changed = rows_of(workspace, f"{EVALUATION}.instructed")
    file.write_text(text.replace("Escolle a opción correcta.", "Marca a opción correcta."), "utf-8")
    finished = workspace.run()
    assert finished.returncode == 0, output_tail(finished)
    assert computed(workspace) == [2]
    assert {name: rows_of(workspace, f"{EVALUATION}{name}") for name in others} == others
    assert rows_of(workspace, f"{EVALUATION}.instructed") != changed


def test_a_review_computes_nothing(workspace):
    file = workspace.code_path("prompts/gl.yaml")
    file.write_text(file.read_text("utf-8").replace("reviewed: false", "reviewed: A. Speaker, 2026"), "utf-8")
    planned = set(workspace.planned_jobs())
    assert planned <= {"summary", "report", "finish", "all"}, "the notes name prompts that no speaker has read"
