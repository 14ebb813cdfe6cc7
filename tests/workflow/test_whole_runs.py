"""Whole runs of the workflow on a tiny model with random weights, made here: the main job, and what a second run does.

The runs share one folder and stand in the order of the story: a first run, the same again, a model more, a task more.
"""

import copy
import re

import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from support import adapting
from support.workplace import ROOT, Workplace, said
from vernacular.core import artifacts

EVALUATIONS = [
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options", "letters"], "shots": [0, 2]},
    {"task": "veritasqa", "languages": ["ca"], "protocols": ["generation"], "styles": ["default", "simil-eval"]},
    {"task": "cola", "languages": ["es"]},
    {"task": "calame", "languages": ["gl"], "protocols": ["last_word"]},
    {"task": "xstorycloze", "languages": ["gl"], "protocols": ["minimal_pair"]},
    {"task": "palmx_culture", "languages": ["ar"], "protocols": ["letters"]},
    {"task": "serbian_cloze", "languages": ["sr"]},
    {"task": "target_word", "languages": ["en"]},
]


ASKED = {
    *(f"openbookqa.gl.{p}.{k}shot" for p in ("generation", "options", "letters") for k in (0, 2)),
    "veritasqa.ca.generation.0shot", "veritasqa.ca.generation.0shot.simil-eval", "cola.es.acceptability.0shot",
    "calame.gl.last_word.0shot", "xstorycloze.gl.minimal_pair.0shot", "palmx_culture.ar.letters.0shot",
    "serbian_cloze.sr.cloze.0shot", "target_word.en.target_word.0shot",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Workplace(tmp_path_factory.mktemp("run"), EVALUATIONS)
    first = place.run()
    assert first.returncode == 0, said(first)
    place.said = first.stdout + first.stderr
    return place


def test_the_first_run_makes_every_artifact_of_the_contract(place):
    for evaluation in ("openbookqa.gl.generation.2shot", "openbookqa.gl.letters.0shot", "serbian_cloze.sr.cloze.0shot"):
        assert (place.folder / "results" / "requests" / f"{evaluation}.parquet").exists()
        assert (place.folder / "results" / "tiny" / "tasks" / f"{evaluation}.parquet").exists()
    names = {path.name for path in (place.folder / "results" / "summary").iterdir()}
    assert names == {
        "results.parquet",
        "results.csv",
        "wide.csv",
        "notes.csv",
        "similarity_summary.xlsx",
        "surprisal_summary.xlsx",
        "leaderboard.xlsx",
        "complete.txt",
        "lm_eval",
        "every_eval_ever",
        *(f"{name}.{kind}" for name in ("comparisons", "rankings", "overall") for kind in ("parquet", "csv")),
    }
    assert len(list((place.folder / "results" / "summary" / "lm_eval").glob("*.json"))) == 1
    written = {path.name for path in (place.folder / "results" / "exports" / "tiny").rglob("*.*")}
    assert {"predictions.csv", "scores.txt", "outputs_log.csv", "results.jsonl"} <= written


def test_every_artifact_names_what_it_was_made_of(place):
    paths = [*place.folder.glob("resources/**/*.parquet"), *place.folder.glob("results/[!s]*/**/*.parquet")]
    fingerprints = {path: artifacts.metadata(path)["fingerprint"] for path in paths}
    assert len(fingerprints) > 50
    assert len(set(fingerprints.values())) == len(fingerprints)


def test_every_evaluation_has_values_and_every_value_its_provenance(place):
    results = place.results()
    assert set(results["evaluation"]) == {
        path.stem for path in (place.folder / "results" / "requests").glob("*.parquet")
    }
    assert results["signature"].notna().all()
    assert results["model_revision"].notna().all()
    assert results["dataset_revision"].notna().all()
    assert set(results.query("task == 'openbookqa'")["shots"]) == {0, 2}
    encoders = results.query("metric == 'cosine_accuracy' and category == ''").set_index("style")["signature"]
    assert encoders["default"].str.contains("encoder").all()
    assert "tiny" in encoders["simil-eval"], "that tool measures with the evaluated model itself"


def test_the_workbooks_hold_the_numbers_of_the_long_table(place):
    results = place.results()
    book = openpyxl.load_workbook(place.folder / "results" / "summary" / "surprisal_summary.xlsx")
    assert {"gl", "es", "ar", "sr", "en"} <= set(book.sheetnames)
    cells = {cell.value for row in book["sr"].iter_rows() for cell in row}
    wanted = results.query("language == 'sr' and metric == 'accuracy' and category == ''")["value"].iloc[0]
    assert any(isinstance(cell, float | int) and cell == pytest.approx(wanted) for cell in cells)


def test_the_run_says_what_it_made_how_long_it_took_and_where_the_results_lie(place):
    for stage in ("items", "requests", "model", "encoder", "infer", "collect", "similarity", "metrics", "summary"):
        assert re.search(rf"^{stage}: ", place.said, re.MULTILINE), stage
        assert re.search(rf"^{stage} +\d+ +[\d.]+", place.said, re.MULTILINE), stage
        assert list((place.folder / "logs" / stage).iterdir())
    assert "Results in results/summary:" in place.said


def test_a_job_loads_its_model_once_and_says_so(place):
    scored = [place.answered("tiny", path.stem) for path in place.folder.glob("results/tiny/scores/*.parquet")]
    assert sum(note["counters"]["loads"] for note in scored) == 1


def test_a_second_run_has_nothing_to_do(place):
    again = place.run()
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr


def test_touching_a_model_reruns_nothing(place):
    """The workflow's own files are touched in test_what_reruns, in a copy."""
    for path in place.folder.glob("causal/*"):
        path.touch()
    assert place.planned() == {}


@pytest.mark.slow
def test_a_deleted_result_is_laid_out_again_without_loading_the_model(place):
    gone = [
        place.folder / "results" / "tiny" / kind / "cola.es.acceptability.0shot.parquet" for kind in ("scores", "tasks")
    ]
    before = [artifacts.metadata(path) for path in gone]
    for path in gone:
        path.unlink()
    assert "infer" not in place.planned()
    assert place.run().returncode == 0
    assert [artifacts.metadata(path) for path in gone] == before


def test_one_model_more_runs_that_model_and_nothing_else(place):
    place.config["models"]["masked"] = {"source": "./masked"}
    run = place.run("-n")
    assert "masked" in run.stdout
    planned = place.jobs(run)
    assert {rule: n for rule, n in planned.items() if n == 1} == planned
    assert set(planned) == {
        "model",
        "infer",
        "collect",
        "similarity",
        "metrics",
        "export",
        "compare",
        "summary",
        "report",
        "verify",
        "all",
    }


def test_an_adapter_is_asked_in_the_job_of_its_base_and_compared_with_it(place):
    """In one run with the masked model of the test before."""
    adapting.train(place.folder / "causal", place.folder / "lora", steps=2)
    place.config["models"]["tuned"] = {"base": "tiny", "adapter": "./lora"}
    run = place.run()
    assert run.returncode == 0, said(run)
    log = (place.folder / "logs" / "infer" / "tiny.1of1.log").read_text()
    assert f"{len(ASKED)} evaluations computed, {len(ASKED)} evaluations found in the store" in log
    results = place.results()
    assert set(results["model"]) == {"tiny", "masked", "tuned"}
    assert set(results.query("model == 'tuned'")["adapter"]) == {"./lora"}
    assert results.query("model == 'tiny'")["adapter"].isna().all()
    compared = pd.read_parquet(place.folder / "results" / "summary" / "comparisons.parquet")
    assert set(zip(compared["baseline"], compared["candidate"], strict=True)) == {("tiny", "tuned")}
    assert set(compared["evaluation"]) == ASKED


def test_what_does_not_apply_to_a_masked_model_is_named(place):
    results = place.results()
    notes = place.notes()
    refused = notes.query("model == 'masked' and kind == 'not applicable'")
    assert "letters requires a causal model, and masked is a masked model" in set(refused["note"])
    assert "cola.es.acceptability.0shot" in set(results.query("model == 'masked'")["evaluation"])


def _content(path) -> tuple[list[dict], dict]:
    return pq.read_table(path).to_pylist(), artifacts.metadata(path)


@pytest.mark.slow
def test_one_task_more_computes_that_task_alone(place):
    place.config["evaluations"].append({"task": "global_piqa", "languages": ["pt"]})
    before = {p: _content(p) for p in place.folder.glob("results/tiny/tasks/*.parquet")}
    assert place.run().returncode == 0
    assert "2 evaluations computed" in (place.folder / "logs" / "infer" / "tiny.1of1.log").read_text()
    assert before
    assert {path: _content(path) for path in before} == before


@pytest.mark.slow
def test_a_set_that_cannot_be_had_is_named_and_the_rest_goes_on(place):
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    task |= {"task": "lost", "languages": {"gl": {"source": {"hub": "nobody/nothing", "split": "test"}}}}
    (place.folder / "mine").mkdir()
    (place.folder / "mine" / "lost.yaml").write_text(yaml.safe_dump(task))
    place.config["tasks"] = ["mine"]
    place.config["evaluations"].append({"task": "lost", "data": "hub"})
    run = place.run()
    assert run.returncode == 1
    assert "nobody/nothing" in run.stdout + run.stderr
    notes = place.notes()
    assert set(notes.query("kind == 'unavailable'")["evaluation"]) == {"lost.gl.acceptability.0shot"}
    assert set(place.results()["model"]) == {"tiny", "masked", "tuned"}, "the summary of the rest is there"
    assert place.planned()["items"] == 1, "the next run tries again"


@pytest.mark.parametrize(
    ("break_it", "parts"),
    [
        (lambda c: c["evaluations"][0].update(langauges=["gl"]), ["evaluations[0]", "langauges", "languages"]),
        (lambda c: c["evaluations"][0].update(task="openbook"), ["evaluations[0]", '"openbook"', '"openbookqa"']),
        (lambda c: c["evaluations"][0].update(languages=["de"]), ["evaluations[0]", "openbookqa", '"de"']),
        (lambda c: c["models"].update(empty={}), ["models.empty", '"source"']),
        (lambda c: c["models"]["tiny"].update(dtype=32), ["models.tiny.dtype", "32", "float32"]),
    ],
    ids=["key", "task", "language", "missing key", "value"],
)
def test_an_error_in_the_config_stops_the_run_in_one_line_with_its_place(place, break_it, parts):
    kept = copy.deepcopy(place.config)
    try:
        break_it(place.config)
        run = place.run()
    finally:
        place.config = kept
    assert run.returncode == 1
    assert "Traceback" not in run.stdout + run.stderr
    lines = [line for line in run.stderr.splitlines() if line and not line.startswith("Using ")]
    assert len(lines) <= 2
    assert lines[0].startswith("config.yaml, line ")
    assert [part for part in parts if part not in run.stderr] == []
