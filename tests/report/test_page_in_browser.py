import pytest
from support.report_run import ARABIC, GONE, HOSTILE, MODELS, OPTIONS, SENTENCES, WRITING, N, prompt_of

BOARD = ".board tbody tr > :first-child"


def address(*parts):
    """As the page itself writes it, in Python: names may be any text."""
    from urllib.parse import quote

    return "#/" + "/".join(quote(part, safe="") for part in parts)


def ready_items(browser):
    browser.until(f"document.querySelector('.progress').textContent.startsWith('{N} items')")


def sorted_by(browser, header, direction):
    """DataTables sorts a moment after the click."""
    browser.until("arguments[0].getAttribute('aria-sort') === arguments[1]", header, direction)


def test_the_leaderboard_shows_values_intervals_items_and_the_best(browser):
    browser.open()
    assert browser.text("h1") == "Leaderboard"
    cell = browser.one(f".board td.best a[href*='{OPTIONS}']").get_attribute("textContent")
    assert "50.0" in cell
    assert "45.0\u2009–\u200955.0" in cell
    assert "n\u2009260" in cell
    assert "⚑\u20091" in cell
    assert "best" in cell
    assert len(browser.all(".board td.best")) == 1
    assert len(browser.all(".board .mark")) == 2  # the best, and one that is not significantly different from it


def test_values_closer_than_their_intervals_are_wide_look_alike(browser):
    browser.open()
    cells = browser.all(f".board td:has(a[href*='{WRITING}'])")
    heat = [browser.js("return arguments[0].style.getPropertyValue('--heat')", cell) for cell in cells]
    assert heat == ["25%", "50%", "75%"]  # 10, 11 and 12 with intervals that are 4 wide: from 9 to 13


def test_names_that_look_like_code_are_names(browser):
    browser.open("#/leaderboard?down=models")
    assert sorted(browser.texts(BOARD)) == sorted(MODELS)
    assert browser.js("return ({}).polluted === undefined && Object.prototype.hasOwnProperty('name') === false")


def test_a_column_is_sorted_by_its_header_and_says_so(browser):
    browser.open("#/leaderboard?down=models")
    header = next(th for th in browser.all(".board thead th") if "olas" in th.text)
    header.find_element("css selector", ".dt-column-order").click()
    sorted_by(browser, header, "descending")
    assert browser.texts(BOARD) == ["__proto__", "=cmd()", "plain"]
    header.find_element("css selector", ".dt-column-order").click()
    sorted_by(browser, header, "ascending")
    assert browser.texts(BOARD) == ["plain", "=cmd()", "__proto__"]


def test_a_column_is_sorted_from_the_keyboard(browser):
    browser.open("#/leaderboard?down=models")
    header = next(th for th in browser.all(".board thead th") if "olas" in th.text)
    header.find_element("css selector", "[tabindex='0']").send_keys("\n")
    sorted_by(browser, header, "descending")


def test_rows_are_filtered_by_what_is_typed(browser):
    browser.open("#/leaderboard?down=models")
    browser.one("#find").send_keys("CMD")
    assert browser.texts(BOARD) == ["=cmd()"]


def test_a_language_shows_its_evaluations_only_and_stands_in_the_address(browser):
    browser.open("#/leaderboard?down=evaluations").choose("#language", "ar")
    assert len(browser.all(BOARD)) == 1
    assert "language=ar" in browser.js("return location.hash")
    browser.driver.back()
    browser.until("document.querySelectorAll('.board tbody tr').length === 3")


def test_above_chance_is_zero_at_chance(browser):
    browser.open("#/leaderboard?scale=chance&down=models")
    row = next(tr for tr in browser.all(".board tbody tr") if tr.text.startswith("plain"))
    assert [a.text.split("\n")[0].rstrip("★☆") for a in row.find_elements("css selector", "td a")] == [
        "–",
        "0.0",
        "0.0",
    ]


def test_against_a_baseline_shows_the_paired_difference(browser):
    browser.open("#/leaderboard?scale=baseline&baseline=plain&down=models&language=gl")
    row = next(tr for tr in browser.all(".board tbody tr") if tr.text.startswith("=cmd()"))
    assert "+16.0" in row.text
    assert "10.0\u2009–\u200920.0" in row.text
    assert row.find_elements("css selector", "td.significant")


def test_a_cell_leads_to_its_task_its_items_and_one_item_and_back(browser):
    browser.open("#/leaderboard?down=models")
    row = next(tr for tr in browser.all(".board tbody tr") if tr.text.startswith("=cmd()"))
    browser.click(row.find_element("css selector", f"a[href*='{OPTIONS}']"))
    assert browser.text("h1").startswith("olas")
    browser.until("document.querySelectorAll('.plot svg').length === 4")
    browser.click(browser.one(".controls a.button"))
    ready_items(browser)
    assert browser.texts(".items tbody .badge")[:2] == ["✗ incorrect"] * 2
    browser.click(browser.one(".items tbody th a"))
    assert browser.text("h1") == "Item i258"  # the widest margin that =cmd() got wrong: 258 = 3 × 86
    assert browser.text(".sent") == prompt_of(258)
    assert browser.texts(".options .badge") == ["✓ correct", "● selected"]
    assert browser.texts(".nats") == ["2.0", "3.0"]  # 0.5 for the blank and 1.5 + option for the word
    browser.driver.back()
    browser.until("document.querySelector('table.items')")


def test_items_come_in_pieces_and_are_searched_in_all_of_them(browser):
    browser.open(address("items", OPTIONS, "plain"))
    ready_items(browser)
    assert {name.rsplit("/", 1)[1] for name in browser.requested() if "/e0/i" in name} == {"i0.js", "i1.js"}
    browser.one("#find").send_keys("NUMERO 259")
    assert browser.texts(".items tbody th") == ["Pregunta número 259"]


def test_flagged_items_are_found(browser):
    browser.open(address("items", OPTIONS, "plain"))
    ready_items(browser)
    browser.choose("#show", "flagged")
    assert browser.texts(".items tbody th") == ["Pregunta número 9"]


@pytest.mark.parametrize("item", HOSTILE)
def test_whatever_an_item_says_is_shown_and_never_run(browser, item):
    browser.open(address("item", OPTIONS, "=cmd()", item))
    assert browser.text(".sent") == HOSTILE[item]
    assert browser.js("return window.pwned === undefined")
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.all("main img, main script, main b, main iframe") == []


def test_hostile_items_stand_in_the_list_and_in_the_search_as_text(browser):
    browser.open(address("items", OPTIONS, "plain"))
    ready_items(browser)
    browser.one("#find").send_keys("<img")
    assert browser.texts(".items tbody th") == [HOSTILE["i4"]]
    assert "<b>right</b>" in browser.text(".items tbody tr")
    assert browser.js("return window.pwned === undefined && document.querySelector('main img, main b') === null")


def test_right_to_left_text_reads_from_the_right_and_its_words_stay_whole(browser):
    browser.open(address("item", SENTENCES, "plain", "s2"))
    sent, words = browser.one(".sent"), browser.all(".word .text")
    assert sent.value_of_css_property("direction") == "rtl"
    assert [word.text for word in words] == [*ARABIC.split(), "😀😀"]
    assert words[0].location["x"] > words[1].location["x"]


def test_surprisal_is_drawn_for_every_token_under_its_word(browser):
    browser.open(address("item", SENTENCES, "plain", "s0"))
    assert len(browser.all(".bars i")) == 2
    assert browser.texts(".nats")[:2] == ["4.5", "1.0"]  # a token that begins with the blank belongs to the word after


def test_a_text_without_blanks_is_cut_where_its_words_end(browser):
    browser.open()
    text = "我喜歡在春天的早晨沿著河邊慢慢散步然後回家喝一杯熱茶"
    words = browser.js(f"return vernacular.surprisal.words(Array.from('{text}'), 'zh')")
    assert len(words) > 8
    assert [start for start, _ in words] == [0, *(end for _, end in words[:-1])]
    assert words[-1][1] == len(text)


def test_a_chat_template_is_shown_around_the_prompt_and_not_in_it(browser):
    browser.open(address("item", WRITING, "plain", "w1"))
    assert browser.text("section section h2") == "Prompt as sent, with chat template"
    assert browser.texts(".sent") == [
        "<|user|>\n",
        "Питање 1:",
        "<|end|>",
        "<i>одговор</i> 0",
        "<i>одговор</i> \n more",
    ]


def test_the_few_shot_block_is_folded_away_before_the_prompt(browser):
    browser.open(address("item", WRITING, "__proto__", "w1"))
    assert browser.texts(".sent")[:2] == ["Пример: да\n\n", "Питање 1:"]
    assert browser.one("details").get_attribute("open") is None


def test_a_comparison_leads_to_the_items_won_and_lost(browser):
    browser.open("#/comparison")
    assert browser.text("h1") == "=cmd() against plain"
    browser.until("document.querySelectorAll('.plot svg').length === 1")
    won = browser.one("a[href$='show=improved']")
    assert won.text == "2"
    browser.click(won)
    assert browser.texts(".items tbody .badge") == ["▲ improved", "▲ improved"]
    browser.choose("#show", "regressed")
    browser.until("document.querySelectorAll('.items tbody tr').length === 1")
    assert HOSTILE["i4"] in browser.text(".items tbody")
    browser.click(browser.one(".items tbody td a"))
    assert browser.text("h1") == "Item i4"


def test_the_theme_switches_and_plots_follow(browser):
    browser.open(address("task", OPTIONS, "plain"))
    first = browser.js("return getComputedStyle(document.documentElement).backgroundColor")
    name = browser.text("#theme")
    browser.one("#theme").click()
    browser.until("document.body.dataset.ready === 'yes'")
    assert browser.js("return getComputedStyle(document.documentElement).backgroundColor") != first
    assert browser.text("#theme") != name
    browser.settled().one("#theme").click()
    browser.settled()
    assert browser.js("return getComputedStyle(document.documentElement).backgroundColor") == first


def test_provenance_names_models_data_sets_runs_and_time(browser):
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
    assert browser.all("main b") == []


VIEWS = ["#/leaderboard", address("task", OPTIONS, "=cmd()"), address("items", OPTIONS, "plain"),
         address("item", OPTIONS, "plain", "i6"), address("item", SENTENCES, "plain", "s3"), "#/comparison",
         address("comparison", "plain", "=cmd()", OPTIONS), "#/provenance", "#/nowhere/%E0%A4%A"]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_shows_every_view_without_scrolling_sideways(browser, view):
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        browser.open(view)
        assert browser.js("return [document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_can_be_heard(browser, view):
    browser.open(view)
    assert len(browser.all("h1")) == 1
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


def test_the_first_stop_of_the_tab_key_skips_to_the_content(browser):
    browser.open()
    browser.one("body").send_keys("\t")
    assert browser.js("return document.activeElement.id") == "skip"
    browser.js("return document.activeElement").send_keys("\n")
    assert browser.js("return document.activeElement.id") == "main"


def test_what_could_not_be_had_is_said_where_its_values_would_stand(browser):
    browser.open()
    assert browser.text("main details summary") == "3 evaluations without values"
    assert "plain · gone.gl.letters.0shot — unavailable: <b>gated</b>" in browser.text("main details")
    browser.open(address("task", GONE))
    assert "No value could be computed" in browser.text("main")
    browser.open(address("items", GONE, "plain"))
    assert "plain has no outputs for gone.gl.letters.0shot" in browser.text("main")
    browser.open("#/provenance")
    assert "<b>gated</b>" in browser.text("main")


def test_an_unknown_name_is_said_and_not_an_error(browser):
    browser.open(address("task", "no.such.thing"))
    assert "Evaluation “no.such.thing” not found" in browser.text("main")


def test_even_markup_that_got_in_could_not_run(browser):
    browser.open()
    browser.js("document.body.insertAdjacentHTML('beforeend', '<img src=data:x onerror=\"window.pwned = 3\">')")
    browser.until("true")
    assert browser.js("return window.pwned === undefined")
    assert any("Content Security Policy" in line for line in browser.console())
