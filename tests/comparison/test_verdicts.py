"""Sheets of verdicts: what is read, what is refused, and which faults count as confirmed."""

from pathlib import Path

import openpyxl
import pytest
import yaml
from support.faulty_items import TASK
from support.sample_items import item
from vernacular.comparison.audit import content_of
from vernacular.comparison.sheets import Verdict, confirmed, read_verdicts
from vernacular.config import load
from vernacular.config.dependencies import comparisons_spec, faults_spec, items_spec
from vernacular.core.errors import ConfigError, DataError

HEADER = "task,language,item_id,content,decision,annotator,date\n"
ITEMS = {name: item(name, question=f"{name}?", choices=["a", "b"], gold=[0]) for name in ("q1", "q2", "q3")}


def sheet(tmp_path, *rows, header=HEADER):
    path = tmp_path / "read.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows), "utf-8")
    return path


def verdict(item_id, decision, annotator="Ana", content=None, date="2026-11-20"):
    content = content_of(ITEMS[item_id]) if content is None else content
    return Verdict("rivers", "gl", item_id, content, decision, annotator, date, "read.csv")


def test_rows_without_a_decision_are_not_verdicts(tmp_path):
    path = sheet(
        tmp_path,
        "rivers,gl,q1,c1,wrong gold,Ana,2026-11-20",
        "rivers,gl,q2,c2,,,",
        "rivers,gl,'=q,c3,Ok,Ana,2026-11-21",
    )
    assert read_verdicts(path) == [
        Verdict("rivers", "gl", "q1", "c1", "wrong gold", "Ana", "2026-11-20", "read.csv"),
        Verdict("rivers", "gl", "=q", "c3", "ok", "Ana", "2026-11-21", "read.csv"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("rivers,gl,q1,c1,wrong golds,Ana,2026-11-20", 'line 2: decision: unknown value "wrong golds". Did you mean "wrong gold"?'),
        ("rivers,gl,q1,c1,ok,,2026-11-20", "line 2: annotator: expected a value beside the decision, got an empty cell."),
        ("rivers,gl,q1,c1,ok,Ana,", "line 2: date: expected a value beside the decision, got an empty cell."),
        ("rivers,gl,q1,c1,ok,Ana,20.11.2026", 'line 2: date: expected a date such as 2026-11-30, got "20.11.2026".'),
        ("rivers,gl,q1,,ok,Ana,2026-11-20", "line 2: content: expected a value beside the decision, got an empty cell."),
        ("rivers,gl,q1,c1,ok,Ana,2026-11-20\nrivers,gl,q1,c1,translation,Ana,2026-11-20", 'Ana decides "ok" on the same item, too.'),
    ],
)  # fmt: skip
def test_rows_that_are_not_valid(tmp_path, row, message):
    with pytest.raises(DataError, match=r"read\.csv, line \d") as error:
        read_verdicts(sheet(tmp_path, row))
    assert message in str(error.value)


def test_files_that_are_not_sheets(tmp_path):
    with pytest.raises(DataError, match='the column "content" is missing'):
        read_verdicts(sheet(tmp_path, "rivers,gl,q1,ok,Ana,2026-11-20", header=HEADER.replace("content,", "")))
    (tmp_path / "read.xlsx").write_bytes(b"no workbook")
    with pytest.raises(DataError, match="not an Excel workbook"):
        read_verdicts(tmp_path / "read.xlsx")
    openpyxl.Workbook().save(tmp_path / "read.xlsx")
    with pytest.raises(DataError, match='no sheet has a column "decision"'):
        read_verdicts(tmp_path / "read.xlsx")
    for name in ("gone.csv", "gone.xlsx"):
        with pytest.raises(DataError, match=rf"{name}: file not found"):
            read_verdicts(tmp_path / name)


def test_a_fault_is_confirmed_if_all_annotators_name_one():
    verdicts = [
        verdict("q1", "wrong gold"), verdict("q1", "none correct", "Brais", date="2026-11-22"),
        verdict("q2", "ok"), verdict("q2", "translation", "Brais"), verdict("q3", "ok"),
    ]  # fmt: skip
    found = confirmed(verdicts, ITEMS)
    assert found.faults == {"q1"}
    assert found.notes[0].startswith(
        "read.csv: 3 items read by Ana, Brais (2026-11-20 to 2026-11-22), 1 confirmed fault: wrong gold 1, none correct 1. "
    )
    assert found.notes[1:] == ["verdicts on 1 item (q2): annotators disagree, and the items stay."]


def test_verdicts_on_other_versions_or_items_are_counted_and_not_used():
    other = Verdict("rivers", "gl", "gone", "c", "wrong gold", "Ana", "2026-11-20", "read.csv")
    found = confirmed([verdict("q1", "wrong gold", content="another"), other], ITEMS)
    assert found.faults == frozenset()
    assert found.notes == [
        "verdicts on 1 item (q1): the verdict is on another version of the item, and not used.",
        "verdicts on 1 item (gone): the item is not among those of this run.",
    ]


def test_sheets_of_a_config_and_of_a_task_enter_the_faults_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = "rivers,gl,q1,c1,ok,Ana,2026-11-20"
    sheet(tmp_path, row)
    Path("own").mkdir()
    sheet(tmp_path / "own", row)
    Path("own/rivers.gl.jsonl").write_text("")
    content = {"models": {"m": {"source": "lab/m"}}, "tasks": ["own"], "evaluations": [{"task": "rivers"}]}
    Path("own/rivers.yaml").write_text(yaml.safe_dump(TASK))
    Path("config.yaml").write_text(yaml.safe_dump(content))
    before = load.load(["config.yaml"])
    assert before.verdicts == []
    Path("own/rivers.yaml").write_text(yaml.safe_dump(TASK | {"verdicts": "read.csv"}))
    Path("config.yaml").write_text(yaml.safe_dump(content | {"verdicts": ["read.csv"]}))
    after = load.load(["config.yaml"])
    assert after.verdicts == ["read.csv", "own/read.csv"]
    assert list(faults_spec(after).verdicts) == after.verdicts
    assert comparisons_spec(after) == comparisons_spec(before)
    assert items_spec(after) == items_spec(before)
    sheet(tmp_path, row, row.replace("ok", "fine"))
    with pytest.raises(ConfigError, match=r'read\.csv, line 3: decision: unknown value "fine"'):
        load.load(["config.yaml"])
