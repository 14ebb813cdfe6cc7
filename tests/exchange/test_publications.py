"""Publications of other groups as external results: their models, values and signatures, and what does not match."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from support import report_run, specs
from support.published import published_run
from vernacular.comparison.compare import compare_all
from vernacular.config.load import load
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, DataError
from vernacular.exchange.external_results import Reference
from vernacular.exchange.publications import load_publication, published_signatures
from vernacular.metrics.schema import TASK_RESULTS, as_table

MODEL = report_run.MODELS[0]
EVALUATIONS = [{"task": "cola", "languages": ["gl"]}]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, Path]:
    """The results of a run, and its publication."""
    return published_run(tmp_path_factory.mktemp("run"), report_run.write_run)


def task_results(results: Path, model: str, evaluation: str = report_run.OPTIONS):
    return artifacts.read(results / model / "tasks" / f"{evaluation}.parquet", TASK_RESULTS)


def references(results: Path) -> dict[str, Reference]:
    return {report_run.OPTIONS: Reference("options", 0, task_results(results, report_run.MODELS[1]), [])}


def by_item(table) -> dict[str, dict]:
    return {row["item_id"]: row for row in table.to_pylist(maps_as_pydicts="strict")}


def test_published_results_are_those_of_the_run(run):
    results, publication = run
    tables, notes = load_publication(publication, MODEL, references(results))
    published, expected = by_item(tables[report_run.OPTIONS]), by_item(task_results(results, MODEL))
    assert published.keys() == expected.keys()
    for item, row in published.items():
        assert row["metrics"] == {"accuracy": expected[item]["metrics"]["accuracy"]}
        for name in ("prompt", "choices", "gold", "prediction", "predicted_indices", "correct", "tie", "flags"):
            assert row[name] == expected[item][name], name
    assert any(
        note.endswith(f"{report_run.N} of {report_run.N} items match the {report_run.N} items of {report_run.OPTIONS}.")
        for note in notes
    )
    assert published_signatures(publication, MODEL)[report_run.OPTIONS, "accuracy"] == "accuracy|v"


def test_published_model_is_compared_as_the_model_itself(run):
    results, publication = run
    own = {model: {report_run.OPTIONS: task_results(results, model)} for model in report_run.MODELS[:2]}
    published = load_publication(publication, MODEL, references(results))[0]
    evaluations = {report_run.OPTIONS: report_run.setting_of(report_run.OPTIONS) | {"prompt": "default"}}
    rows = [
        compare_all(
            [("a", "b")], {"a": baseline, "b": own[report_run.MODELS[1]]}, evaluations, resamples=200
        ).comparisons
        for baseline in (own[MODEL], published)
    ]
    expected, actual = ([row for row in side if row["metric"] == "accuracy" and not row["category"]] for side in rows)
    assert actual == expected
    assert actual[0]["n"] == report_run.N


def test_items_with_other_texts_do_not_match(run):
    results, publication = run
    rows = task_results(results, report_run.MODELS[1]).to_pylist(maps_as_pydicts="strict")
    for row in rows[: len(rows) // 2]:
        row["prompt"] += " (another wording)"
    other = {report_run.OPTIONS: Reference("options", 0, as_table(rows), [])}
    with pytest.raises(DataError, match=r"130 of 260 items match .*: fewer than 80 %; not used"):
        load_publication(publication, MODEL, other)


def edited(run, tmp_path, edit) -> Path:
    """Return a copy of the publication whose lines of MODEL and its options `edit` changed; None: removed."""
    copy = tmp_path / "lab"
    shutil.copytree(run[1], copy)
    [file] = [file for file in copy.rglob("*_samples.jsonl") if MODEL in file.name or MODEL in str(file.parent)]
    lines = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
    lines = [edit(line) if line["evaluation_name"] == report_run.OPTIONS else line for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines if line), "utf-8")
    return copy


def all_right(line):
    return line | {"evaluation": line["evaluation"] | {"score": 1.0, "is_correct": True}}


def test_scores_follow_from_the_outputs(run, tmp_path):
    results, copy = run[0], edited(run, tmp_path, all_right)
    tables, notes = load_publication(copy, MODEL, references(results))
    published, expected = by_item(tables[report_run.OPTIONS]), by_item(task_results(results, MODEL))
    assert {item: (row["metrics"], row["correct"]) for item, row in published.items()} == {
        item: ({"accuracy": row["metrics"]["accuracy"]}, row["correct"]) for item, row in expected.items()
    }
    n_wrong = sum(row["metrics"]["accuracy"] == 0 for row in expected.values())
    assert n_wrong > 10
    assert any(f"; {n_wrong} with other scores than follow from their outputs" in note for note in notes)


def test_scores_without_an_output_count_for_nothing(run, tmp_path):
    copy = edited(run, tmp_path, lambda line: all_right(line) | {"output": {"raw": [""]}})
    tables, _ = load_publication(copy, MODEL, references(run[0]))
    rows = by_item(tables[report_run.OPTIONS]).values()
    assert all(row["metrics"] == {} and row["correct"] is None and row["flags"] for row in rows)


def test_items_that_were_left_out_are_missing(run, tmp_path):
    copy = edited(run, tmp_path, lambda line: line if line["evaluation"]["is_correct"] else None)
    with pytest.raises(DataError, match=rf"match the {report_run.N} items of .*: fewer than 80 %; not used.* missing"):
        load_publication(copy, MODEL, references(run[0]))


def write_config(directory: Path, **external) -> list[Path]:
    config = {"models": {"tiny": {"source": "./tiny"}}, "data": "samples", "evaluations": EVALUATIONS}
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config | {"external_results": external}), "utf-8")
    return [path]


@pytest.fixture
def lab(run, tmp_path) -> Path:
    """A publication with names that a config may have."""
    folder = tmp_path / "lab"
    for file in run[1].rglob("*.json"):
        record = json.loads(file.read_text("utf-8"))
        if (name := record.get("model_info", {}).get("name")) and name != MODEL:
            record["model_info"]["name"] = "other" if "cmd" in name else "third"
        target = folder / file.relative_to(run[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(record), "utf-8")
    (folder / "tables").mkdir()
    (folder / "tables" / "results.parquet").touch()
    return folder


def test_each_model_of_a_publication_is_a_side_of_comparisons(lab, tmp_path):
    config = load(write_config(tmp_path, lab={"path": str(lab)}))
    assert set(config.external_results) == {f"lab-{MODEL}", "lab-other", "lab-third"}
    assert config.external_results["lab-other"] == {"path": str(lab), "model": "other"}
    assert ("lab-other", "tiny") in config.comparisons
    [file] = specs.external_results_spec(config)["external_results"]["lab-other"]["files"]
    assert file.endswith(".json")


def test_one_model_of_a_publication_has_the_name_of_its_entry(lab, tmp_path):
    config = load(write_config(tmp_path, theirs={"path": str(lab), "model": "other"}))
    assert config.external_results == {"theirs": {"path": str(lab), "model": "other"}}
    with pytest.raises(ConfigError, match=r'external_results\.theirs\.model: "othr" .* Did you mean "other"\?'):
        load(write_config(tmp_path, theirs={"path": str(lab), "model": "othr"}))
    (tmp_path / "mine.csv").write_text("item_id,correct\na,1\n")
    with pytest.raises(ConfigError, match=r"external_results\.theirs\.model: model requires a directory"):
        load(write_config(tmp_path, theirs={"path": str(tmp_path / "mine.csv"), "model": "x"}))
