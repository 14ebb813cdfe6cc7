"""Labels of speakers: which rows a sheet has, what is read and refused, and the estimates of models and pairs."""

import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import yaml
from support.faulty_items import TASK
from support.result_rows import EVALUATION, row
from vernacular.comparison.labels import estimates
from vernacular.comparison.schema import ESTIMATES
from vernacular.comparison.sheets import (
    SCALES,
    Label,
    Responses,
    labeled_evaluations,
    read_all_labels,
    read_labels,
    response_id,
    rows_to_read,
)
from vernacular.comparison.table import as_comparisons
from vernacular.config import load
from vernacular.config.dependencies import comparisons_spec, estimates_spec, items_spec, summary_spec
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, DataError
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table
from vernacular.statistics.labels import agreement, corrected, labels_alone

HEADER = "evaluation,item_id,response_id,scale,label,annotator\n"
NAME = "rivers.gl.generation.0shot"
METRICS = [
    Metric("match", "share", True, "similarity", proportion=True, headline=True),
    Metric("chrf", "score", True, "similarity"),
    Metric("loss", "nats", False, "similarity"),
    Metric("length", "tokens", None, "similarity"),
]
N, READ = 240, 60


def sheet(tmp_path, *rows, header=HEADER, name="ana.csv"):
    (tmp_path / name).write_text(header + "".join(f"{row}\n" for row in rows), "utf-8")
    return tmp_path / name


def result(i, model, *, size=1, response=None):
    """Return a generated response to item i, in clusters of a size, with scores that are partly right."""
    rng = np.random.default_rng([i, len(model)])
    good = bool(rng.random() < 0.6)
    text = f"{model} {'good' if good else 'bad'} {i}" if response is None else response
    values = {"match": float(good), "chrf": 50 * good + 20 * rng.random(), "length": 3.0}
    values |= {"loss": 2 - good + rng.random()}
    cluster = f"c{i // size}" if size > 1 else None
    return row(f"q{i:03}", choices=("good", "bad"), gold=(0,), cluster=cluster, **values) | {"prediction": text}


def results(model="one", **options):
    return as_table([result(i, model, **options) for i in range(N)])


def is_good(response):
    """Return what the annotator of these tests thinks, who is wrong in a tenth of the responses."""
    return ("good" in response) != (sum(map(ord, response)) % 10 == 0)


def labels_of(tables, n=READ, annotator="Ana", scale="correct", pairs=None, known=(), judge=None):
    """Return the labels of a filled sheet."""
    responses = {model: Responses(table) for model, table in tables.items()}
    rows = rows_to_read(responses, n, pairs, {}, known)
    judge = judge or (lambda texts: "correct" if is_good(texts[0]) else "incorrect")
    return [
        Label(NAME, each.item_id, each.response_id, scale, judge(each.responses), annotator, "ana.csv") for each in rows
    ]


def find(tables, labels, pairs=(), **further):
    given = {model: [table, *further.get(model, [])] for model, table in tables.items()}
    return estimates(NAME, labels, given, pairs, METRICS)


def by_metric(found, model="one", baseline=None):
    rows = [row for row in found.rows if (row["model"], row["baseline"]) == (model, baseline)]
    return {row["metric"]: row for row in rows}


def test_filled_rows_are_labels(tmp_path):
    path = sheet(
        tmp_path, f"{NAME},q1,r1,correct,Correct,", f"{NAME},q2,r2,correct,,", f"{NAME},q3,r3,correct,incorrect,Bo"
    )
    expected = [
        Label(NAME, "q1", "r1", "correct", "correct", "ana", "ana.csv"),  # without a name, that of the file
        Label(NAME, "q3", "r3", "correct", "incorrect", "Bo", "ana.csv"),
    ]
    assert read_labels(path) == expected
    assert labeled_evaluations([path]) == {NAME}
    book = openpyxl.Workbook()
    book.active.append(HEADER.strip().split(","))
    book.active.append([NAME, "q1", "r1", "1-5", 4.0, "Ana"])  # a spreadsheet's number
    book.save(tmp_path / "ana.xlsx")
    assert [label.value for label in read_labels(tmp_path / "ana.xlsx")] == [4.0]


def test_files_of_one_name_are_of_several_annotators(tmp_path):
    for name in ("ana", "bo"):  # who return the same file
        (tmp_path / name).mkdir()
        sheet(tmp_path / name, f"{NAME},q1,r1,correct,correct,", f"{NAME},q2,r2,correct,correct,Cid")
    labels = read_all_labels([tmp_path / "ana" / "ana.csv", tmp_path / "bo" / "ana.csv"])
    assert [label.annotator for label in labels] == ["ana/ana", "Cid", "bo/ana", "Cid"]
    assert [label.annotator for label in read_all_labels([tmp_path / "ana" / "ana.csv"])] == ["ana", "Cid"]


def test_merged_cells_of_a_workbook_label_each_of_their_rows(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(HEADER.strip().split(","))
    for item in ("q1", "q2", "q3", "q4"):
        book.active.append([NAME, item, f"r{item}", "correct", {"q1": "correct", "q4": "incorrect"}.get(item), "Ana"])
    book.active.merge_cells("E2:E4")
    book.active.merge_cells("A2:A5")
    book.save(tmp_path / "ana.xlsx")
    labels = read_labels(tmp_path / "ana.xlsx")
    assert [(each.item_id, each.value) for each in labels] == [("q1", 1), ("q2", 1), ("q3", 1), ("q4", 0)]


def test_columns_of_a_workbook_are_read_as_those_of_csv(tmp_path):
    columns, cells = HEADER.strip().split(","), [NAME, "q1", "r1", "correct", "correct", "Ana"]
    book = openpyxl.Workbook()
    book.active.append([f"{name} " for name in columns])
    book.active.append(cells)
    book.active.append([])
    book.active.append([*cells[:1], "q2", "r2", *cells[3:5]])
    book.save(tmp_path / "ana.xlsx")
    labels = read_labels(tmp_path / "ana.xlsx")
    assert [(label.item_id, label.annotator) for label in labels] == [("q1", "Ana"), ("q2", "ana")]
    for stated in (b"", b'<dimension ref="A1"/>', b'<dimension ref="A1:F2"/>'):  # of other programs
        with zipfile.ZipFile(tmp_path / "ana.xlsx") as old, zipfile.ZipFile(tmp_path / "bo.xlsx", "w") as new:
            for name in old.namelist():
                new.writestr(name, re.sub(rb"<dimension[^>]*/>", stated, old.read(name)))
        assert [label.item_id for label in read_labels(tmp_path / "bo.xlsx")] == ["q1", "q2"]
    book.active.cell(1, 7, "label")
    book.active.cell(2, 7, "incorrect")
    book.save(tmp_path / "ana.xlsx")
    with pytest.raises(DataError, match=r'ana\.xlsx, sheet Sheet: duplicate column "label"'):
        read_labels(tmp_path / "ana.xlsx")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([f"{NAME},q1,r1,correct,corect,Ana"], 'label: unknown value "corect". Did you mean "correct"?'),
        ([f"{NAME},q1,r1,1-5,7,Ana"], 'label: unknown value "7". Allowed: 1, 2, 3, 4, 5.'),
        ([f"{NAME},q1,r1,paris,A,Ana"], 'scale: unknown value "paris". Did you mean "pairs"?'),
        ([f"{NAME},q1,,correct,correct,Ana"], "response_id: expected a value beside the label, got an empty cell."),
        ([f"{NAME},q1,r1,correct,{word},Ana" for word in ("correct", "incorrect")], 'Ana writes "correct" for the same response, too.'),
        ([f"{NAME},q1,r1,correct,correct,Ana", f"{NAME},q2,r2,1-5,4,Ana"], "has labels on two scales; use one of them."),
    ],
)  # fmt: skip
def test_rows_that_are_not_valid(tmp_path, rows, message):
    with pytest.raises(DataError, match=r"ana\.csv") as error:
        read_labels(sheet(tmp_path, *rows))
    assert message in str(error.value)


def test_other_files_are_refused(tmp_path):
    header = "task,language,item_id,content,decision,annotator,date\n"
    with pytest.raises(
        DataError, match=r"ana\.csv: expected a sheet of `vernacular labels`, got an audit list: its items"
    ):
        read_labels(sheet(tmp_path, "rivers,gl,q1,c1,ok,Ana,2026-11-20", header=header))
    with pytest.raises(DataError, match='the column "response_id" is missing'):
        read_labels(sheet(tmp_path, f"{NAME},q1,correct,Ana", header="evaluation,item_id,label,annotator\n"))
    with pytest.raises(DataError, match="file not found"):
        read_labels(tmp_path / "gone.xlsx")
    (tmp_path / "ana.ods").write_bytes(b"PK\x03\x04")  # of LibreOffice
    with pytest.raises(DataError, match=r"ana\.ods: expected .*, got a workbook; export it as CSV\.$"):
        read_labels(tmp_path / "ana.ods")


def test_sheets_have_whole_clusters_in_the_order_of_a_limit_and_equal_responses_once():
    tables = {"one": results(size=4), "two": results("two", size=4)}
    responses = {model: Responses(table) for model, table in tables.items()}
    rows = rows_to_read(responses, 10, None, {"q000": "reference"}, ())
    order = responses["one"].ids
    assert list(dict.fromkeys(each.item_id for each in rows)) == order[:12]  # three clusters of four
    assert len(rows) == 24
    first = [each.responses[0].split()[0] for each in rows[::2]]
    assert set(first) == {"one", "two"}  # the order tells no model
    fewer = rows_to_read({"one": responses["one"]}, 10, None, {}, ())
    assert [each.item_id for each in fewer] == order[:12]  # the same items, whatever the models
    same = {"one": results(response="good"), "two": results("two", response="good")}
    assert len(labels_of(same, 10)) == 10
    known = labels_of(tables, 10)
    assert {each.item_id for each in labels_of(tables, 20, known=known)} == set(order[12:20])


def test_values_are_those_of_the_estimator_for_every_score_with_a_direction():
    tables = {"one": results(), "two": results("two")}
    labels = labels_of(tables)
    found = find(tables, labels, [("one", "two")])
    rows = by_metric(found)
    assert list(rows) == ["human", "human_by_match", "human_by_chrf", "human_by_loss"]
    own = Responses(tables["one"])
    values = np.array([float(is_good(each["prediction"])) for each in own.rows])
    values[READ:] = np.nan
    chrf = np.array([dict(each)["chrf"] for each in _metrics(tables["one"], own)])
    loss = np.array([dict(each)["loss"] for each in _metrics(tables["one"], own)])
    for name, scores in (("human_by_chrf", chrf), ("human_by_loss", -loss)):
        expected = corrected(values, scores, np.arange(N))
        assert rows[name]["value"] == pytest.approx(expected.value)
        assert rows[name]["weight"] == pytest.approx(expected.weight)
        assert (rows[name]["ci_low"], rows[name]["ci_high"]) == pytest.approx(expected.interval(proportion=True))
        assert rows[name]["ratio"] < 1
    assert rows["human_by_loss"]["rho"] < -0.5  # as it is; its estimate uses the opposite
    assert rows["human"]["value"] == pytest.approx(np.nanmean(values))
    counts = {name: rows["human_by_chrf"][name] for name in ("n_labels", "n_clusters", "n_missing", "n_scored", "n")}
    assert counts == {"n_labels": READ, "n_clusters": READ, "n_missing": 0, "n_scored": N, "n": N}
    assert rows["human_by_match"]["headline"]
    assert not rows["human_by_chrf"]["headline"]
    difference = by_metric(found, "two", "one")["human"]
    other = by_metric(found, "two")["human"]
    assert difference["value"] == pytest.approx(other["value"] - rows["human"]["value"])
    assert found.notes[0] == f"ana.csv: {len(labels)} labels on {READ} items by Ana."
    artifacts_rows = as_comparisons(found.rows, {NAME: EVALUATION})
    assert [each["metric"] for each in artifacts_rows][:2] == ["human", "human_by_match"]
    assert artifacts_rows[0]["baseline_value"] == rows["human"]["value"]
    assert artifacts_rows[0]["n_tests"] == 1
    assert rows["human"]["sentence"].startswith("By 60 labels alone ")
    assert " It agrees with speakers at ρ = 0." in rows["human_by_chrf"]["sentence"]
    assert rows["human_by_loss"]["sentence"].endswith(" (lower is better).")


def _metrics(table, own):
    positions = {item: i for i, item in enumerate(table["item_id"].to_pylist())}
    column = table["metrics"].to_pylist()
    return [column[positions[item]] for item in own.ids]


def test_values_of_a_judge_in_a_further_table_are_scores_and_gaps_take_the_mean():
    tables = {"one": results()}
    rows = [
        result(i, "one") | {"metrics": {"judge": float("good" in result(i, "one")["prediction"])}} for i in range(200)
    ]
    found = by_metric(find(tables, labels_of(tables), one=[as_table(rows)]))
    assert found["human_by_judge"]["n_scored"] == 200
    assert found["human_by_judge"]["n"] == N
    assert found["human_by_judge"]["ratio"] < 0.9


def test_labels_must_be_the_first_of_the_order():
    tables = {"one": results()}
    labels = labels_of(tables)
    order = Responses(tables["one"]).ids
    few = find(tables, [label for label in labels if label.item_id not in (order[3], order[40])])
    assert {row["n_missing"] for row in few.rows} == {2}
    assert "one: 2 items before the last label without one." in few.notes
    chosen = [label for label in labels if order.index(label.item_id) not in range(10, 20)]
    found = find(tables, chosen)
    assert found.rows == []
    [note] = [note for note in found.notes if "not used" in note]
    assert note == (
        "one: labels not used: the labels are not those of the first items in the order of the draw: "
        f"{order[20]} has one, {order[10]} before it has none (10 of 60 items are missing; at most 5 % may be). "
        f"`vernacular labels {NAME}` writes the missing rows."
    )


def test_a_cluster_that_is_not_finished_is_left_out():
    tables = {"one": results(size=4)}
    labels = labels_of(tables)
    order = Responses(tables["one"]).ids
    found = by_metric(find(tables, [label for label in labels if label.item_id not in order[58:60]]))["human"]
    assert (found["n_labels"], found["n_clusters"], found["n_missing"]) == (56, 14, 0)
    started = find(tables, [label for label in labels if label.item_id in order[:2]])
    assert started.rows == []
    assert f"{order[1]} has one, {order[2]} of the same cluster has none (2 of 4 items" in started.notes[1]


def test_labels_on_other_responses_are_counted_and_a_new_model_needs_its_own():
    tables = {"one": results()}
    labels = labels_of(tables)
    other = {"one": results(), "two": results("two")}
    found = find(other, labels, [("one", "two")])
    assert {row["model"] for row in found.rows} == {"one"}
    read = Responses(tables["one"]).ids[:2]
    changed = as_table([result(i, "one", response="new" if f"q{i:03}" in read else None) for i in range(N)])
    found = find({"one": changed}, labels)
    assert found.notes[-1] == (
        f"labels on 2 items ({min(read)}, …): another version of the item or response was read, and they are not used."
    )
    assert {row["n_missing"] for row in found.rows} == {2}


def test_few_clusters_give_the_labels_alone_and_a_note():
    tables = {"one": results(size=10)}
    found = find(tables, labels_of(tables, 80))
    rows = by_metric(found)
    assert rows["human_by_match"]["value"] == rows["human"]["value"]
    assert rows["human_by_match"]["ratio"] is None
    assert any("8 labeled clusters: the estimate is that of the labels alone below 10." in note for note in found.notes)
    *_, with_score = (row["sentence"] for row in found.rows)
    assert "labels and this score" not in with_score
    assert ", too few to use this score." in with_score


def test_a_half_in_the_sentence_is_rounded_as_in_the_tables():
    tables = {"one": results()}
    labels = iter(["correct"] * 5 + ["incorrect"] * 11)
    found = find(tables, labels_of(tables, 16, judge=lambda texts: next(labels)))
    assert by_metric(found)["human"]["sentence"].startswith("By 16 labels alone 31.3 % (")


def test_a_value_near_0_has_decimals_in_the_sentence():
    rows = [result(i, "one") for i in range(N)]
    tables = {"one": as_table([each | {"metrics": {**each["metrics"], "loss": 1.2e-5}} for each in rows])}
    found = by_metric(find(tables, labels_of(tables)))
    assert found["human_by_loss"]["sentence"].startswith("By Loss 0.000; by 60 labels")


def test_several_annotators_are_averaged_and_give_their_agreement():
    tables = {"one": results()}
    first = labels_of(tables)
    second = labels_of(tables, annotator="Bo", judge=lambda texts: "correct" if "good" in texts[0] else "incorrect")
    found = find(tables, first + second)
    row = by_metric(found)["human"]
    values = np.array([[label.value for label in own] for own in (first, second)])
    assert row["value"] == pytest.approx(values.mean())
    expected = agreement(values, [label.item_id for label in first])
    assert (row["alpha"], row["n_agreement"]) == (pytest.approx(expected.alpha), READ)
    assert f"agreement {expected.alpha:.2f} (" in found.notes[0]


def test_two_labels_by_one_annotator_are_counted():
    tables = {"one": results()}
    first = labels_of(tables)
    other = {"correct": "incorrect", "incorrect": "correct"}
    again = [replace(label, label=other[label.label], file="again.csv") for label in first[:3]]
    found = find(tables, first + again)
    assert "3 responses with two labels by one annotator in several sheets: the last is used." in found.notes
    values = [label.value for label in again + first[3:]]
    assert by_metric(found)["human"]["value"] == pytest.approx(np.mean(values))


def test_grades_and_pairs():
    tables = {"one": results(), "two": results("two")}
    grades = labels_of(tables, scale="1-5", judge=lambda texts: "4" if is_good(texts[0]) else "2")
    found = by_metric(find(tables, grades))
    assert (
        2 < found["human_by_chrf"]["ci_low"] < found["human_by_chrf"]["value"] < found["human_by_chrf"]["ci_high"] < 4
    )
    assert found["human"]["unit"] == "score"

    tables["two"] = as_table(
        [result(i, "two", response=result(i, "one")["prediction"] if i % 5 == 0 else None) for i in range(N)]
    )

    def prefer(texts):
        good = [is_good(text) for text in texts]
        return "equal" if good[0] == good[1] else "A" if good[0] else "B"

    pairs = [("one", "two")]
    labels = labels_of(tables, scale="pairs", pairs=pairs, judge=prefer)
    assert len(labels) < READ  # equal responses are not read
    assert {label.response_id.split()[0] == min(label.response_id.split()) for label in labels} == {True, False}
    rows = by_metric(find(tables, labels, pairs), "two", "one")
    own = {model: Responses(table) for model, table in tables.items()}
    last = max(own["one"].ids.index(label.item_id) for label in labels) + 1
    good = [
        np.array([float(is_good(each["prediction"])) for each in own[model].rows[:last]]) for model in ("one", "two")
    ]
    assert rows["human"]["value"] == pytest.approx((good[1] - good[0]).mean())
    assert rows["human"]["n_labels"] == last
    swapped = by_metric(find(tables, labels, [("two", "one")]), "one", "two")
    assert swapped["human_by_chrf"]["value"] == pytest.approx(-rows["human_by_chrf"]["value"])


def test_equal_responses_at_the_end_of_the_last_cluster_were_read_with_it():
    tables = {"one": results(size=5)}
    order = Responses(tables["one"]).ids
    equal = {item for number, item in enumerate(order) if number % 5 == 4}
    tables["two"] = as_table(
        [result(i, "two", size=5, response=result(i, "one")["prediction"] if f"q{i:03}" in equal else None)
         for i in range(N)]
    )  # fmt: skip
    labels = labels_of(tables, scale="pairs", pairs=[("one", "two")], judge=lambda texts: "equal")
    row = by_metric(find(tables, labels, [("one", "two")]), "two", "one")["human"]
    assert (row["n_labels"], row["n_clusters"]) == (READ, READ // 5)


def test_rows_are_an_artifact(tmp_path):
    tables = {"one": results()}
    rows = find(tables, labels_of(tables)).rows
    path = artifacts.write(tmp_path / "labels.parquet", ESTIMATES, rows, {})
    assert artifacts.read(path, ESTIMATES).num_rows == 4
    assert set(SCALES) == {"correct", "1-5", "pairs"}
    assert response_id(result(1, "one")) != response_id(result(1, "one", response="x"))
    assert labels_alone(np.array([1.0, 0.0]), np.arange(2)).value == 0.5


def test_labels_of_a_config_enter_the_estimates_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sheet(tmp_path, f"{NAME},q1,r1,correct,correct,Ana")
    Path("rivers.gl.jsonl").write_text("")
    content = {"models": {"m": {"source": "lab/m"}}, "tasks": ["."], "evaluations": [{"task": "rivers"}]}
    Path("rivers.yaml").write_text(yaml.safe_dump(TASK))
    Path("config.yaml").write_text(yaml.safe_dump(content))
    before = load.load(["config.yaml"])
    assert not estimates_spec(before).labels
    task = TASK | {"labels": {"scale": "1-5", "instructions": {"gl": "Como de boa é?"}}}
    Path("rivers.yaml").write_text(yaml.safe_dump(task))
    Path("config.yaml").write_text(yaml.safe_dump(content | {"labels": "ana.csv"}))
    after = load.load(["config.yaml"])
    assert after.labels == ["ana.csv"]
    assert list(estimates_spec(after).labels) == ["ana.csv"]
    assert comparisons_spec(after) == comparisons_spec(before)
    assert summary_spec(after).estimates
    assert items_spec(after) == items_spec(before)
    Path("config.yaml").write_text(yaml.safe_dump(content | {"labels": "ana.csv", "borrow_from": "elsewhere"}))
    with pytest.raises(ConfigError, match="elsewhere: expected the directory of the results of a run"):
        load.load(["config.yaml"])
    sheet(tmp_path, f"{NAME},q1,r1,correct,fine,Ana")
    Path("config.yaml").write_text(yaml.safe_dump(content | {"labels": "ana.csv"}))
    with pytest.raises(ConfigError, match=r'ana\.csv, line 2: label: unknown value "fine"'):
        load.load(["config.yaml"])
