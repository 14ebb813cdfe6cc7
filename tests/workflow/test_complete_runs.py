"""Complete runs of the workflow with a tiny random model: the first run, and later runs after changes.

The first runs share one directory and depend on each other; the run with added models and tasks continues stages that ran
in the tests' process, because it is left out with the slow tests, and then the first run would be repeated for it.
"""

import copy
import re

import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from support import lora_training
from support.workspace import ROOT, Workspace, output_tail
from vernacular import results
from vernacular.core import artifacts
from vernacular.core.errors import DataError

EVALUATIONS = [
    {
        "task": "openbookqa",
        "languages": ["gl"],
        "protocols": ["generation", "options", "letters"],
        "shots": [0, 2],
        "limit": 8,
    },
    {
        "task": "veritasqa",
        "languages": ["ca"],
        "protocols": ["generation"],
        "styles": ["default", "simil-eval"],
        "limit": 8,
    },
    {"task": "cola", "languages": ["es"], "limit": 8},
    {"task": "calame", "languages": ["gl"], "protocols": ["last_word"], "limit": 8},
    {"task": "xstorycloze", "languages": ["gl"], "protocols": ["minimal_pair"], "limit": 6},
    {"task": "palmx_culture", "languages": ["ar"], "protocols": ["letters"], "limit": 8},
    {"task": "serbian_cloze", "languages": ["sr"], "limit": 8},
    {"task": "target_word", "languages": ["en"], "limit": 8},
]


EVALUATION_IDS = {
    *(f"openbookqa.gl.{p}.{k}shot" for p in ("generation", "options", "letters") for k in (0, 2)),
    "veritasqa.ca.generation.0shot", "veritasqa.ca.generation.0shot.simil-eval", "cola.es.acceptability.0shot",
    "calame.gl.last_word.0shot", "xstorycloze.gl.minimal_pair.0shot", "palmx_culture.ar.letters.0shot",
    "serbian_cloze.sr.cloze.0shot", "target_word.en.target_word.0shot",
}  # fmt: skip


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("run"), EVALUATIONS)
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    workspace.first_output = run.stdout + run.stderr
    return workspace


def test_first_run_writes_every_documented_artifact(workspace):
    for evaluation in ("openbookqa.gl.generation.2shot", "openbookqa.gl.letters.0shot", "serbian_cloze.sr.cloze.0shot"):
        assert (workspace.directory / "results" / "requests" / f"{evaluation}.parquet").exists()
        assert (workspace.directory / "results" / "tiny" / "tasks" / f"{evaluation}.parquet").exists()
    names = {path.name for path in (workspace.directory / "results" / "summary").iterdir()}
    assert names == {
        "results.parquet",
        "results.csv",
        "wide.csv",
        "notes.csv",
        "similarity_summary.xlsx",
        "surprisal_summary.xlsx",
        "leaderboard.xlsx",
        "complete.txt",
        "tokenizers.xlsx",
        "lm_eval",
        "every_eval_ever",
        *(
            f"{name}.{kind}"
            for name in ("comparisons", "rankings", "overall", "prompts", "tokenizers", "deciding_models")
            for kind in ("parquet", "csv")
        ),
    }
    assert len(list((workspace.directory / "results" / "summary" / "lm_eval").glob("*.json"))) == 1
    exports = {path.name for path in (workspace.directory / "results" / "exports" / "tiny").rglob("*.*")}
    assert {"predictions.csv", "scores.txt", "outputs_log.csv", "results.jsonl"} <= exports


def test_every_artifact_has_a_unique_input_fingerprint(workspace):
    paths = [
        *workspace.directory.glob("resources/**/*.parquet"),
        *workspace.directory.glob("results/[!s]*/**/*.parquet"),
    ]
    fingerprints = {path: artifacts.metadata(path)["fingerprint"] for path in paths}
    assert len(fingerprints) > 50
    assert len(set(fingerprints.values())) == len(fingerprints)


def test_every_evaluation_has_values_and_every_value_has_its_provenance(workspace):
    results = workspace.results()
    assert set(results["evaluation"]) == {
        path.stem for path in (workspace.directory / "results" / "requests").glob("*.parquet")
    }
    assert results["signature"].notna().all()
    assert results["model_revision"].notna().all()
    assert results["dataset_revision"].notna().all()
    assert set(results.query("task == 'openbookqa'")["shots"]) == {0, 2}
    signatures = results.query("metric == 'cosine_accuracy' and category == ''").set_index("style")["signature"]
    assert signatures["default"].str.contains("encoder").all()
    assert "tiny" in signatures["simil-eval"], "Simil-Eval uses the evaluated model as encoder"


def test_workbooks_contain_the_values_of_the_results_table(workspace):
    results = workspace.results()
    book = openpyxl.load_workbook(workspace.directory / "results" / "summary" / "surprisal_summary.xlsx")
    assert {"gl", "es", "ar", "sr", "en"} <= set(book.sheetnames)
    cells = {cell.value for row in book["sr"].iter_rows() for cell in row}
    expected = results.query("language == 'sr' and metric == 'accuracy' and category == ''")["value"].iloc[0]
    assert any(isinstance(cell, float | int) and cell == pytest.approx(expected) for cell in cells)


def test_run_reports_its_stages_durations_and_output_directory(workspace):
    for stage in ("items", "requests", "model", "encoder", "infer", "collect", "similarity", "metrics", "summary"):
        assert re.search(rf"^{stage}: ", workspace.first_output, re.MULTILINE), stage
        assert re.search(rf"^{stage} +\d+ +[\d.]+", workspace.first_output, re.MULTILINE), stage
        assert list((workspace.directory / "logs" / stage).iterdir())
    assert re.search(r"^items: \d+ datasets read", workspace.first_output, re.MULTILINE)
    assert re.search(r"^requests: \d+ evaluations built", workspace.first_output, re.MULTILINE)
    assert "results/report/index.html" in workspace.first_output
    assert "results/summary/leaderboard.xlsx" in workspace.first_output


def test_results_are_read_as_data_frames(workspace):
    directory = workspace.directory / "results"
    values = results.values(directory).query("category == ''").set_index(["evaluation", "metric"])["value"]
    table = pd.read_csv(directory / "summary" / "results.csv")
    assert len(values) == table["category"].isna().sum()
    evaluation = "cola.es.acceptability.0shot"
    items = results.items(directory, "tiny", evaluation).set_index("item_id")
    assert values[evaluation, "good_mean"] == pytest.approx(items.query("label == 1")["surprisal"].mean())
    tokens = results.tokens(directory, "tiny", evaluation)
    sums = tokens.dropna(subset="logprob").groupby("item_id")["surprisal"].sum()
    assert sums.to_dict() == pytest.approx(items["surprisal"].to_dict(), rel=1e-5)
    with pytest.raises(DataError, match=r'"tiny2" not found. Did you mean "tiny"'):
        results.tokens(directory, "tiny2", evaluation)
    with pytest.raises(DataError, match=r"cola\.es\.acceptability\.0shot"):
        results.items(directory, "tiny", "cola.es.acceptability.1shot")
    with pytest.raises(DataError, match="not found"):
        results.changes(directory, "tiny", "other")


def test_job_loads_its_model_once_and_reports_it(workspace):
    metadata = [
        workspace.score_metadata("tiny", path.stem)
        for path in workspace.directory.glob("results/tiny/scores/*.parquet")
    ]
    assert sum(entry["counters"]["loads"] for entry in metadata) == 1


def test_second_run_has_nothing_to_do_also_if_a_model_is_touched(workspace):
    """Touching the files of the workflow is tested in test_reruns, with a clone."""
    for path in workspace.directory.glob("causal/*"):
        path.touch()
    run = workspace.run()
    assert run.returncode == 0
    assert "Nothing to be done" in run.stdout + run.stderr


def test_added_model_runs_only_that_model(workspace):
    workspace.config["models"]["masked"] = {"source": "./masked"}
    run = workspace.run("-n")
    assert "masked" in run.stdout
    planned = workspace.jobs(run)
    assert {rule: n for rule, n in planned.items() if n == 1} == planned
    assert set(planned) == {
        "model",
        "infer",
        "collect",
        "similarity",
        "metrics",
        "export",
        "compare",
        "changes",
        "summary",
        "report",
        "finish",
        "all",
    }


FEW = [
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "letters"], "shots": [0, 2], "limit": 4},
    {"task": "cola", "languages": ["es"], "limit": 8},
]
FEW_IDS = {
    *(f"openbookqa.gl.{p}.{k}shot" for p in ("generation", "letters") for k in (0, 2)), "cola.es.acceptability.0shot"
}  # fmt: skip


def _content(path) -> tuple[list[dict], dict]:
    return pq.read_table(path).to_pylist(), artifacts.metadata(path)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A workspace after a run with an adapter, a masked model, a task and an unavailable dataset, all added at once.

    Two results of the earlier run were deleted before; `previous` has the contents of all of them.
    """
    workspace = Workspace(tmp_path_factory.mktemp("extended"), FEW)
    workspace.config["similarity"]["metrics"] = ["moverscore"]
    assert workspace.run_stages(exports=True) == 0
    run = workspace.run()  # records what the stages wrote
    assert run.returncode == 0, output_tail(run)
    tasks = list(workspace.directory.glob("results/tiny/tasks/*.parquet"))
    deleted_paths = [
        workspace.directory / "results" / "tiny" / kind / "cola.es.acceptability.0shot.parquet"
        for kind in ("scores", "tasks")
    ]
    workspace.previous = {path: _content(path) for path in [*tasks, *deleted_paths]}
    models = workspace.config["models"]
    for path in deleted_paths:
        path.unlink()
    workspace.planned = workspace.planned_jobs()
    lora_training.train(workspace.directory / "causal", workspace.directory / "lora", steps=2)
    models |= {"masked": {"source": "./masked"}, "tuned": {"base": "tiny", "adapter": "./lora"}}
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    task |= {"task": "lost", "languages": {"gl": {"source": {"hub": "nobody/nothing", "split": "test"}}}}
    (workspace.directory / "mine").mkdir()
    (workspace.directory / "mine" / "lost.yaml").write_text(yaml.safe_dump(task))
    workspace.config["tasks"] = ["mine"]
    added = {"task": "openbookqa", "languages": ["es"], "protocols": ["generation"], "limit": 4}
    workspace.config["evaluations"] += [added, {"task": "lost", "data": "hub"}]
    workspace.second = workspace.run()
    return workspace


@pytest.mark.slow
def test_adapter_runs_in_the_job_of_its_base_and_deleted_results_are_rewritten_without_it(extended):
    assert extended.planned["collect"] == extended.planned["metrics"] == 1
    assert "infer" not in extended.planned
    assert len(extended.previous) > len(FEW_IDS)
    assert {path: _content(path) for path in extended.previous} == extended.previous
    log = (extended.directory / "logs" / "infer" / "tiny.1of1.log").read_text()
    # the adapter computes all, and the base the added task alone
    n_evaluations = len(FEW_IDS)
    assert f"{n_evaluations + 2} evaluations computed, {n_evaluations} evaluations found in the store" in log
    results = extended.results()
    assert set(results["model"]) == {"tiny", "masked", "tuned"}, "although a dataset is unavailable"
    assert set(results.query("model == 'tuned'")["adapter"]) == {"./lora"}
    assert results.query("model == 'tiny'")["adapter"].isna().all()
    comparisons = pd.read_parquet(extended.directory / "results" / "summary" / "comparisons.parquet")
    assert set(zip(comparisons["baseline"], comparisons["candidate"], strict=True)) == {("tiny", "tuned")}
    added = {"openbookqa.es.generation.0shot", "lost.gl.acceptability.0shot"}
    assert set(comparisons["evaluation"]) == {*FEW_IDS, *added}


@pytest.mark.slow
def test_protocols_not_applicable_to_a_masked_model_are_noted(extended):
    results = extended.results()
    notes = extended.notes()
    not_applicable = notes.query("model == 'masked' and kind == 'not applicable'")
    assert "letters requires a causal model, and masked is a masked model" in set(not_applicable["note"])
    assert "cola.es.acceptability.0shot" in set(results.query("model == 'masked'")["evaluation"])


@pytest.mark.slow
def test_added_task_computes_only_that_task_and_an_unavailable_dataset_is_reported(extended):
    log = (extended.directory / "logs" / "similarity" / "tiny.log").read_text()
    assert "1 evaluation computed, 2 up to date" in log
    run = extended.second
    assert run.returncode == 1
    assert "nobody/nothing" in run.stdout + run.stderr
    notes = extended.notes()
    assert set(notes.query("kind == 'unavailable'")["evaluation"]) == {"lost.gl.acceptability.0shot"}
    assert extended.planned_jobs()["items"] == 1, "the next run retries"


# the mistakes themselves are tested in tests/config; those against the schema are found before all others
@pytest.mark.parametrize(("mistakes", "fragments"), [
    (lambda c: (c["evaluations"][0].update(langauges=["gl"]), c["models"]["tiny"].update(dtype=32)),
     [["evaluations[0]", "langauges", "languages"], ["models.tiny.dtype", "32", "float32"]]),
    (lambda c: (c["evaluations"][0].update(task="openbook"), c["evaluations"][1].update(languages=["de"]), c["models"].update(empty={})),
     [["evaluations[0]", '"openbook"', '"openbookqa"'], ["evaluations[1]", "veritasqa", '"de"'], ["models.empty", '"source"']]),
], ids=["schema", "names"])  # fmt: skip
def test_config_errors_stop_the_run_each_with_its_location_in_one_line(workspace, mistakes, fragments):
    original = copy.deepcopy(workspace.config)
    try:
        mistakes(workspace.config)
        run = workspace.run()
    finally:
        workspace.config = original
    assert run.returncode == 1
    assert "Traceback" not in run.stdout + run.stderr
    lines = [line for line in run.stderr.splitlines() if line and not line.startswith("Using ")]
    assert len(lines) <= 2 * len(fragments)
    for parts in fragments:
        (line,) = (line for line in lines if all(part in line for part in parts))
        assert line.startswith("config.yaml, line ")
