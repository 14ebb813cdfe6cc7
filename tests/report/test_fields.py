"""Fields of the data files: the package that writes them and the views that read them take their names from one file."""

import json
import re

import pytest
from vernacular.report.data_files import ASSETS, FIELDS, Row, record, write_data_file


def test_row_is_an_array_in_the_order_of_its_fields(tmp_path):
    assert Row.WordMean(n=3, nats=0.5, word=1) == (1, 0.5, 3)
    write_data_file(tmp_path, "x", [Row.Pair(summary={}, candidate=1, baseline=0)])
    assert (tmp_path / "data/x.js").read_text() == 'vernacular.piece("x",[[0,1,{}]]);\n'


def test_mistyped_field_is_an_error():
    with pytest.raises(TypeError, match="baselin"):
        Row.Pair(baselin=0, candidate=1, summary={})
    with pytest.raises(TypeError, match="summary"):
        Row.Pair(baseline=0, candidate=1)
    with pytest.raises(AttributeError, match="modle"):
        _ = Row.Mark(0, 0, 0, 2, 1).modle
    with pytest.raises(KeyError, match=r"Results: .*\['row'\]; missing: \['rows'\]"):
        record("Results", {"measure": None, "higher": True, "row": []})


def test_optional_field_may_be_absent():
    prompt = {"name": "a", "evaluation": 0, "text": None}
    assert record("Prompt", prompt) is prompt
    assert record("Prompt", prompt | {"reviewed": False})["reviewed"] is False


def test_every_kind_is_read_by_the_views():
    reader = (ASSETS / "js" / "pieces.js").read_text("utf-8")
    assert set(re.findall(r"\brow\(\"(\w+)\"", reader)) == set(vars(Row))
    assert set(re.findall(r"\brecord\(\"(\w+)\"", reader)) == set(FIELDS["records"])


def test_views_read_rows_by_name(browser):
    browser.open()
    task = browser.js("return pieces.task(0)")
    stored = json.loads((browser.directory / "data/e0/task.js").read_text("utf-8").partition(",")[2].rpartition(")")[0])
    for kind, name in (("Cell", "cells"), ("Outcomes", "outcomes")):
        assert task[name] == [dict(zip(FIELDS["rows"][kind], row, strict=True)) for row in stored[name]]
    (first, *_) = browser.js("return pieces.items(0, 0)")
    assert set(first) == set(FIELDS["rows"]["Item"])
    assert first["spans"][0] == {"role": "choice:0", "text": " right"}


def test_data_file_that_is_asked_for_twice_at_once_is_read_once(browser):
    browser.open()
    same = browser.js("return Promise.all([pieces.shots(2), pieces.shots(2)]).then(([a, b]) => [a, b])")
    assert same == [["Пример: да\n\n"]] * 2
    assert browser.js("return Promise.all([pieces.task(1), pieces.task(1)]).then(([a, b]) => a.cells[0].model === 0)")


def test_every_script_is_in_the_page():
    page = (ASSETS / "index.html").read_text("utf-8")
    assert sorted(re.findall(r'src="js/(\w+\.js)"', page)) == sorted(path.name for path in (ASSETS / "js").glob("*.js"))
