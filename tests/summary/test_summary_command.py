"""Command `summary`: from metrics files to tables and workbooks for publication."""

import zipfile
from dataclasses import asdict
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
from support import stages
from vernacular.comparison.curves.schema import DECIDING_METRICS
from vernacular.comparison.schema import COMPARISONS, OVERALL, PROMPTS, RANKINGS
from vernacular.core import artifacts
from vernacular.core.metadata import unavailable
from vernacular.core.model_record import AdapterRecord, Listing
from vernacular.metrics.schema import METRICS, RESULTS, TOKENS
from vernacular.stages.summary import summary

HOME = "/home/ana/private"
EVALUATION = "openbookqa.gl.generation.5shot"


DIAGNOSES = {
    "base": [
        {"code": "empty", "severity": "failure", "sentence": "2 of 3 responses are empty.", "threshold": "10 %", "n": 3}
        | {"count": 2, "examples": [{"item": "q1", "text": ""}]},
        {"code": "length", "severity": "warning", "sentence": "Longer.", "threshold": "0.1", "n": 3},
    ],
    "mine": [{"code": "majority", "severity": "information", "sentence": "Low.", "threshold": "-", "n": 3}],
}


LANGUAGES = {
    "base": {"answered": {"gl": 6, "pt": 1}, "blocks": {"pt": 1}, "gold": {"gl": 4}, "undecided": 9},
    "mine": {"missing": "language of responses not identified: heliport is not installed"},
}


def metadata(model: str, **record) -> dict:
    dataset = {
        "task": "openbookqa", "language": "gl", "limit": None,
        "source": {"kind": "file", "file": f"{HOME}/data/items.csv", "sha256": "5a"},
        "rows": {"read": 4, "evaluated": 3, "dropped": {"empty question": 1}},
    }  # fmt: skip
    inference = {"model": {"dtype": "float32", "quantization": {"load_in_4bit": True} if model == "mine" else None}}
    evaluations = {
        EVALUATION: {
            "dataset": dataset,
            "inference": inference,
            "diagnoses": DIAGNOSES[model],
            "language": LANGUAGES[model],
        },
        "lost.gl.cloze.0shot": {"outcome": unavailable(f"lost (gl): {HOME}/data/lost.csv: file not found.")},
    }
    return {"model": model, "record": {"name": model, **record}, "evaluations": evaluations, "fingerprint": "f"}


def write_metrics(directory: Path, table, metadata: dict) -> Path:
    """Write the files of a model that rule `metrics` writes, without token counts."""
    tokens = {"model": metadata["model"], "tokenizer": "abc", "evaluations": {}, "fingerprint": "f"}
    artifacts.write(directory / "tokens.parquet", TOKENS, TOKENS.schema.empty_table(), tokens)
    return artifacts.write(directory / "metrics.parquet", METRICS, table, metadata)


def write_no_comparisons(directory):
    kinds = {"rankings": RANKINGS, "pairs": COMPARISONS, "overall": OVERALL, "prompts": PROMPTS}
    for name, kind in (kinds | {"deciding_models": DECIDING_METRICS}).items():
        artifacts.write(
            directory / f"{name}.parquet", kind, kind.schema.empty_table(), {"fingerprint": "f", "notes": []}
        )


@pytest.fixture
def out(metrics_table, tmp_path):
    """Return the directory of a summary of a local model and its local adapter."""
    rows = {"base": {}, "mine": {"adapter": f"{HOME}/lora-gl", "base": "base", "value": 0.6}}
    records = {"base": {"source": f"{HOME}/base"}, "mine": {"source": f"{HOME}/base", "base": "base"}}
    listing = Listing(f"{HOME}/lora-gl", {})
    records["mine"]["adapter"] = asdict(AdapterRecord(f"{HOME}/lora-gl", "a", None, "LORA", 4, False, False, listing))
    for model, changes in rows.items():
        table = metrics_table(changes | {"model": model, "style": "default"})
        write_metrics(tmp_path / model, table, metadata(model, **records[model]))
    out = tmp_path / "summary"
    write_no_comparisons(out)
    spec = {"models": list(rows), "evaluations": [EVALUATION], "tasks": {"openbookqa": {"title": "OpenBookQA"}}}
    spec["parallel"] = []
    metrics = [tmp_path / model / "metrics.parquet" for model in rows]
    compared = [out / "pairs.parquet"]
    summary(stages.arguments(summary, metrics=metrics, compared=compared, out=out, spec=spec))
    return out


def test_no_table_or_workbook_contains_a_local_path(out):
    contents = {path.name: path.read_bytes() for path in out.rglob("*.csv")}
    for path in out.glob("*.xlsx"):
        with zipfile.ZipFile(path) as archive:
            contents |= {f"{path.name} {name}": archive.read(name) for name in archive.namelist()}
    assert len(contents) > 20
    assert not [name for name, content in contents.items() if HOME.encode() in content or b"/home/" in content]
    assert any(b"lora-gl" in content for content in contents.values()), "the name of the adapter remains"


def test_diagnoses_are_in_the_tables(out):
    results = pd.read_csv(out / "results.csv")
    cells = results[results["category"].isna()].groupby("model")["diagnosis"].unique()
    assert cells["base"].tolist() == ["EMPTY, length"]
    assert cells["mine"].isna().all(), "information only"
    notes = pd.read_csv(out / "notes.csv").query("kind == 'diagnosis'")
    assert notes["note"].tolist() == ["empty (failure): 2 of 3 responses are empty.", "length (warning): Longer."]
    assert notes["models"].tolist() == ["base", "base"]
    book = openpyxl.load_workbook(out / "leaderboard.xlsx")
    rows = book["overview"].iter_rows(values_only=True)
    cells = {row[0].partition(" ")[0]: row[-1] for row in rows if row[0]}
    assert cells["model"] == "diagnosis"
    assert cells["base"] == "empty (1), length (1)"
    assert cells["mine"] is None
    header, first, second = book["diagnoses"].iter_rows(values_only=True)
    assert dict(zip(header, first, strict=True))["examples"] == "q1"
    assert [first[2], second[2]] == ["empty", "length"]
    worst = artifacts.metadata(out / "results.parquet")["worst_diagnosis"]
    assert (worst["model"], worst["code"]) == ("base", "empty")


def test_languages_of_responses_are_in_the_leaderboard(out):
    sheet = openpyxl.load_workbook(out / "leaderboard.xlsx")["languages"]
    assert list(sheet.iter_rows(values_only=True)) == [
        ("model", "language of the items", "responses", "too short", "correct answers in it", "gl", "pt"),
        ("base", "gl", 8, 9, 1, 0.75, 0.25),
    ]
    notes = pd.read_csv(out / "notes.csv").query("kind == 'language'")
    assert notes["models"].tolist() == ["mine"]


def test_run_without_any_value_has_all_tables(tmp_path):
    evaluations = {"evaluations": {EVALUATION: {"outcome": unavailable("gated")}}, "fingerprint": "f"}
    record = {"model": "base", "record": {"name": "base", "source": "owner/name"}}
    metrics = write_metrics(tmp_path, METRICS.schema.empty_table(), record | evaluations)
    write_no_comparisons(tmp_path)
    spec = {"models": ["base"], "evaluations": [EVALUATION], "tasks": {}, "parallel": []}
    compared = [tmp_path / "pairs.parquet"]
    summary(stages.arguments(summary, metrics=[metrics], compared=compared, out=tmp_path, spec=spec))
    assert pd.read_csv(tmp_path / "notes.csv")["note"].tolist() == ["gated"]
    assert {path.stem for path in tmp_path.glob("*.xlsx")} == {
        "leaderboard",
        "similarity_summary",
        "surprisal_summary",
        "tokenizers",
    }


def test_tables_have_readable_names(out):
    table = pd.read_csv(out / "wide.csv").set_index("model")
    assert table["gl / OpenBookQA / generation 5 shots / Accuracy (share)"].to_dict() == {"base": 0.5, "mine": 0.6}
    sheet = openpyxl.load_workbook(out / "leaderboard.xlsx")["gl"]
    assert [sheet.cell(row, 1).value for row in (4, 5)] == ["base (float32)", "mine (adapter of base, 4bit)"]
    assert sheet["B1"].value == "OpenBookQA"


def test_notes_are_grouped_in_the_csv_and_complete_in_the_results_file(out):
    notes = pd.read_csv(out / "notes.csv")
    notes = notes[~notes["kind"].isin(["diagnosis", "language"])]
    assert notes["models"].tolist() == ["base, mine"] * 2
    assert notes["note"].tolist() == ["lost (gl): …/lost.csv: file not found.", "empty question"]
    assert len(artifacts.metadata(out / "results.parquet")["notes"]) == 7
    assert artifacts.read(out / "results.parquet", RESULTS)["value"].to_pylist() == [0.5, 0.6]
