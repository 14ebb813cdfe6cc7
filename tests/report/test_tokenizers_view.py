"""View "Tokenizers": relation to English, counts by language and by task, and what is shown without parallel items."""

import json
import re

from support.report_run import MODELS, write_run
from vernacular.core import artifacts
from vernacular.metrics.schema import TOKENIZERS
from vernacular.report.page import build


def rows_of(browser, number):
    """Return the texts of the cells of a table, by row."""
    return browser.js(
        "return [...document.querySelectorAll('main table')[arguments[0]].tBodies[0].rows]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))",
        number,
    )


def test_relation_to_english_has_intervals_and_counts_per_language(browser):
    browser.open("#/tokenizers")
    assert browser.text("h1") == "Tokenizers"
    relative, absolute = rows_of(browser, 0), rows_of(browser, 1)
    assert len(relative) == 2 * len(MODELS)
    row = next(row for row in relative if row[:2] == ["plain", "Galician"])
    assert row[2:4] == ["Waves <b>", "01234567"], "the title of the task, as text, and then the tokenizer"
    assert row[4] == "1.5001.364\u2009–\u20091.667"
    assert len(absolute) == 3 * len(MODELS), "in total, not by task"
    assert "Tokens of prompts" not in browser.text("main"), "of which no item has any"
    row = next(row for row in absolute if row[:3] == ["plain", "Arabic", "01234567"])
    assert row[3:5] == ["3.000", "25.0"]
    assert browser.find_all("main b") == []


def test_both_ends_of_an_interval_have_decimals_or_an_exponent(browser):
    browser.open("#/tokenizers")
    ends = browser.js(
        "return [[-0.000012, 0.031], [0.000012, 0.000034]].map((ends) => format.interval(...ends, 'nats'))"
    )
    assert ends == ["0.000\u2009–\u20090.031", "1.2e\u22125\u2009–\u20093.4e\u22125"]


def test_counts_by_task(browser):
    browser.open("#/tokenizers?by=task")
    absolute = rows_of(browser, 1)
    assert len(absolute) == 3 * len(MODELS)
    assert {row[2] for row in absolute} == {"Waves <b>"}


def piece(out):
    content = (out / "data" / "tokenizers.js").read_text("utf-8")
    return json.loads(re.search(r"\[.*\]", content, re.DOTALL)[0])


def test_data_file_has_all_columns_unrounded(tmp_path):
    arguments = write_run(tmp_path)
    build(**arguments, out=tmp_path / "report")
    rows = piece(tmp_path / "report")
    assert rows == artifacts.read(tmp_path / "results" / "summary" / "tokenizers.parquet", TOKENIZERS).to_pylist()


def test_report_of_a_run_without_token_counts(tmp_path):
    arguments = write_run(tmp_path)
    (tmp_path / "results" / "summary" / "tokenizers.parquet").unlink()
    build(**arguments, out=tmp_path / "report")
    assert piece(tmp_path / "report") == []
