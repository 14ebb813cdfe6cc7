"""View "Items to read": lists, one item at a time, decisions by key, and the sheet that `verdicts:` reads."""

import json
import re

from support.report_audit import SENTENCE
from support.report_run import OPTIONS
from vernacular.comparison.audit import DECISIONS
from vernacular.comparison.sheets import read_verdicts
from vernacular.report.data_files import ASSETS


def test_lists_and_why_there_is_none(audit_page):
    audit_page.open("#/audit")
    assert audit_page.text("h1") == "Items to read"
    assert audit_page.find("nav a[href='#/audit']").is_displayed()
    cells = audit_page.texts("main tbody tr")
    assert len(cells) == 2
    assert "40.0 %" in cells[0]
    assert cells[0].startswith("Waves <b> (samples) · Galician · options")
    assert "expected at least 100 items" in cells[1]


def test_list_has_its_sentences_and_two_orders(audit_page):
    audit_page.open(f"#/audit/{OPTIONS}")
    assert SENTENCE in audit_page.text("main")
    assert len(audit_page.find_all("main tbody tr")) == 3
    assert audit_page.js("return window.pwned") is None
    audit_page.open(f"#/audit/{OPTIONS}?by=drop")
    assert audit_page.text("main tbody tr th").startswith("</script>")


def test_keys_decide_and_move(audit_page, tmp_path):
    audit_page.open(f"#/audit/{OPTIONS}/1")
    audit_page.js("localStorage.clear()")
    audit_page.open(f"#/audit/{OPTIONS}/1")
    assert audit_page.text("main").count("Question 1") == 1, "the item in English"
    assert audit_page.texts(".options .gold th") == ["dereita"]
    assert audit_page.text(".options tr:last-child").endswith("models' favorite")
    assert "odd number" in audit_page.text("main")
    annotator = audit_page.find("#annotator")
    annotator.send_keys("Ana 7")
    audit_page.js("arguments[0].dispatchEvent(new Event('change')); arguments[0].blur()", annotator)
    assert "Item 1 of 3" in audit_page.text("h1"), "keys in a field decide nothing"
    press(audit_page, "2")
    assert "Item 2 of 3" in audit_page.text("h1")
    press(audit_page, "j")
    press(audit_page, "1", moves=False)
    assert "2 decided" in audit_page.text(".around")
    assert audit_page.text(".decisions [aria-pressed='true']") == "1 ok"
    press(audit_page, "k")
    press(audit_page, "ArrowLeft")
    assert audit_page.text(".decisions [aria-pressed='true']") == "2 wrong gold"
    audit_page.js(
        "window.saved = null; URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; });"
        " return 'data:,'; }"
    )
    audit_page.find(".downloads button").click()
    audit_page.until("window.saved !== null")
    path = tmp_path / "read.csv"
    path.write_text(audit_page.js("return window.saved"), "utf-8")
    verdicts = read_verdicts(path)
    assert [(each.item_id, each.content, each.decision, each.annotator) for each in verdicts] == [
        ("i1", "c1", "wrong gold", "Ana 7"), ("i3", "c3", "ok", "Ana 7"),
    ]  # fmt: skip


def press(page, key: str, *, moves: bool = True) -> None:
    before = page.js("return location.hash")
    page.js("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key)
    if moves:
        page.until(f"location.hash !== {json.dumps(before)}")
    else:
        page.until("document.body.dataset.ready === 'no' || document.querySelector('[aria-pressed=true]')")
    page.settled()


def test_decisions_of_the_view_are_those_of_verdicts():
    script = (ASSETS / "js" / "audit.js").read_text("utf-8")
    listed = re.search(r"const DECISIONS = \[(.*?)\];", script, re.DOTALL)[1]
    assert tuple(re.findall(r'"([^"]+)"', listed)) == DECISIONS


def test_without_lists_the_view_is_not_offered(browser):
    browser.open()
    assert not browser.find("nav a[href='#/audit']").is_displayed()
    assert not (browser.directory / "data" / "audit.js").exists()
