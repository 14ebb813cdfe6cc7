"""Publications of other groups that are damaged or hostile: a value, or one line with file and reason; never more."""

import json
import random
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import report_prompts, specs, stages
from support.hostile_publications import damage
from support.malformed import NAMES
from support.optional import TOOLS_PACKAGES, needs_tools
from support.published import published_run
from support.workspace import ROOT
from vernacular import cli
from vernacular.comparison.schema import COMPARISONS, PROMPTS
from vernacular.config import dependencies
from vernacular.config.load import load, load_valid
from vernacular.core import artifacts, validate
from vernacular.core.errors import ConfigError, DataError, UserError
from vernacular.core.names import portable_problem, readable_problem
from vernacular.data.schema import ITEMS
from vernacular.exchange import publications
from vernacular.exchange.external_results import Reference, load_external_results
from vernacular.exchange.publications import (
    load_publication,
    published_lines,
    published_models,
    published_signatures,
)
from vernacular.metrics.metric import value_problem
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.stages.external import external as external_stage

EVALUATION, OTHER = report_prompts.EVALUATION, report_prompts.OTHER
SCHEMA = ROOT / "workflow" / "schemas" / "publication.schema.yaml"
SCHEMAS = (TOOLS_PACKAGES or ROOT) / "every_eval_ever" / "schemas"
LIMIT = 60  # seconds for one publication: a pipe, a device or an expensive pattern would take for ever


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, Path]:
    """The results of a run, and its publication without the report."""
    results, publication = published_run(tmp_path_factory.mktemp("run"), report_prompts.write_run)
    shutil.rmtree(publication / "report")
    return results, publication


@pytest.fixture
def lab(run, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(run[1], tmp_path / "publications" / "lab")


def references(results: Path) -> dict[str, Reference]:
    return {
        name: Reference("letters", 0, artifacts.read(results / "base" / "tasks" / f"{name}.parquet", TASK_RESULTS), [])
        for name in (EVALUATION, OTHER)
    }


def record_of(folder: Path, model: str = "tuned") -> Path:
    return next(
        file for file in folder.rglob("*.json")
        if json.loads(file.read_text("utf-8")).get("model_info", {}).get("name") == model
    )  # fmt: skip


def change_record(folder: Path, model: str = "tuned", **changes) -> Path:
    """Change the name of a model, or other keys of its record."""
    file = record_of(folder, model)
    record = json.loads(file.read_text("utf-8"))
    if "name" in changes:
        record["model_info"]["name"] = changes.pop("name")
    file.write_text(json.dumps(record | changes), "utf-8")
    return file


def change_lines(folder: Path, change, model: str = "tuned") -> Path:
    """Replace the lines of a model, which `change` gets and returns as objects."""
    file = record_of(folder, model)
    file = file.with_name(f"{file.stem}_samples.jsonl")
    lines = change([json.loads(line) for line in file.read_text("utf-8").splitlines()])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


def write_config(directory: Path, folders: dict[str, Path], **entries) -> list[Path]:
    external = {name: {"path": str(folder)} for name, folder in folders.items()}
    config = {
        "models": {"m": {"source": "./m"}},
        "data": "samples",
        "evaluations": [{"task": "cola", "languages": ["gl"]}],
    }
    path = directory / "hostile.yaml"
    path.write_text(yaml.safe_dump(config | {"external_results": external} | entries), "utf-8")
    return [path]


# --- generated publications


def check_message(error: UserError, folder: Path, how: str) -> None:
    """Check that a message is a line (a second one for advice) of limited length that names a file or the directory."""
    lines = str(error).splitlines()
    assert len(lines) <= 2, (how, lines)
    assert len(str(error)) < 1500, how
    assert str(error).isprintable() or all(line.isprintable() for line in lines), how
    assert folder.name in str(error), (how, str(error))


def check_values(tables: dict, how: str) -> None:
    for table in tables.values():
        for row in table.to_pylist(maps_as_pydicts="strict"):
            if not row["metrics"]:  # the output is none of the options
                assert row["flags"], how
                assert row["correct"] is None, how
                continue
            assert set(row["metrics"].values()) <= {0.0, 1.0}, how
            assert row["correct"] == (row["metrics"]["accuracy"] == 1), how


def stop(*_) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


def check_hostile(run, tmp_path, monkeypatch, seeds) -> dict[str, str]:
    """Damage a publication per seed, load and join all; return the reasons of those that were left out."""
    monkeypatch.chdir(tmp_path)
    signal.signal(signal.SIGALRM, stop)
    folder, hows = tmp_path / "publications", {}
    shutil.copytree(run[1], folder / "valid")
    for seed in seeds:
        one = shutil.copytree(run[1], folder / f"lab{seed}")
        hows[one.name] = damage(one, random.Random(seed))
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(folder)}
    for name, how in hows.items():
        signal.alarm(LIMIT)
        for model in report_prompts.MODELS:
            try:
                tables, notes = load_publication(folder / name, model, references(run[0]))
                published_signatures(folder / name, model)
            except DataError as error:
                check_message(error, folder / name, how)
            else:
                check_values(tables, how)
                assert all(len(note) < 2000 for note in notes), how
        config, problems = load_valid(write_config(tmp_path, {"lab": folder / name}))
        assert all(portable_problem(side) is None for pair in config.comparisons for side in pair) or problems, how
        dependencies.external_results_spec(config)
    signal.alarm(LIMIT * 10)
    assert cli.main(["join", str(folder), str(tmp_path / "joined")]) == 0
    signal.alarm(0)
    created = {path for path in tmp_path.rglob("*") if not path.is_relative_to(folder)} - before
    assert {path.relative_to(tmp_path).parts[0] for path in created} <= {"joined", "hostile.yaml", "secret.json"}
    values = pd.read_csv(tmp_path / "joined" / "results.csv", keep_default_na=False)
    assert all(readable_problem(name) is None for name in values["model"])
    shares = pd.to_numeric(values.loc[values["unit"] == "share", "value"])
    assert shares.dropna().between(0, 1).all()
    assert {"base (valid)", "tuned (valid)"} <= set(values["model"])
    notes = pd.read_csv(tmp_path / "joined" / "notes.csv")["note"]
    failed = notes[notes.str.startswith("publication lab")].str.split(": left out: ", expand=True)
    return dict(zip(failed[0].str.removeprefix("publication "), failed[1], strict=True))


@pytest.mark.slow
def test_generated_hostile_publications_end_in_a_value_or_one_line(run, tmp_path, monkeypatch):
    failed = check_hostile(run, tmp_path, monkeypatch, range(200))
    assert 80 < len(failed) < 200  # some damage is harmless, but most is not
    assert all(f"/{name}" in reason for name, reason in failed.items())


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1000, 6000, 250))
def test_many_generated_hostile_publications_end_in_a_value_or_one_line(run, tmp_path, monkeypatch, start):
    check_hostile(run, tmp_path, monkeypatch, range(start, start + 250))


# --- the kinds one by one


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_model_names_of_publications_become_no_ids_unless_they_can_be_directories(lab, tmp_path, name):
    change_record(lab, name=name)
    config, problems = load_valid(write_config(tmp_path, {"lab": lab}))
    sides = {side for pair in config.comparisons for side in pair} | set(config.external_results)
    if problems:
        with pytest.raises(ConfigError) as caught:
            problems.raise_all()
        assert len(str(caught.value).splitlines()) == 1
        assert "lab" in str(caught.value)
    else:
        assert all(portable_problem(side) is None for side in sides)
        assert f"lab-{name}" in sides or set(config.external_results) == {"lab"}  # of which no record is used


def test_publication_with_names_of_other_kinds_can_be_compared_by_one_model(lab, tmp_path, run):
    change_record(lab, name="meta/Llama 3 (8B)")
    config = write_config(tmp_path, {})
    text = yaml.safe_load(config[0].read_text())
    text["external_results"] = {"llama": {"path": str(lab), "model": "meta/Llama 3 (8B)"}}
    config[0].write_text(yaml.safe_dump(text))
    assert list(load(config).external_results) == ["llama"]
    assert EVALUATION in load_publication(lab, "meta/Llama 3 (8B)", references(run[0]))[0]


def test_names_that_differ_only_in_case_are_not_two_directories(lab, tmp_path):
    change_record(lab, name="BASE")
    with pytest.raises(ConfigError, match=r'the name "lab-BASE" is in use|the name "lab-base" is in use'):
        load(write_config(tmp_path, {"lab": lab}))


def test_check_names_file_and_reason_of_a_malformed_publication(lab, tmp_path, capsys):
    file = change_record(lab, evaluation_results=[{"evaluation_name": 5}])
    assert cli.main(["check", str(write_config(tmp_path, {"lab": lab})[0])]) == 1
    message = next(line for line in capsys.readouterr().err.splitlines() if "lab" in line)
    expected = f"external_results lab: {file.relative_to(tmp_path)}: evaluation_results[0]: the keys"
    assert message.startswith(expected)


def test_malformed_publication_is_the_failure_of_its_own_values(run, lab, tmp_path):
    """The config remains valid, also with comparisons that name a model; `compare` compares the others and notes it."""
    other = shutil.copytree(run[1], tmp_path / "publications" / "other")
    file = record_of(lab)
    file.write_text("{", "utf-8")
    pairs = [{"baseline": f"{name}-base", "candidate": "m"} for name in ("lab", "other")]
    config = load(write_config(tmp_path, {"lab": lab, "other": other}, comparisons=pairs))
    assert config.comparisons == [("lab-base", "m"), ("other-base", "m")]
    spec = specs.external_results_spec(config)
    assert "not valid JSON" in spec["external_results"]["lab-base"]["files"]["invalid"]
    compared, stated = compare_with(
        run[0], tmp_path, spec["external_results"], [("lab-base", "tuned"), ("other-base", "tuned")]
    )
    assert {row["baseline"] for row in compared} == {"other-base"}
    assert f"{file.relative_to(tmp_path)}: not valid JSON (" in json.dumps(stated, default=str)


def compare_with(results: Path, directory: Path, external: dict, pairs: list[tuple]) -> tuple[list[dict], dict]:
    """Return the comparisons of external results with the models of a run, and the metadata of their file."""
    evaluations = {EVALUATION: {**report_prompts.described(EVALUATION), "items_stem": "quiz.gl", "dataset": "quiz.gl"}}
    for model in report_prompts.MODELS:
        artifacts.write(directory / "run" / model / "metrics.parquet", METRICS, [], {"fingerprint": "f"})
        path = directory / "run" / model / "tasks" / f"{EVALUATION}.parquet"
        rows = artifacts.read(results / model / "tasks" / f"{EVALUATION}.parquet", TASK_RESULTS)
        artifacts.write(path, TASK_RESULTS, rows, {"fingerprint": "f"})
    artifacts.write(directory / "items" / "quiz.gl.parquet", ITEMS, [], {})
    spec = {"models": report_prompts.MODELS, "pairs": pairs, "external_results": external, "evaluations": evaluations}
    path = directory / "compared" / "external.parquet"
    fields = {"results": directory / "run", "items_dir": directory / "items", "out": path}
    external_stage(stages.arguments(external_stage, spec=spec, **fields))
    return artifacts.read(path, COMPARISONS).to_pylist(), artifacts.metadata(path)


def first_line(**changes):
    """Return a change of the first line, at keys `a__b`."""

    def change(lines: list[dict]) -> list[dict]:
        for key, value in changes.items():
            *outer, last = key.split("__")
            target = lines[0]
            for name in outer:
                target = target[name]
            target[last] = value
        return lines

    return change


LINES = {
    "share of 5": (first_line(evaluation__score=5.0), "line 1: evaluation.score: expected 0 or 1 for accuracy, got 5.0."),
    "share of 0.5": (first_line(evaluation__score=0.5), "line 1: evaluation.score: expected 0 or 1 for accuracy, got 0.5."),
    "boolean": (first_line(evaluation__score=True), "line 1: evaluation.score: expected a number, got true."),
    "huge": (first_line(evaluation__score=10**400), "line 1: evaluation.score: expected at most 1e+300, got 1000"),
    "NaN": (first_line(evaluation__score=float("nan")), "line 1: not valid JSON (NaN is not a number of JSON)."),
    "contradiction": (
        lambda lines: [line | {"evaluation": line["evaluation"] | {"is_correct": line["evaluation"]["score"] != 1}} for line in lines],
        "line 1: evaluation.is_correct contradicts the score, ",
    ),
    "two lines": (lambda lines: [*lines, lines[2]], f"line 49: second line of this item and of accuracy in {EVALUATION}"),
    "another result": (first_line(evaluation_result_id="x"), "line 1: evaluation_result_id is not one of "),
    "no output": (first_line(output__raw=[]), "line 1: output.raw: expected at least 1 list entry, got []."),
    "surrogate": (first_line(sample_id="\ud800"), "line 1: contains a lone surrogate, which is not text."),
    "no object": (lambda lines: [[], *lines], "line 1: expected a row (column: value), got list."),
    "zero width": (first_line(metadata="a\u200bb"), r'line 1: metadata: expected a mapping (key: value) or null, got "a\u200bb".'),
    "deep": (first_line(metadata=json.loads("[" * 150 + "]" * 150)), "line 1: nested too deeply."),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), LINES.values(), ids=LINES)
def test_line_that_is_not_valid_is_named_with_its_reason(run, lab, tmp_path, change, message):
    file = change_lines(lab, change)
    with pytest.raises(DataError) as caught:
        load_publication(lab, "tuned", references(run[0]))
    assert str(caught.value).startswith(f"{file.relative_to(tmp_path)}, {message}")
    assert load_publication(lab, "base", references(run[0]))[0]  # of the other model, nothing is lost


def test_lines_of_an_item_have_the_same_input_and_output(run, lab, tmp_path):
    """Each metric has a line; a second headline metric is added to the record."""

    def change(lines: list[dict]) -> list[dict]:
        line = {**lines[0], "evaluation_result_id": f"{lines[0]['evaluation_name']}/other"}
        return [*lines, line | {"output": {"raw": ["another"]}}]

    results = json.loads(record_of(lab).read_text("utf-8"))["evaluation_results"]
    file = change_lines(lab, change)
    name = json.loads(file.read_text("utf-8").splitlines()[0])["evaluation_name"]
    added = {
        "evaluation_result_id": f"{name}/other",
        "evaluation_name": name,
        "metric_config": {"metric_name": "other"},
    }
    change_record(lab, evaluation_results=[*results, added])
    with pytest.raises(DataError, match=r"line 49: input or output differs from that of another line of this item\.$"):
        load_publication(lab, "tuned", references(run[0]))


def test_missing_results_per_item_of_a_record_are_an_error(run, lab):
    file = change_record(lab)
    file.with_name(f"{file.stem}_samples.jsonl").unlink()
    with pytest.raises(DataError, match="the file of its results per item is missing"):
        load_publication(lab, "tuned", references(run[0]))


def test_range_of_a_value_is_that_of_its_metric():
    """A metric of a tool has the unit that is stated; a stated unit does not widen the range of a known one."""
    accuracy = next(metric for metric in PROTOCOL_METRICS["letters"].METRICS if metric.name == "accuracy")
    assert value_problem("accuracy", 0.5, "share", accuracy) is None
    assert value_problem("accuracy", 0.5, "share", accuracy, per_item=True)
    assert value_problem("accuracy", 1.5, "nats", accuracy)
    assert value_problem("acc_norm", 1.5, None)
    assert value_problem("exact_match", 1.5, "share")
    assert value_problem("exact_match", 1.5, "points") is None
    assert value_problem("cosine_mean", 1.1, "cosine")
    assert value_problem("cosine_margin", 1.1, "cosine") is None
    assert value_problem("chrf", 55.5, "score") is None
    assert value_problem("chrf", 101, "score")
    assert value_problem("mcc_char", -0.5, "score") is None
    assert value_problem("mcc_char", -1.5, "score")
    assert value_problem("surprisal", float("nan"), "nats")
    assert value_problem("accuracy", 1 + 1e-9, "share") is None


@pytest.mark.parametrize("name", ["a\u202eb", "n" * 1_000_000, "{model}"], ids=["bidi", "long", "braces"])
def test_name_of_an_evaluation_in_a_table_is_checked(tmp_path, name):
    (tmp_path / "mine.jsonl").write_text(json.dumps({"item_id": "a", "correct": 1, "evaluation": name}) + "\n")
    with pytest.raises(DataError, match=r"mine\.jsonl, line 1: evaluation \"") as caught:
        load_external_results(tmp_path / "mine.jsonl", {})
    assert len(str(caught.value)) < 500


# --- the schema


@needs_tools
@pytest.mark.parametrize(("part", "file"), [("record", "eval"), ("line", "instance_level_eval")])
def test_schema_is_a_part_of_that_of_every_eval_ever(part, file):
    """Each key that is read is one of Every Eval Ever, with a type that it permits."""
    theirs = json.loads((SCHEMAS / f"{file}.schema.json").read_text("utf-8"))

    def types(schema: dict) -> set[str]:
        kinds = schema.get("type", ["object", "string", "number", "null"])
        return {kinds} if isinstance(kinds, str) else set(kinds)

    def check(ours: dict, other: dict, path: str) -> None:
        if "$ref" in other:
            other = theirs["$defs"][other["$ref"].rpartition("/")[2]]
        assert types(ours) <= types(other), path
        for name, schema in ours.get("properties", {}).items():
            inner = other["properties"].get(name) if "properties" in other else None
            check(schema, inner or other["additionalProperties"], f"{path}.{name}")
        if "items" in ours:
            check(ours["items"], other["items"], f"{path}[]")

    check(validate.schema(SCHEMA)["$defs"][part], theirs, part)


def test_published_files_follow_the_schema(run):
    """Both validators, of which the compiled one decides, agree on what `publish` writes."""
    models = published_models(run[1])
    assert set(models) == set(report_prompts.MODELS)
    for model in models.values():
        lines = [line for _, line in published_lines(model.samples, run[1])]
        assert len(lines) == 48
        assert {validate.first_violation(line, validate.schema(SCHEMA)["$defs"]["line"]) for line in lines} == {None}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("MAX_RECORD", ".json: has"),
        ("MAX_SAMPLES", "_samples.jsonl: has"),
        ("MAX_LINE", "_samples.jsonl, line 1: has more than 99 bytes"),
        ("MAX_BYTES", "results.parquet: has"),
        ("MAX_ROWS", "rows; expected at most 99"),
    ],
)
def test_publication_above_a_limit_of_size_is_refused(run, lab, low_limits, limit, message):
    def read():
        models = published_models(lab)
        for model in models.values():
            list(published_lines(model.samples, lab))
        publications.read_tables(lab, PROMPTS)

    read()
    low_limits("exchange.publications", **{limit: 99 if limit != "MAX_ROWS" else 1})
    with pytest.raises(DataError, match=message.replace("99", "1") if limit == "MAX_ROWS" else message):
        read()
