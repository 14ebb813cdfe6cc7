"""What the views state about two models, and what can be taken from them: downloads, keyboard, forms of items."""

import csv
import html
import io
import json
import re
import shutil

import pytest
from support.downloads import downloads
from support.report_forms import LETTERS, PAIRS, QUESTION

FIRST = f"{0:040x}"


def test_overview_states_the_best_model_and_counts(page):
    page.open()
    assert page.text("h1") == "Overview"
    headline = page.text(".headline")
    assert headline.startswith("tuned has the highest overall value of 2 models, but not significantly: base shares")
    assert "20.0 on a scale from 0 (chance) to 100 (all correct) (95 % interval 10.0\u2009–\u200930.0)" in headline
    assert page.texts(".tiles dd") == ["2", "2", "2", "3", "12"]
    assert "2 of 12 items changed: 2 improved, 0 regressed" in page.text(".verdicts")


def test_overview_maps_languages_and_tasks(page):
    page.open()
    assert page.texts(".map thead th") == ["Task", "Spanish", "Galician", "Overall, above chance"]
    rows = page.find_all(".map tbody tr")
    assert [row.find_element("css selector", ".task").text for row in rows] == [
        "A quiz (samples)",
        "Minimal pairs (samples)",
    ]
    cells = rows[1].find_elements("css selector", "td")
    assert [cell.text.split("\n") for cell in cells] == [["75.0", "tuned"]] * 2
    assert rows[1].find_elements("css selector", ".metric")[1].text == "Accuracy ↑ %"
    assert {page.js("return arguments[0].style.getPropertyValue('--heat')", cell) for cell in cells} == {"50%"}
    page.choose("#show", "model:0")
    cell = page.find_all(".map tbody tr")[1].find_elements("css selector", "td")[0]
    assert cell.text.split("\n") == ["25.0", "chance 50.0"]
    assert "cold" in cell.get_attribute("class")
    page.choose("#show", "pair:0")
    texts = [cell.text.split() for cell in page.find_all(".map tbody tr")[1].find_elements("css selector", "td")]
    assert texts == [["0.0"], ["+50.0", "significant"]]


def test_comparison_opens_with_a_verdict_and_folds_equal_rows(page):
    page.open("#/comparison")
    verdict = page.text(".headline")
    assert verdict.startswith("tuned is significantly better than base in 1 of 3 headline metrics and worse in none")
    assert "2 of 12 items changed" in verdict
    assert len(page.find_all("main .tablebox:first-of-type tbody tr")) == 1
    summary = next(s for s in page.find_all("details summary") if "without any difference" in s.text)
    assert summary.text == "2 rows without any difference"
    page.js("arguments[0].click()", summary)
    page.until("document.querySelectorAll('details table tbody tr').length === 2")


def test_no_star_at_chance_or_below(page):
    page.open("#/leaderboard?down=evaluations")
    rows = {row.text.split("\n")[0] + row.text.split("\n")[1][:2]: row for row in page.find_all(".board tbody tr")}
    assert len(rows) == 3
    marks = {name: [m.text for m in row.find_elements("css selector", ".mark")] for name, row in rows.items()}
    assert sorted(map(tuple, marks.values())) == [(), ("★",), ("★",)]  # at chance and below: none


def test_overall_stays_above_all_rows_and_intervals_are_drawn(page):
    page.open("#/leaderboard?down=evaluations")
    assert page.text(".board thead tr.top th").startswith("Overall")
    assert len(page.find_all(".board tbody .range .point")) == 6
    header = page.find_all(".board thead th")[1]
    header.find_element("css selector", ".dt-column-order").click()
    page.until("document.querySelector('.board thead th[aria-sort]')")
    assert page.text(".board thead tr.top th").startswith("Overall")
    table, scroll = (page.js(f"return document.querySelector('{s}').clientWidth") for s in (".board", ".scroll"))
    assert table >= scroll - 2


def test_title_and_note_of_the_task_are_shown(page):
    page.open(f"#/task/{LETTERS}/base")
    assert page.text("h1").startswith("A quiz")
    assert page.text(".remark") == "For readers."


def test_task_states_why_its_value_is_what_it_is(page):
    page.open(f"#/task/{LETTERS}/base")
    first, second = page.texts(".why > ol > li")
    assert first.startswith("constant failure3 of 4 choices are “B” (</script>). Reported from: 95 %.")
    assert second.startswith("length warning")
    assert page.text(".examples li") == "q1: gold A, predicted B"
    page.click(page.find(".examples a"))
    assert page.js("return location.hash") == f"#/item/{LETTERS}/base/q1"
    page.open(f"#/task/{LETTERS}/tuned")
    assert page.text(".why p") == "No symptom in the stored outputs explains the value."


def test_task_shows_the_profile_of_a_model(page):
    page.open(f"#/task/{LETTERS}/base")
    rows = page.find_all(".profile tbody tr")
    labels, confusion = [["A", "1", "4"], ["B", "3", "0"]], [["A", "1", "3", "0"], ["B", "0", "0", "0"]]
    assert [row.text.split() for row in rows] == labels + confusion
    assert page.texts(".facts dd") == [
        "median 25.0 %",
        "<think> 3 items, Ġthe 1 item",
        "chosen options 5.0, correct ones 4.0, all 4.5",
    ]


def test_diagnoses_are_compared_over_the_languages_of_a_task(page):
    for evaluation in PAIRS:
        page.open(f"#/task/{evaluation}/base")
        assert page.text(".profile h3") == "Diagnoses by language"
        assert page.texts(".profile thead .dt-column-title") == ["Diagnosis", "Galician", "Spanish"]
        assert page.texts(".profile tbody tr > *") == ["length", "50.0 % warning", "–"]
    page.open(f"#/task/{LETTERS}/base")
    assert page.find_all(".profile h3") == [], "one language only"


def test_leaderboard_marks_values_with_a_failure(page):
    page.open("#/leaderboard?down=evaluations")
    marked = page.find_all(".board td a:has(.flag)")
    assert [link.get_attribute("href").rpartition("#")[2] for link in marked] == [f"/task/{LETTERS}/base"]
    assert "▲\u2009constant" in marked[0].text
    assert marked[0].get_attribute("title").endswith("; diagnosis: constant, length")
    assert "▲ a failure that explains the value" in page.text(".legend")


def test_letters_are_shown_with_the_text_of_their_option(page):
    page.open(f"#/items/{LETTERS}/base")
    page.until("document.querySelector('.progress').textContent.startsWith('4 items')")
    row = page.find(".items tbody tr")
    assert row.text.count("A · auga") == 1
    assert row.text.count("B · leite") == 1
    page.open(f"#/item/{LETTERS}/base/q1")
    assert page.text(".sent") == QUESTION
    assert page.texts(".options tbody td:first-child") == ["A", "B"]
    # letter A belongs to the option that is second in the dataset, and that is correct
    assert [text.split("✓")[0].strip() for text in page.texts(".span h3")] == ["A · auga", "B · leite"]
    assert ["✓" in text for text in page.texts(".span h3")] == [True, False]


def test_pairs_are_named_by_their_text_and_explain_the_missing_prompt(page):
    page.open(f"#/items/{PAIRS[0]}/base")
    page.until("document.querySelector('.progress').textContent.startsWith('4 items')")
    assert set(page.texts(".items tbody th")) == {"Ela [come | comen] pan moi duro."}  # which "Correct" does not repeat
    page.open(f"#/item/{PAIRS[0]}/base/{FIRST}")
    assert page.text("h1").startswith("Ela [come | comen] pan moi duro.")
    assert page.texts(".options mark") == ["come", "comen"]
    assert page.text("section section h2") == "No prompt"
    assert "Nothing precedes the texts below" in page.text("section section .note")


def test_bars_of_options_start_at_zero(page):
    page.open(f"#/item/{PAIRS[0]}/base/{FIRST}")
    widths = [
        float(page.js("return arguments[0].style.getPropertyValue('--w')", bar)[:-1]) for bar in page.find_all(".bar")
    ]
    assert widths == pytest.approx([73.1, 26.9])  # softmax of -8 and -9
    assert sum(widths) == pytest.approx(100)


def test_plots_of_a_task(page):
    page.open(f"#/task/{PAIRS[0]}/tuned")
    titles = page.texts("figcaption h2")
    assert titles == ["Accuracy, %", "Outcomes", "Distribution over items: tuned", "Accuracy by category, %",
                      "Accuracy by category and language: tuned", "Reliability", "Surprisal by position",
                      "Item by item"]  # fmt: skip
    assert len(page.find_all(".plot svg")) == len(titles)
    legends = page.texts("figure:first-of-type .role-legend-label")
    assert legends == ["chance", "most frequent answer"]
    strokes = page.js("""
      return [...document.querySelectorAll('figure:first-of-type .mark-rule line')]
        .map((line) => [line.getAttribute('stroke'), line.getAttribute('stroke-dasharray')])
        .filter(([, dash]) => dash);""")
    assert len({tuple(stroke) for stroke in strokes}) == len(strokes) == 2


def test_plots_and_tables_can_be_saved(page):
    page.open(f"#/task/{PAIRS[0]}/tuned")
    figure = page.find("figure")
    by_format = {button.text: button for button in figure.find_elements("css selector", ".downloads button")}
    assert list(by_format) == ["PNG", "SVG", "CSV"]
    name, png = downloads(page, by_format["PNG"])
    assert name == f"{PAIRS[0].replace('_', '-')}-accuracy.png"
    assert png.startswith(b"\x89PNG\r\n")
    assert len(png) > 2000
    _, svg = downloads(page, by_format["SVG"])
    assert svg.decode().startswith("<svg")
    assert "tuned" in svg.decode()
    heading = "".join(re.findall("(?s)<text[^>]*>(.*?)</text>", svg.decode()))
    assert "Accuracy, %" in heading
    assert page.text("h1").strip() in html.unescape(heading)
    assert "n = 4 items" in heading
    _, text = downloads(page, by_format["CSV"])
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert [(row["model"], row["value"]) for row in rows] == [("tuned", "75"), ("base", "25")]
    everything = page.find_all(".tablebox > .downloads button")
    assert len(everything) == 2  # by category, and all values
    _, text = downloads(page, everything[-1])
    assert next(csv.reader(io.StringIO(text.decode()))) == [
        "Model",
        "accuracy",
        "accuracy low",
        "accuracy high",
        "accuracy n",
    ]


def test_differences_are_sorted_by_effect(page, forms_dir, tmp_path):
    shutil.copytree(forms_dir, tmp_path / "page")
    path = tmp_path / "page" / "data" / "p0.js"
    start, content, end = re.fullmatch(r"(?s)(.*?)(\{.*\})(.*)", path.read_text("utf-8")).groups()
    pair = json.loads(content)
    effects = [-0.2, 0.5, 0.1]
    for row, effect in zip(pair["rows"], effects, strict=True):
        row |= {"difference": effect, "ci_low": effect - 0.1, "ci_high": effect + 0.1}
    path.write_text(start + json.dumps(pair) + end, "utf-8")
    page.directory = tmp_path / "page"
    page.open("#/comparison")
    button = next(button for button in page.find_all("figure .downloads button") if button.text == "CSV")
    rows = csv.DictReader(io.StringIO(downloads(page, button)[1].decode()))
    assert [float(row["value"]) for row in rows] == [50, 10, -20]
    assert page.text("figcaption h2") == "tuned minus base, percentage points"


def test_every_plot_has_downloads(page):
    for view in ("#/overview", f"#/task/{PAIRS[0]}/tuned", "#/comparison"):
        page.open(view)
        assert len(page.find_all("figure .downloads")) == len(page.find_all("figure")) > 0


def test_csv_cells_are_not_formulas(page):
    page.open()
    rows = [["=1+1", "-x", "plain", 'say "a", b', -1.5, None], ["+a", "@b", "c\nd", "", 0, None]]
    text = page.js(f"return download.csv({json.dumps(rows)})")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["'=1+1", "'-x", "plain", 'say "a", b', "-1.5", ""],
        ["'+a", "'@b", "c\nd", "", "0", ""],
    ]


def test_items_by_keyboard(page):
    page.open(f"#/item/{LETTERS}/base/q1")
    ids = []
    for key in "jjk":
        before = page.js("return location.hash")
        page.find("body").send_keys(key)
        page.until(f"location.hash !== {json.dumps(before)}")
        page.settled()
        ids.append(page.js("return location.hash").rsplit("/", 1)[1])
        assert page.js("return document.activeElement.id") == "main"
    assert len(set(ids)) == 2
    assert ids[0] == ids[2]
    page.open(f"#/items/{LETTERS}/base")
    page.find("body").send_keys("/")
    assert page.js("return document.activeElement.id") == "find"


def test_tokens_of_a_word_by_keyboard_and_click(page):
    page.open(f"#/item/{PAIRS[0]}/base/{FIRST}")
    words = page.find_all(".words")[0].find_elements("css selector", ".word")
    assert [word.get_attribute("tabindex") for word in words] == ["0", "-1", "-1", "-1", "-1"]
    words[0].click()
    assert page.text(".tokens") == "Ela 2.00 nats"
    page.js("return document.activeElement").send_keys("\ue014")  # arrow to the right
    assert page.text(".tokens") == " come 2.00 nats"
    assert page.js("return location.hash").endswith(FIRST)  # the arrow has not opened another item
    assert page.js("return document.activeElement.textContent").startswith("come")


def test_point_of_the_item_plot_opens_the_item(page):
    page.open(f"#/task/{PAIRS[0]}/tuned")
    point = page.find("figure:last-of-type .mark-symbol path[aria-label], figure:last-of-type .mark-symbol path")
    page.js("""arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: 0, clientY: 0}));""", point)
    page.until("location.hash.startsWith('#/item/')")
    page.settled()
