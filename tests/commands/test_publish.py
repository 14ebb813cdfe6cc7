"""Command `publish`: what it writes, results per item in the Every Eval Ever format, and no path of this machine."""

import hashlib
import json
from pathlib import Path

import jsonschema
import openpyxl
import pandas as pd
import pytest
from support import report_run
from support.workspace import ROOT
from vernacular import cli
from vernacular.core import artifacts
from vernacular.metrics.schema import RESULTS, TASK_RESULTS
from vernacular.report.page import build

SCHEMAS = next(ROOT.glob(".tools/lib/python*/site-packages/every_eval_ever/schemas"), None)


@pytest.fixture
def results(tmp_path) -> Path:
    run = report_run.write_run(tmp_path)
    directory = run["results"]
    build(directory, directory / "report", **{key: value for key, value in run.items() if key != "results"})
    (directory / "summary" / "results.csv").write_text("model,value\nplain,0.5\n")
    (directory / "summary" / "complete.txt").touch()
    return directory


def publish(results: Path, folder: Path) -> int:
    return cli.main(["publish", str(results), str(folder), "--organization", "A lab"])


def records(folder: Path) -> dict[str, tuple[dict, list[dict]]]:
    """Return the record of each model by its name, and its lines."""
    content = {}
    for path in sorted((folder / "data").rglob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        detail = record["detailed_evaluation_results"]
        samples = folder / detail["file_path"]
        assert samples == path.with_name(f"{path.stem}_samples.jsonl")
        assert hashlib.sha256(samples.read_bytes()).hexdigest() == detail["checksum"]
        content[record["model_info"]["name"]] = record, [json.loads(line) for line in samples.open(encoding="utf-8")]
        assert len(content[record["model_info"]["name"]][1]) == detail["total_rows"]
    return content


def test_publication_has_report_tables_and_results_per_item(results, tmp_path, capsys):
    folder = tmp_path / "published"
    assert publish(results, folder) == 0
    assert "some results are missing" not in capsys.readouterr().out
    assert (folder / "report" / "index.html").exists()
    assert (folder / "tables" / "results.csv").read_bytes() == (results / "summary" / "results.csv").read_bytes()
    assert len(list((folder / "lm_eval").glob("*.json"))) == len(report_run.MODELS)
    published = records(folder)
    assert set(published) == set(report_run.MODELS)
    for model, (record, lines) in published.items():
        assert record["source_metadata"]["source_organization_name"] == "A lab"
        results_of_record = {result["evaluation_result_id"] for result in record["evaluation_results"]}
        assert {line["evaluation_result_id"] for line in lines} <= results_of_record
        path = results / model / "tasks" / f"{report_run.OPTIONS}.parquet"
        rows = {row["item_id"]: row for row in artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")}
        of_options = [line for line in lines if line["evaluation_name"] == report_run.OPTIONS]
        omitted = sum(int(count) for count in record["detailed_evaluation_results"]["additional_details"].values())
        assert {line["sample_id"] for line in of_options} <= set(rows)
        assert len({line["sample_id"] for line in of_options}) + omitted >= len(rows) > 200
        for line in of_options:
            row = rows[line["sample_id"]]
            assert line["evaluation"]["is_correct"] == row["correct"]
            assert line["input"]["reference"] == [row["choices"][i] for i in row["gold"]]


def test_samples_of_an_item_have_the_same_hash_for_all_models(results, tmp_path):
    assert publish(results, tmp_path / "published") == 0
    hashes = [
        {(line["sample_id"], line["evaluation_name"]): line["sample_hash"] for line in lines}
        for _, lines in records(tmp_path / "published").values()
    ]
    common = set.intersection(*map(set, hashes))
    assert len(common) > 200
    assert all(hashes[0][key] == other[key] for other in hashes[1:] for key in common)


@pytest.mark.skipif(SCHEMAS is None, reason="`make tools` installs the schema of Every Eval Ever")
def test_files_follow_the_schema_of_every_eval_ever(results, tmp_path):
    assert publish(results, tmp_path / "published") == 0
    validators = [
        jsonschema.Draft7Validator(json.loads((SCHEMAS / name).read_text("utf-8")))
        for name in ("eval.schema.json", "instance_level_eval.schema.json")
    ]
    assert all(validator.schema["version"] == "0.3.0" for validator in validators)
    for record, lines in records(tmp_path / "published").values():
        assert [error.message for error in validators[0].iter_errors(record)] == []
        for line in lines:
            assert line["evaluation_id"] == record["evaluation_id"]
            assert [error.message for error in validators[1].iter_errors(line)] == []


def test_path_of_this_machine_is_not_published(results, tmp_path, capsys):
    (results / "summary" / "notes.csv").write_text(f"note\n{Path.home()}/models/mine not found\n")
    folder = tmp_path / "published"
    assert publish(results, folder) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"tables/notes.csv: contains the path {Path.home()}/.")
    assert not folder.exists()
    assert not list(tmp_path.glob(".published*"))


@pytest.mark.parametrize("problem", ["not empty", "no summary"])
def test_wrong_argument_is_reported(results, tmp_path, capsys, problem):
    folder = tmp_path / "published"
    if problem == "not empty":
        folder.mkdir()
        (folder / "mine.txt").touch()
        assert publish(results, folder) == 1
        assert "is not empty" in capsys.readouterr().err
        assert (folder / "mine.txt").exists()
    else:
        assert publish(tmp_path, folder) == 1
        assert "no summary/results.parquet" in capsys.readouterr().err


@pytest.fixture
def publications(results, tmp_path) -> Path:
    """Two publications of the same models; in the second, the dataset of one evaluation is another."""
    folder = tmp_path / "publications"
    folder.mkdir()
    assert publish(results, folder / "lab") == 0
    path = results / "summary" / "results.parquet"
    table, metadata = artifacts.read(path, RESULTS), artifacts.metadata(path)
    rows = [
        row | ({"dataset_revision": "another"} if row["evaluation"] == report_run.SENTENCES else {})
        for row in table.to_pylist()
        if row["model"] != report_run.MODELS[2]
    ]
    path.unlink()
    artifacts.write(path, RESULTS, rows, {key: metadata[key] for key in ("models", "notes", "fingerprint")})
    assert publish(results, folder / "university") == 0
    return folder


def test_publications_are_joined_into_one_leaderboard(publications, tmp_path, capsys):
    assert cli.main(["join", str(publications), str(tmp_path / "joined")]) == 0
    assert "5 models of 2 publications" in capsys.readouterr().out
    values = pd.read_csv(tmp_path / "joined" / "results.csv", keep_default_na=False)
    shared = {f"{model} ({name})" for model in report_run.MODELS[:2] for name in ("lab", "university")}
    assert {name.lstrip("'") for name in values["model"]} == {*shared, report_run.MODELS[2]}
    published = [pd.read_parquet(path) for path in publications.glob("*/tables/results.parquet")]
    assert len(values) == sum(map(len, published))
    book = openpyxl.load_workbook(tmp_path / "joined" / "leaderboard.xlsx")
    assert {"overview", "provenance"} <= set(book.sheetnames)
    notes = pd.read_csv(tmp_path / "joined" / "notes.csv")
    assert set(notes["evaluation"]) == {report_run.SENTENCES}
    assert notes["note"].str.contains("dataset revisions: .*another").all()


def test_folder_without_publications_is_reported(tmp_path, capsys):
    assert cli.main(["join", str(tmp_path), str(tmp_path / "joined")]) == 1
    assert "no publications found" in capsys.readouterr().err
