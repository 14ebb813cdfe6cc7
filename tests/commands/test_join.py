"""Command `join`: names in use, what is not comparable, and publications that are not valid."""

import json
import shutil
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
from support import report_prompts
from support.published import published_run
from vernacular import cli
from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.metrics.schema import RESULTS

EVALUATION = report_prompts.OTHER  # with one prompt


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    _, publication = published_run(tmp_path_factory.mktemp("run"), report_prompts.write_run)
    shutil.rmtree(publication / "report")
    return publication


@pytest.fixture
def folder(published, tmp_path, monkeypatch) -> Path:
    """Publications A and B."""
    monkeypatch.chdir(tmp_path)
    for name in "AB":
        shutil.copytree(published, tmp_path / "publications" / name)
    return tmp_path / "publications"


def change(publication: Path, kind: artifacts.Kind = RESULTS, keep=lambda row: True, **changes) -> None:
    """Keep some rows of a table, and change columns, each by a function of its value."""
    path = publication / "tables" / f"{kind.name}.parquet"
    rows = [row for row in artifacts.read(path, kind, allow_moved=True).to_pylist() if keep(row)]
    rows = [row | {name: changes[name](row[name]) for name in changes} for row in rows]
    path.unlink()
    artifacts.write(path, kind, rows, {"fingerprint": "x"})


def rename(publication: Path, names: dict[str, str]) -> None:
    for kind, columns in ((RESULTS, ("model", "base")), (PROMPTS, ("model", "baseline"))):
        change(publication, kind, **{column: lambda name: names.get(name, name) for column in columns})


def join(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the values and the notes of all publications in a directory."""
    out = folder.parent / "joined"
    shutil.rmtree(out, ignore_errors=True)
    assert cli.main(["join", str(folder), str(out)]) == 0
    return pd.read_csv(out / "results.csv", keep_default_na=False), pd.read_csv(
        out / "notes.csv", keep_default_na=False
    )


def accuracy(values: pd.DataFrame, model: str) -> float:
    [value] = values[(values["model"] == model) & (values["evaluation"] == EVALUATION)]["value"]
    return float(value)


def test_new_name_of_a_model_is_not_that_of_another_model(folder):
    """`base` of A would become `base (A)`, which is a model of B."""
    rename(folder / "B", {"tuned": "base (A)"})
    change(folder / "B", value=lambda value: 0.125)
    values, _ = join(folder)
    assert set(values["model"]) == {"base (A) (2)", "base (B)", "tuned", "base (A)"}
    assert accuracy(values, "base (A)") == 0.125, "as stated: without results per item under this name"
    assert accuracy(values, "base (A) (2)") != 0.125


def test_models_whose_names_differ_only_in_case_are_told_apart(folder):
    rename(folder / "B", {"base": "BASE", "tuned": "other"})
    assert set(join(folder)[0]["model"]) == {"base (A)", "BASE (B)", "tuned", "other"}


def test_base_of_an_adapter_is_that_of_its_own_publication(folder):
    """B has an adapter on a model that it does not evaluate, and that is not the one of A."""
    change(folder / "B", keep=lambda row: row["model"] == "tuned", model=lambda _: "mine", base=lambda _: "base")
    change(folder / "B", PROMPTS, keep=lambda row: False)
    values, _ = join(folder)
    assert set(values["model"]) == {"base (A)", "tuned", "mine"}
    assert set(values["base"]) == {"", "base (B)"} | set(values.loc[values["model"] == "tuned", "base"])


def test_values_with_other_signatures_or_dataset_revisions_are_noted(folder, capsys):
    rename(folder / "B", {"base": "x", "tuned": "y"})
    change(folder / "B", signature=lambda _: "accuracy|v2", dataset_revision=lambda _: "r2")
    for name in "AB":  # values by category are not noted a second time
        path = folder / name / "tables" / "results.parquet"
        rows = artifacts.read(path, RESULTS, allow_moved=True).to_pylist()
        rows += [row | {"category": "c", "signature": f"of {name}"} for row in rows if row["evaluation"] == EVALUATION]
        path.unlink()
        artifacts.write(path, RESULTS, rows, {"fingerprint": "x"})
    _, notes = join(folder)
    assert f"; {len(notes)} differences in notes.csv" in capsys.readouterr().out
    assert notes[notes["evaluation"] == EVALUATION]["note"].tolist() == [
        "dataset revisions: r2 (x, y); unknown (base, tuned)",
        "signatures: a (base, tuned); accuracy|v2 (x, y)",
    ]


def test_notes_are_in_the_order_of_the_values(folder):
    names = {EVALUATION: "t.gl.letters.5shot", report_prompts.EVALUATION: "t.gl.letters.10shot"}
    for name in "AB":
        change(folder / name, evaluation=lambda evaluation: names.get(evaluation, evaluation))
    rename(folder / "B", {"base": "x", "tuned": "y"})
    change(folder / "B", signature=lambda _: "another")
    values, notes = join(folder)
    pairs = values[values["category"] == ""][["evaluation", "metric"]].drop_duplicates()
    notes = notes[notes["note"].str.startswith("signatures: ")][["evaluation", "metric"]]
    assert len(notes) > 1
    assert notes.to_numpy().tolist() == pairs.to_numpy().tolist()


@pytest.mark.parametrize("lie", [{"value": 0.99}, {"n": 10**9}, {"value": None}, {"n": 0, "value": 0.5}])
def test_value_that_the_results_per_item_contradict_is_computed_from_them(folder, lie):
    expected = accuracy(join(folder)[0], "base (B)")
    change(folder / "B", **{name: lambda _, new=new: new for name, new in lie.items()})
    values, notes = join(folder)
    assert accuracy(values, "base (B)") == expected
    [row] = values[(values["model"] == "base (B)") & (values["evaluation"] == EVALUATION)].to_dict("records")
    assert (row["basis"], int(row["n"])) == ("results per item", 12)
    assert any(note.startswith("contradicted: B: base: ") for note in notes["note"])


def test_value_without_results_per_item_is_marked_as_stated(folder):
    for file in (folder / "B").rglob("*_samples.jsonl"):
        file.unlink()
    for file in (folder / "B" / "data").rglob("*.json"):
        record = json.loads(file.read_text("utf-8"))
        record.pop("detailed_evaluation_results", None)
        file.write_text(json.dumps(record), "utf-8")
    values, _ = join(folder)
    basis = values.groupby("model")["basis"].unique().map(list)
    assert basis["base (B)"] == ["stated by the publisher"]
    assert "results per item" in basis["base (A)"]


def test_values_that_are_comparable_have_no_note(folder, capsys):
    rename(folder / "B", {"base": "x", "tuned": "y"})
    assert join(folder)[1].empty
    assert "difference" not in capsys.readouterr().out.partition("join: ")[2]


def test_malformed_publication_is_left_out_and_noted(folder, capsys):
    shutil.copytree(folder / "A", folder / "C")
    change(folder / "C", value=lambda value: value and 5.0)
    (folder / "B" / "tables" / "results.parquet").unlink()
    (folder / ".git" / "tables").mkdir(parents=True)
    (folder / "notes").mkdir()
    values, notes = join(folder)
    assert set(values["model"]) == {"base", "tuned"}
    output = capsys.readouterr()
    assert "2 models of 1 publication in" in output.out
    assert output.out.strip().split(" (")[0].endswith("; 2 publications left out")
    reasons = [
        "publication B: left out: publications/B/tables/results.parquet: cannot be read (No such file or directory).",
        "publication C: left out: publications/C/tables/results.parquet: base, ",
    ]
    assert [note.startswith(reason) for note, reason in zip(notes["note"], reasons, strict=True)] == [True, True]
    assert notes["note"][1].endswith(": value: expected a value of accuracy between 0 and 1, got 5.0.")
    book = openpyxl.load_workbook(folder.parent / "joined" / "leaderboard.xlsx")
    cells = {cell for row in book["provenance"].iter_rows(values_only=True) for cell in row}
    assert set(notes["note"]) <= cells


def test_without_a_valid_publication_nothing_is_written(folder, capsys):
    for name in "AB":
        (folder / name / "tables" / "results.parquet").write_bytes(b"PAR1")
    assert cli.main(["join", str(folder), "joined"]) == 1
    message = capsys.readouterr().err
    assert (
        "publications: no valid publications: publications/A/tables/results.parquet: damaged or not Parquet" in message
    )
    assert "delete it to rebuild" not in message
    assert not Path("joined").exists()


def repeated(publication: Path) -> None:
    path = publication / "tables" / "results.parquet"
    rows = artifacts.read(path, RESULTS, allow_moved=True).to_pylist()
    path.unlink()
    artifacts.write(path, RESULTS, [*rows, rows[0] | {"value": 0.0}], {"fingerprint": "x"})


def other_hash(publication: Path) -> None:
    """Give one item of one model another hash than the other model has."""
    path = next(publication.rglob("*_samples.jsonl"))
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lines[0]["sample_hash"] = "another"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


TABLES = {
    "two values": (repeated, "publications/B: base: two values of accuracy in "),
    "unit": (lambda path: change(path, unit=lambda _: "nats"), "expected share as the unit of accuracy, got \"nats\"."),
    "NaN": (lambda path: change(path, value=lambda _: float("nan")), "value: expected a finite value of accuracy, got nan."),
    "interval": (lambda path: change(path, ci_low=lambda _: 0.9, ci_high=lambda _: 0.1), "ci_low: expected at most ci_high, 0.1, got 0.9."),
    "count": (lambda path: change(path, n=lambda _: -1), "n: expected at least 0, got -1."),
    "model": (lambda path: change(path, model=lambda name: f"{name}\u202e"), 'model "base\\u202e" contains U+202E.'),
    "no model": (lambda path: change(path, model=lambda _: None), "model None is not text."),
    "metric": (lambda path: change(path, metric=lambda _: "x" * 10_000), "has 10000 characters; expected at most 250."),
    "signature": (lambda path: change(path, signature=lambda _: "x" * 40_000), "has more than 32,767 characters."),
    "prompt": (lambda path: change(path, PROMPTS, prompts=lambda _: ["a\nb"]), 'prompts "a\\u000ab" contains U+000A.'),
    "hash": (other_hash, "sample_hash differs from that of another model's line of this item."),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "reason"), TABLES.values(), ids=TABLES)
def test_table_that_is_not_valid_is_left_out_with_file_and_reason(folder, damage, reason):
    damage(folder / "B")
    values, notes = join(folder)
    assert set(values["model"]) == {"base", "tuned"}
    [note] = notes["note"]
    assert note.startswith("publication B: left out: publications/B")
    assert reason in note


def test_long_name_takes_no_time(folder):
    """A name of 1 MB took a minute; it is refused before anything is computed from it."""
    change(folder / "B", model=lambda _: "n" * 1_000_000)
    values, notes = join(folder)
    assert len(notes["note"][0]) < 300
    assert set(values["model"]) == {"base", "tuned"}
