"""Command `publish`: what it writes, results per item in the Every Eval Ever format, and no path of this machine."""

import hashlib
import json
import shutil
from pathlib import Path

import huggingface_hub
import jsonschema
import openpyxl
import pandas as pd
import pytest
from support import report_prompts, report_run
from support.optional import TOOLS_PACKAGES, needs_tools
from support.published import contents
from support.workspace import ROOT
from vernacular import cli
from vernacular.commands import publish as publish_module
from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import UserError
from vernacular.core.model_record import ModelRecord
from vernacular.core.tables import write_csv
from vernacular.metrics.schema import METRICS, RESULTS, TASK_RESULTS
from vernacular.report.page import build

SCHEMAS = (TOOLS_PACKAGES or ROOT) / "every_eval_ever" / "schemas"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    run = report_run.write_run(tmp_path_factory.mktemp("written"))
    directory = run["results"]
    build(directory, directory / "report", **{key: value for key, value in run.items() if key != "results"})
    (directory / "summary" / "results.csv").write_text("model,value\nplain,0.5\n")
    (directory / "summary" / "complete.txt").touch()
    return directory


@pytest.fixture
def results(written, tmp_path) -> Path:
    """A copy of the results, which a test may change."""
    return shutil.copytree(written, tmp_path / "results")


def publish(results: Path, folder: Path) -> int:
    return cli.main(["publish", str(results), str(folder), "--organization", "A lab", "--relationship", "third_party"])


def rewrite(path: Path, kind: artifacts.Kind, rows: list[dict], **changes) -> None:
    """Replace the rows of a file, and parts of its metadata."""
    metadata = artifacts.metadata(path, allow_moved=True)
    del metadata["kind"]
    path.unlink()
    artifacts.write(path, kind, rows, metadata | changes)


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


@pytest.mark.parametrize("n_rows", [1, 3, 259, 260])
def test_lines_do_not_depend_on_the_rows_read_at_a_time(results, tmp_path, low_limits, n_rows):
    assert publish(results, tmp_path / "whole") == 0
    low_limits("exchange.every_eval_ever", ROWS_AT_A_TIME=n_rows)
    assert publish(results, tmp_path / "parts") == 0
    whole, parts = records(tmp_path / "whole"), records(tmp_path / "parts")
    assert [len(lines) for _, lines in whole.values()] == [len(lines) for _, lines in parts.values()]
    for name, (_, lines) in whole.items():
        without_time = [[line | {"evaluation_id": None} for line in side] for side in (lines, parts[name][1])]
        assert without_time[0] == without_time[1]


def test_a_model_that_failed_has_no_metrics_to_publish(results, tmp_path):
    describe_models(results, {name: {} for name in [*report_run.MODELS, "failed"]})
    (results / "failed" / "metrics.parquet").unlink()
    assert publish(results, tmp_path / "published") == 0
    assert set(records(tmp_path / "published")) == set(report_run.MODELS)


@pytest.mark.parametrize("chunk", [1, 5, 7, 1000])
def test_private_text_across_two_parts_of_a_file_is_found(tmp_path, low_limits, chunk):
    low_limits("commands.publish", CHUNK=chunk)
    folder = tmp_path / "folder"
    folder.mkdir()
    for position in range(9):
        (folder / "lines.jsonl").write_text("x" * position + "/srv/checkpoints/secret" + "y" * 9)
        with pytest.raises(UserError, match=r"lines\.jsonl: contains the path /srv/checkpoints/secret"):
            publish_module.check_nothing_private(folder, [], ["/srv/checkpoints/secret"], [])
    (folder / "lines.jsonl").write_text("/srv/checkpoints/" + "x" * 9 + "secret")
    publish_module.check_nothing_private(folder, [], ["/srv/checkpoints/secret"], [])


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
        assert record["source_metadata"]["evaluator_relationship"] == "third_party"
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


@needs_tools
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


@pytest.mark.parametrize("place", ["working directory", "directory of the run"])
def test_other_paths_of_this_machine_are_not_published(results, tmp_path, monkeypatch, capsys, place):
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (tmp_path / "link").symlink_to(tmp_path / "deep")
    (tmp_path / "deep").mkdir()
    results.rename(tmp_path / "deep" / "results")
    named = elsewhere if place == "working directory" else tmp_path / "deep"
    (tmp_path / "deep" / "results" / "summary" / "notes.csv").write_text(f"note\n{named}/config.yaml not found\n")
    assert publish(tmp_path / "link" / "results", tmp_path / "published") == 1
    assert capsys.readouterr().err.startswith(f"tables/notes.csv: contains the path {named}/.")


SERVED = {
    report_run.MODELS[0]: {"source": "http://node7:8000/v1", "served model": "org/name", "engine": "vLLM", "engine version": "0.20"},
    report_run.MODELS[1]: {"source": "https://api.example.org/v1", "served model": "large-2"},
    report_run.MODELS[2]: {"source": "http://127.0.0.1:8080/v1", "served model": "/data/models/x.gguf", "served file": "x.gguf"},
}  # fmt: skip
PRIVATE = ("node7", "127.0.0.1", ":8080", "/data/models", "sk-very-secret-0123")


def describe_models(results: Path, models: dict[str, dict]) -> None:
    """Store descriptions of the models, as the command `summary` does."""
    path = results / "summary" / "results.parquet"
    models = [{"name": name, **description} for name, description in models.items()]
    rewrite(path, RESULTS, artifacts.read(path, RESULTS).to_pylist(), models=models)
    for model in models:
        artifacts.write(
            results / model["name"] / "metrics.parquet", METRICS, [], {"fingerprint": "x", "evaluations": {}}
        )


def add_flags(results: Path, flags: str) -> None:
    """Flag the first item of an evaluation."""
    path = results / report_run.MODELS[0] / "tasks" / f"{report_run.OPTIONS}.parquet"
    rows = artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")
    rows[0]["flags"] = flags
    rewrite(path, TASK_RESULTS, rows)


def test_addresses_of_private_servers_are_not_published(results, tmp_path, monkeypatch):
    monkeypatch.setenv("NODE_API_KEY", "sk-very-secret-0123")
    describe_models(results, SERVED)
    add_flags(results, "error: the server refused the request (HTTP 404: node 127.0.0.1 has no /data/models/y)")
    run = {"models": report_run.MODELS, "evaluations": report_run.EVALUATIONS, "changes": {}}
    records = [ModelRecord(name=name, source=model["source"]) for name, model in SERVED.items()]
    shutil.rmtree(results / "report")
    build(results, results / "report", records=records, **run)
    assert publish(results, tmp_path / "published") == 0
    files = contents(tmp_path / "published")
    assert len(files) > 30
    assert [(name, text) for name, content in files.items() for text in PRIVATE if text.encode() in content] == []
    assert any(b"https://api.example.org/v1" in content for content in files.values())
    node, platform, local = (records_of_models(tmp_path / "published")[model] for model in report_run.MODELS)
    assert node["id"] == "org/name"
    assert node["inference_engine"] == {"name": "vLLM", "version": "0.20"}
    assert "inference_platform" not in node
    assert node["additional_details"]["deployment_type"] == "self_deployed"
    assert platform["id"] == "api.example.org/large-2"
    assert platform["inference_platform"] == "api.example.org"
    assert platform["additional_details"]["deployment_type"] == "externally_managed"
    assert local["id"].startswith("local/")
    assert local["additional_details"]["served_file"] == "x.gguf"


def records_of_models(folder: Path) -> dict[str, dict]:
    return {name: record["model_info"] for name, (record, _) in records(folder).items()}


@needs_tools
def test_served_models_follow_the_schema_of_every_eval_ever(results, tmp_path):
    describe_models(results, SERVED)
    assert publish(results, tmp_path / "published") == 0
    validator = jsonschema.Draft7Validator(json.loads((SCHEMAS / "eval.schema.json").read_text("utf-8")))
    for record, _ in records(tmp_path / "published").values():
        assert [error.message for error in validator.iter_errors(record)] == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("notes.csv", "node7:8000", "the address http://node7:8000/v1"),
        ("notes.csv", "sk-very-secret-0123", "the value of the environment variable NODE_API_KEY"),
        ("notes.csv", "/data/models/x", "the path /data/models/x"),
        ("notes.csv", "/data/adapters/y", "the path /data/adapters/y"),
        ("notes.xlsx", "sk-very-secret-0123", "the value of the environment variable NODE_API_KEY"),
    ],
)
def test_private_text_that_remains_in_a_file_stops_the_publication(
    results, tmp_path, monkeypatch, capsys, file, text, message
):
    monkeypatch.setenv("NODE_API_KEY", "sk-very-secret-0123")
    described = SERVED[report_run.MODELS[0]], {"source": "/data/models/x", "adapter source": "/data/adapters/y"}
    describe_models(results, dict(zip(report_run.MODELS, described, strict=False)))
    path = results / "summary" / file
    if path.suffix == ".csv":
        path.write_text(f"note\n{text} not found\n")
    else:
        book = openpyxl.Workbook()
        book.active.append([text])
        book.save(path)
    assert publish(results, tmp_path / "published") == 1
    assert f"tables/{file}: contains {message}. Nothing is published" in capsys.readouterr().err
    assert not (tmp_path / "published").exists()


KEY = """pass-"word"&/ß"""  # short, and escaped in other ways in each format


def write_text(path: Path, text: str) -> None:
    """Write a text to a file of a table: as CSV, in a workbook, or in a column of Parquet."""
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        book.active.append([text])
        book.save(path)
    elif path.suffix == ".csv":
        write_csv(path, pd.DataFrame({"note": [text]}))
    else:
        rows = artifacts.read(path, RESULTS).to_pylist()
        rewrite(path, RESULTS, [row | {"signature": f"x{text}"} for row in rows])


@pytest.mark.parametrize("file", ["notes.csv", "notes.xlsx", "results.parquet"])
def test_key_of_a_server_is_searched_for_whatever_its_variable_is_called(results, tmp_path, monkeypatch, capsys, file):
    path = results / "summary" / "results.parquet"
    rewrite(path, RESULTS, artifacts.read(path, RESULTS).to_pylist(), api_key_env=["CAFE"])
    write_text(results / "summary" / file, f"a {KEY} b")
    monkeypatch.setenv("CAFE", f" {KEY}\n")
    assert publish(results, tmp_path / "published") == 1
    message = capsys.readouterr().err
    place = "data/" if file == "results.parquet" else f"tables/{file}"  # the first file of those that contain it
    assert message.startswith(place)
    assert ": contains the value of the environment variable CAFE. Nothing is published" in message
    assert KEY not in message
    monkeypatch.setenv("CAFE", "another-key")
    assert publish(results, tmp_path / "published") == 0
    assert "not searched" not in capsys.readouterr().out
    recorded = artifacts.metadata(tmp_path / "published" / "tables" / "results.parquet", allow_moved=True)
    assert "api_key_env" not in recorded


def test_path_of_an_adapter_is_not_published(results, tmp_path):
    path = results / "summary" / "results.parquet"
    rows = artifacts.read(path, RESULTS).to_pylist()
    rewrite(path, RESULTS, [row | {"adapter": "/data/adapters/y"} for row in rows])
    assert publish(results, tmp_path / "published") == 0
    published = artifacts.read(tmp_path / "published" / "tables" / "results.parquet", RESULTS, allow_moved=True)
    assert [name for name in set(published["adapter"].to_pylist()) if "/data" in name] == []
    assert len(set(published["adapter"].to_pylist())) == 1


@pytest.mark.parametrize("key", [None, "", "EMPTY"])
def test_key_that_was_not_searched_for_is_named(results, tmp_path, monkeypatch, capsys, key):
    path = results / "summary" / "results.parquet"
    rewrite(path, RESULTS, artifacts.read(path, RESULTS).to_pylist(), api_key_env=["CAFE", "TEA"])
    (results / "summary" / "notes.csv").write_text("note\nEMPTY\n")
    monkeypatch.setenv("TEA", "longer-than-that")
    if key is None:
        monkeypatch.delenv("CAFE", raising=False)
    else:
        monkeypatch.setenv("CAFE", key)
    assert publish(results, tmp_path / "published") == 0
    assert "; not searched for the key in CAFE (not set, or too short)" in capsys.readouterr().out


def test_token_of_the_hub_in_its_file_is_searched_for(results, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    token = Path(huggingface_hub.constants.HF_TOKEN_PATH)
    token.write_text("hub-token-0123456789")
    (results / "summary" / "notes.csv").write_text("note\nhub-token-0123456789\n")
    try:
        assert publish(results, tmp_path / "published") == 1
    finally:
        token.unlink()
    assert "tables/notes.csv: contains the token of the Hub." in capsys.readouterr().err


@pytest.mark.parametrize("value", ["disabled", "on"])
def test_short_value_of_a_variable_that_is_named_like_a_key_is_none(results, tmp_path, monkeypatch, value):
    monkeypatch.setenv("TOKENIZER_TOKEN", value)
    (results / "summary" / "notes.csv").write_text(f"note\n{value}\n")
    assert publish(results, tmp_path / "published") == 0


@pytest.mark.parametrize("problem", ["not empty", "no summary", "no report"])
def test_wrong_argument_is_reported(results, tmp_path, capsys, problem):
    folder = tmp_path / "published"
    if problem == "not empty":
        folder.mkdir()
        (folder / "mine.txt").touch()
        assert publish(results, folder) == 1
        assert "is not empty" in capsys.readouterr().err
        assert (folder / "mine.txt").exists()
    elif problem == "no summary":
        assert publish(tmp_path, folder) == 1
        assert "no summary/results.parquet" in capsys.readouterr().err
    else:
        shutil.rmtree(results / "report")
        assert publish(results, folder) == 1
        assert "no report/index.html" in capsys.readouterr().err


@pytest.fixture
def publications(results, tmp_path) -> Path:
    """Two publications of the same models; in the second, the dataset of one evaluation is another."""
    folder = tmp_path / "publications"
    folder.mkdir()
    assert publish(results, folder / "lab") == 0
    path = results / "summary" / "results.parquet"
    rows = [
        row | ({"dataset_revision": "another"} if row["evaluation"] == report_run.SENTENCES else {})
        for row in artifacts.read(path, RESULTS).to_pylist()
        if row["model"] != report_run.MODELS[2]
    ]
    rewrite(path, RESULTS, rows)
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


@pytest.fixture
def wordings(tmp_path) -> Path:
    """Two publications: one evaluates a task under three prompts, the other under the default prompt only."""
    folder, run = tmp_path / "wordings", report_prompts.write_run(tmp_path / "run")
    results = run.pop("results")
    build(results, results / "report", **run)
    folder.mkdir()
    assert publish(results, folder / "three") == 0
    rows = artifacts.read(results / "summary" / "results.parquet", RESULTS).to_pylist()
    rows = [row for row in rows if row["model"] == "base" and row["prompt"] == "default"]
    rewrite(results / "summary" / "results.parquet", RESULTS, rows)
    rewrite(results / "summary" / "prompts.parquet", PROMPTS, [])
    assert publish(results, folder / "one") == 0
    return folder


def test_means_over_prompts_and_single_prompts_are_named_in_the_joined_leaderboard(wordings, tmp_path):
    assert cli.main(["join", str(wordings), str(tmp_path / "joined")]) == 0
    book = openpyxl.load_workbook(tmp_path / "joined" / "leaderboard.xlsx")
    sheet = book["gl"]
    columns = {
        tuple(sheet.cell(row, column).value for row in (1, 2)): column for column in range(2, sheet.max_column + 1)
    }
    settings = {setting for _, setting in columns if setting}
    assert settings == {
        "letters · 0 shots",
        "letters · 0 shots · mean over prompts",
        "letters · 0 shots · prompt default",
    }
    wide = pd.read_csv(tmp_path / "joined" / "wide.csv").set_index("model")
    quiz = wide.filter(like="gl / quiz / ")
    assert list(quiz.columns) == [
        f"gl / quiz / letters 0 shots {prompt} / Accuracy (share)"
        for prompt in ("mean over prompts", "prompt default", "prompt formal", "prompt short")
    ]
    assert set(quiz.loc["base (one)"].dropna().index) == {quiz.columns[1]}
    assert quiz.loc["tuned"].notna().all()


def test_means_over_other_prompts_are_noted(wordings, tmp_path):
    path = wordings / "three" / "tables" / "prompts.parquet"
    rows = artifacts.read(path, PROMPTS, allow_moved=True).to_pylist()
    assert {tuple(row["prompts"]) for row in rows} == {("default", "formal", "short")}
    shutil.copytree(wordings / "three", wordings / "four")
    rewrite(
        wordings / "four" / "tables" / "prompts.parquet", PROMPTS, [row | {"prompts": ["default", "x"]} for row in rows]
    )
    assert cli.main(["join", str(wordings), str(tmp_path / "joined")]) == 0
    notes = pd.read_csv(tmp_path / "joined" / "notes.csv")
    [note] = notes[notes["evaluation"] == report_prompts.MEAN]["note"]
    assert (
        note == "prompts: default, x (base (four), tuned (four)); default, formal, short (base (three), tuned (three))"
    )


def test_items_with_other_texts_are_noted(publications, tmp_path):
    changed = 0
    for path in (publications / "lab").rglob("*_samples.jsonl"):
        lines = [json.loads(line) for line in path.open(encoding="utf-8")]
        for line in lines:
            if line["sample_id"] in ("i1", "i2"):
                line["sample_hash"], changed = "another", changed + 1
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert changed
    assert cli.main(["join", str(publications), str(tmp_path / "joined")]) == 0
    notes = pd.read_csv(tmp_path / "joined" / "notes.csv")
    [note] = notes[notes["evaluation"] == report_run.OPTIONS]["note"]
    assert note.startswith("texts: 2 of ")
    assert note.endswith("common items have another prompt or other answers (lab, university)")
