import pytest
from support.report_run import ARABIC, GENERATION, HOSTILE, MODELS, OPTIONS, SENTENCES, UNAVAILABLE, N, prompt_of

BOARD = ".board tbody tr > :first-child"


def address(*parts):
    """Return the address of a view, as the report writes it; names may be any text."""
    from urllib.parse import quote

    return "#/" + "/".join(quote(part, safe="") for part in parts)


def wait_for_items(browser):
    browser.until(f"document.querySelector('.progress').textContent.startsWith('{N} items')")


def wait_for_sort(browser, header, direction):
    """Wait until the table is sorted: DataTables sorts asynchronously."""
    browser.until("arguments[0].getAttribute('aria-sort') === arguments[1]", header, direction)


def test_leaderboard_shows_values_intervals_counts_and_best(browser):
    browser.open("#/leaderboard")
    assert browser.text("h1") == "Leaderboard"
    cell = browser.find(f".board td.best a[href*='{OPTIONS}']").get_attribute("textContent")
    assert "75.0" in cell
    assert "70.0\u2009–\u200980.0" in cell
    assert "n\u2009260" in cell
    assert "⚑\u20091" in cell
    assert "best" in cell
    assert len(browser.find_all(f".board td.best:has(a[href*='{OPTIONS}'])")) == 1
    # the best, and one that is not significantly different from it
    assert len(browser.find_all(f".board td:has(a[href*='{OPTIONS}']) .mark")) == 2


def test_heatmap_scale_includes_intervals(browser):
    browser.open("#/leaderboard")
    cells = browser.find_all(f".board td:has(a[href*='{GENERATION}'])")
    heat = [browser.js("return arguments[0].style.getPropertyValue('--heat')", cell) for cell in cells]
    assert heat == ["25%", "50%", "75%"]  # 10, 11 and 12 with intervals of width 4: from 9 to 13


@pytest.mark.parametrize(("rows", "line", "other"), [("models", "column", "row"), ("evaluations", "row", "column")])
def test_legend_is_true_for_the_orientation(browser, rows, line, other):
    browser.open(f"#/leaderboard?down={rows}")
    legend = browser.text(".legend")
    assert f"best of its {line}" in legend
    assert other not in legend


def test_names_that_look_like_code_are_text(browser):
    browser.open("#/leaderboard?down=models")
    assert sorted(browser.texts(BOARD)) == sorted(MODELS)
    assert browser.js("return ({}).polluted === undefined && Object.prototype.hasOwnProperty('name') === false")


def test_column_header_sorts_and_sets_aria_sort(browser):
    browser.open("#/leaderboard?down=models")
    header = next(th for th in browser.find_all(".board thead tr:last-child th") if "options" in th.text)
    header.find_element("css selector", ".dt-column-order").click()
    wait_for_sort(browser, header, "descending")
    assert browser.texts(BOARD) == ["__proto__", "=cmd()", "plain"]
    header.find_element("css selector", ".dt-column-order").click()
    wait_for_sort(browser, header, "ascending")
    assert browser.texts(BOARD) == ["plain", "=cmd()", "__proto__"]


def test_column_sorts_by_keyboard(browser):
    browser.open("#/leaderboard?down=models")
    header = next(th for th in browser.find_all(".board thead tr:last-child th") if "options" in th.text)
    header.find_element("css selector", "[tabindex='0']").send_keys("\n")
    wait_for_sort(browser, header, "descending")


@pytest.mark.parametrize(
    ("by", "title", "own"),
    [("task", "Waves <b> (samples)", "gl options"), ("language", "Galician", "Waves <b> (samples)")],
)
def test_columns_are_grouped_by_task_or_language(browser, by, title, own):
    browser.open(f"#/leaderboard?down=models&by={by}")
    groups = browser.find_all(".board .groups th")
    assert title in [group.text for group in groups]
    spans = [int(group.get_attribute("colspan")) for group in groups]
    headings = browser.find_all(".board thead tr:nth-child(2) th")
    assert sum(spans) == len(headings)
    first = sum(spans[: [group.text for group in groups].index(title)])
    assert own in headings[first].get_attribute("textContent")
    assert (title in headings[first].get_attribute("textContent")) is False


def test_means_per_language_have_intervals_and_marks(browser):
    browser.open("#/leaderboard?by=language-means")
    assert browser.texts(".board thead .task") == ["Overall", "Galician"]
    assert "evaluations" in browser.text(".board td .n")
    browser.choose("#by", "task-means")
    browser.until("location.hash.includes('task-means')")


def test_search_filters_rows(browser):
    browser.open("#/leaderboard?down=models")
    browser.find("#find").send_keys("CMD")
    assert browser.texts(BOARD) == ["=cmd()"]


def test_language_filter_is_in_address(browser):
    browser.open("#/leaderboard?down=evaluations").choose("#language", "ar")
    assert len(browser.find_all(BOARD)) == 1
    assert "language=ar" in browser.js("return location.hash")
    browser.driver.back()
    browser.until("document.querySelectorAll('.board tbody tr').length === 3")


def test_chance_scale_is_zero_at_chance_level(browser):
    browser.open("#/leaderboard?scale=chance&down=models")
    row = next(tr for tr in browser.find_all(".board tbody tr") if tr.text.startswith("plain"))
    assert [a.text.split("\n")[0].rstrip("★☆") for a in row.find_elements("css selector", "td a")] == [
        "–",
        "0.0",
        "0.0",
    ]


def test_baseline_scale_shows_paired_difference(browser):
    browser.open("#/leaderboard?scale=baseline&baseline=plain&down=models&language=gl")
    row = next(tr for tr in browser.find_all(".board tbody tr") if tr.text.startswith("=cmd()"))
    assert "+16.0" in row.text
    assert "10.0\u2009–\u200920.0" in row.text
    assert row.find_elements("css selector", "td.significant")


def test_navigation_from_cell_to_task_items_and_item(browser):
    browser.open("#/leaderboard?down=models")
    row = next(tr for tr in browser.find_all(".board tbody tr") if tr.text.startswith("=cmd()"))
    browser.click(row.find_element("css selector", f"a[href*='{OPTIONS}']"))
    assert browser.text("h1").startswith("Waves <b>")
    browser.until("document.querySelectorAll('.plot svg').length === 6")
    browser.click(browser.find(".controls a.button"))
    wait_for_items(browser)
    assert browser.texts(".items tbody .badge")[:2] == ["✗ incorrect"] * 2
    browser.click(browser.find(".items tbody th a"))
    # the largest margin among the incorrect items of =cmd(): 258 = 3 × 86
    assert browser.text("h1").endswith("item i258")
    assert browser.text(".sent") == prompt_of(258)
    assert browser.texts(".options .badge") == ["✓ correct", "● selected"]
    assert browser.texts(".nats") == ["2.0", "3.0"]  # 0.5 for the space and 1.5 + option for the word
    browser.driver.back()
    browser.until("document.querySelector('table.items')")


def test_item_search_covers_all_data_files(browser):
    browser.open(address("items", OPTIONS, "plain"))
    wait_for_items(browser)
    assert {name.rsplit("/", 1)[1] for name in browser.requested() if "/e0/i" in name} == {"i0.js", "i1.js"}
    browser.find("#find").send_keys("NUMERO 259")
    assert browser.texts(".items tbody th") == ["Pregunta número 259"]


def test_flagged_items_filter(browser):
    browser.open(address("items", OPTIONS, "plain"))
    wait_for_items(browser)
    browser.choose("#show", "flagged")
    assert browser.texts(".items tbody th") == ["Pregunta número 9"]


@pytest.mark.parametrize("item", HOSTILE)
def test_hostile_item_is_displayed_as_text(browser, item):
    browser.open(address("item", OPTIONS, "=cmd()", item))
    assert browser.text(".sent") == HOSTILE[item]
    assert browser.js("return window.pwned === undefined")
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.find_all("main img, main script, main b, main iframe") == []


def test_hostile_items_are_text_in_list_and_search(browser):
    browser.open(address("items", OPTIONS, "plain"))
    wait_for_items(browser)
    browser.find("#find").send_keys("<img")
    assert browser.texts(".items tbody th") == [HOSTILE["i4"]]
    assert "<b>right</b>" in browser.text(".items tbody tr")
    assert browser.js("return window.pwned === undefined && document.querySelector('main img, main b') === null")


def test_right_to_left_text_keeps_direction_and_words(browser):
    browser.open(address("item", SENTENCES, "plain", "s2"))
    sent, words = browser.find(".sent"), browser.find_all(".word .text")
    assert sent.value_of_css_property("direction") == "rtl"
    assert [word.text for word in words] == [*ARABIC.split(), "😀😀"]
    assert words[0].location["x"] > words[1].location["x"]


def test_surprisal_bars_are_grouped_by_word(browser):
    browser.open(address("item", SENTENCES, "plain", "s0"))
    assert len(browser.find_all(".bars i")) == 2
    assert browser.texts(".nats")[:2] == ["4.5", "1.0"]  # a token that begins with a space belongs to the next word


def test_text_without_spaces_is_segmented_into_words(browser):
    browser.open("#/leaderboard")
    text = "我喜歡在春天的早晨沿著河邊慢慢散步然後回家喝一杯熱茶"
    words = browser.js(f"return surprisal.words(Array.from('{text}'), 'zh')")
    assert len(words) > 8
    assert [start for start, _ in words] == [0, *(end for _, end in words[:-1])]
    assert words[-1][1] == len(text)


def test_chat_template_is_displayed_around_prompt(browser):
    browser.open(address("item", GENERATION, "plain", "w1"))
    assert browser.text("section section h2") == "Prompt as sent, with chat template"
    assert browser.texts(".sent") == [
        "<|user|>\n",
        "Питање 1:",
        "<|end|>",
        "<i>одговор</i> 0",
        "<i>одговор</i> \n more",
    ]


def test_few_shot_prefix_is_collapsed(browser):
    browser.open(address("item", GENERATION, "__proto__", "w1"))
    assert browser.texts(".sent")[:2] == ["Пример: да\n\n", "Питање 1:"]
    assert browser.find("details").get_attribute("open") is None


def test_reasoning_and_other_samples_are_folded(browser):
    browser.open(address("item", GENERATION, MODELS[1], "w0"))
    assert browser.texts("details summary")[:4] == [
        "Few-shot prefix, 12 characters",
        "Reasoning before the answer, 7 tokens",
        "Complete output",
        "1 other sample; the values are means",
    ]
    assert browser.texts(".sent")[2:] == ["<b>Да</b> видимо.", "<i>одговор</i> 1", "<i>одговор</i> \n more", "(empty)"]
    assert browser.js("return document.querySelectorAll('details[open]').length") == 0


def test_comparison_links_to_improved_and_regressed_items(browser):
    browser.open("#/comparison")
    assert browser.text("h1") == "=cmd() against plain"
    browser.until("document.querySelectorAll('.plot svg').length === 1")
    improved_link = browser.find("a[href$='show=improved']")
    assert improved_link.text == "2"
    browser.click(improved_link)
    assert browser.texts(".items tbody .badge") == ["▲ improved", "▲ improved"]
    browser.choose("#show", "regressed")
    browser.until("document.querySelectorAll('.items tbody tr').length === 1")
    assert HOSTILE["i4"] in browser.text(".items tbody")
    browser.click(browser.find(".items tbody td a"))
    assert browser.text("h1").endswith("item i4")


def test_theme_switch(browser):
    browser.open(address("task", OPTIONS, "plain"))
    initial_color = browser.js("return getComputedStyle(document.documentElement).backgroundColor")
    initial_label = browser.text("#theme")
    browser.find("#theme").click()
    browser.until("document.body.dataset.ready === 'yes'")
    assert browser.js("return getComputedStyle(document.documentElement).backgroundColor") != initial_color
    assert browser.text("#theme") != initial_label
    browser.settled().find("#theme").click()
    browser.settled()
    assert browser.js("return getComputedStyle(document.documentElement).backgroundColor") == initial_color


def test_provenance_lists_models_datasets_runs_and_time(browser):
    browser.open("#/provenance")
    text = browser.text("main")
    for expected in (
        "lab/plain",
        "<b>set</b>",
        "tree",
        "float32",
        "12,345",
        "truncated",
        "9 of 10 matched",
        "12.5 s",
        "custom, trusted",
    ):
        assert expected in text
    assert browser.find_all("main b") == []


VIEWS = ["#/leaderboard", address("task", OPTIONS, "=cmd()"), address("items", OPTIONS, "plain"),
         address("item", OPTIONS, "plain", "i6"), address("item", SENTENCES, "plain", "s3"), "#/comparison",
         address("comparison", "plain", "=cmd()", OPTIONS), "#/tokenizers", "#/provenance", "#/nowhere/%E0%A4%A"]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_views_fit_mobile_width(browser, view):
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        browser.open(view)
        assert browser.js("return [document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_accessible(browser, view):
    browser.open(view)
    assert len(browser.find_all("h1")) == 1
    assert browser.js(
        "return [...document.querySelectorAll('select, input')].every((field) => field.labels.length === 1)"
    )
    assert browser.js(
        "return [...document.querySelectorAll('main table')].every((t) => t.tHead && t.querySelector('th[scope]'))"
    )
    assert browser.js("return [...document.querySelectorAll('.plot')].every((p) => p.getAttribute('aria-label'))")
    assert (
        browser.js("return document.querySelectorAll('main [onclick], main [role=button]:not([class*=dt-])').length")
        == 0
    )


def test_skip_link_is_first_tab_stop(browser):
    browser.open()
    browser.find("body").send_keys("\t")
    assert browser.js("return document.activeElement.id") == "skip"
    browser.js("return document.activeElement").send_keys("\n")
    assert browser.js("return document.activeElement.id") == "main"


def test_unavailable_evaluation_is_reported_in_each_view(browser):
    browser.open("#/leaderboard")
    assert browser.text("main details summary") == "3 evaluations with missing values"
    assert "plain · gone · Galician · letters — unavailable: <b>gated</b>" in browser.text("main details")
    browser.open(address("task", UNAVAILABLE))
    assert "No value could be computed" in browser.text("main")
    browser.open(address("items", UNAVAILABLE, "plain"))
    assert "plain has no outputs for gone.gl.letters.0shot" in browser.text("main")
    browser.open("#/provenance")
    assert "<b>gated</b>" in browser.text("main")


def test_unknown_evaluation_is_reported(browser):
    browser.open(address("task", "no.such.thing"))
    assert "Evaluation “no.such.thing” not found" in browser.text("main")


def test_content_security_policy_blocks_injected_markup(browser):
    browser.open()
    browser.js("document.body.insertAdjacentHTML('beforeend', '<img src=data:x onerror=\"window.pwned = 3\">')")
    browser.until("true")
    assert browser.js("return window.pwned === undefined")
    assert any("Content Security Policy" in line for line in browser.console())


def test_languages_of_responses_are_shown_beside_those_of_correct_answers(browser):
    browser.open(address("task", GENERATION, "plain"))
    assert browser.text(".profile h3") == "Language of the items and of the responses"
    titles = [title.removesuffix(" ") for title in browser.texts(".profile thead .dt-column-title")]
    assert titles == ["Items in", "Responses", "Correct answers in it", "Serbian", "Latin script"]
    assert browser.texts(".profile tbody tr > *") == ["Serbian", "4", "100.0 %", "75.0 %", "25.0 %"]
    browser.open(address("task", GENERATION, "__proto__"))
    assert browser.find_all(".profile") == [], "not identified"


def test_phone_shows_the_best_model_and_that_there_is_more(browser):
    browser.open("#/overview", width=420)
    assert "none" not in browser.js(
        "return [...document.querySelectorAll('.map .who')].map((e) => getComputedStyle(e).display)"
    )
    browser.open("#/leaderboard?down=models", width=420)
    browser.until("document.querySelector('.leaderboard .scroll.more')")
    assert "gradient" in browser.js("return getComputedStyle(document.querySelector('.scroll.more')).maskImage")


def test_print_keeps_colors_and_complete_tables(browser):
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.open("#/leaderboard?down=models")
        style = "const s = getComputedStyle(document.querySelector(arguments[0])); return [s.printColorAdjust, s.overflowX, s.display]"
        assert browser.js(style, ".board td.heat")[0] == "exact"
        assert browser.js(style, ".leaderboard .scroll")[1] == "visible"
        assert browser.js(style, ".board .interval")[2] == browser.js(style, ".board .n")[2] == "block"
        assert browser.js(style, ".downloads")[2] == "none"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_rounded_number_has_no_negative_zero(browser):
    browser.open()
    texts = browser.js("return [-0.0004, 0.0004, -0.0006].map((number) => format.value(number, 'share'))")
    assert texts == ["0.0", "0.0", "−0.1"]
    assert browser.js("return [-1e-7, -0.5].map((number) => format.value(number, 'nats'))") == ["−1.0e-7", "−0.500"]


def test_hashes_are_shortened_and_names_of_releases_are_not(browser):
    browser.open("#/provenance")
    for value, shown in (("0123456789abcdef" * 4, "0123456789abcdef…"), ("a-package-with-a-long-name 0.1.2",) * 2):
        assert browser.js("return format.hash(arguments[0])", value) == shown


def test_wide_table_is_printed_as_several_that_fit_a_page(browser):
    """Every column is on paper once, the first in each table, and the screen shows the table as before."""
    browser.open("#/overview")
    browser.js(
        """
        const columns = Array.from({length: 30}, (_, i) => ({title: `column ${i}`, heading: !i, cell: () => `value ${i}`}));
        const groups = [["", 1], ["left", 14], ["right", 15]];
        document.querySelector("main").append(table.make(columns, [1, 2], {label: "wide", groups}).element);
        """
    )
    parts = """return [...document.querySelectorAll('[aria-label="wide"] .printed')].map((part) => [
        [...part.tHead.rows[0].cells].reduce((sum, cell) => sum + cell.colSpan, 0),
        [...part.tHead.rows[1].cells].map((cell) => cell.textContent), part.tBodies[0].rows.length])"""
    browser.js("dispatchEvent(new Event('beforeprint'))")
    found = browser.js(parts)
    assert len(found) > 1
    assert [column for _, titles, _ in found for column in titles[1:]] == [f"column {i}" for i in range(1, 30)]
    assert {titles[0] for _, titles, _ in found} == {"column 0"}
    assert all(covered == len(titles) and rows == 2 for covered, titles, rows in found)
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js(parts) == []
