"""The view of training curves, in Chromium: plots equal the tables, gaps, axes, categories and one item over training."""

import csv
import io

import pandas as pd
import pytest
from support.downloads import downloads
from support.report_curves import EVALUATION, MISSING, STEPS, TOKENS_PER_STEP, write_run
from vernacular.report.page import build


def table(curves_dir, name="curves"):
    return pd.read_csv(curves_dir / "results" / "summary" / f"{name}.csv", keep_default_na=True)


def plot_rows(page, number=0):
    """Return the rows of a plot, as its CSV download contains them."""
    buttons = page.find_all("figure .downloads button[aria-label$='as CSV']")
    name, content = downloads(page, buttons[number])
    return name, list(csv.DictReader(io.StringIO(content.decode())))


def test_navigation_shows_curves_only_with_series(curves_page, browser):
    curves_page.open()
    assert curves_page.find("nav a[href='#/curves']").is_displayed()
    browser.open()
    assert not browser.find("nav a[href='#/curves']").is_displayed()
    browser.open("#/curves")
    assert "No training curves" in browser.text("main")


def test_plot_has_the_values_of_the_table(curves_page, curves_dir):
    curves_page.open("#/curves")
    assert "For models of this size (135M parameters): look at" in curves_page.text(".headline")
    name, rows = plot_rows(curves_page)
    assert name == "pairs.gl.minimal-pair.0shot-accuracy-curve-value.csv"
    points = table(curves_dir).query("category.isna() and metric == 'accuracy' and value.notna()")
    assert len(rows) == len(points) == 2 * len(STEPS) - 1
    drawn = {(row["curve"].removeprefix("'"), int(row["step"])): float(row["value"]) for row in rows}
    for _, point in points.iterrows():
        assert drawn[point["curve"].removeprefix("'"), point["step"]] == pytest.approx(100 * point["value"], rel=1e-4)
    assert (MISSING.partition(".")[0], 2000) not in drawn
    assert {row["part"] for row in rows} == {"mine 0", "'=other 0", "'=other 1"}  # a gap, not a line through it
    assert curves_page.find_all("figure svg path")


def test_differences_are_paired_and_shown_on_request(curves_page, curves_dir):
    curves_page.open("#/curves")
    curves_page.choose("#show", "last")
    _, rows = plot_rows(curves_page)
    points = table(curves_dir).query("category.isna() and metric == 'accuracy' and last_difference.notna()")
    assert sorted(float(row["value"]) for row in rows) == pytest.approx(
        sorted(100 * points["last_difference"]), rel=1e-3
    )
    curves_page.choose("#show", "pair:0")
    _, rows = plot_rows(curves_page)
    assert [int(row["tokens"]) for row in rows] == [step * TOKENS_PER_STEP for step in STEPS if step != 2000]
    pair = table(curves_dir, "curve_pair_points").query("category.isna() and metric == 'accuracy'")
    assert [float(row["value"]) for row in rows] == pytest.approx((100 * pair["difference"]).tolist(), abs=0.01)


def test_axis_and_scale_are_chosen_and_step_0_has_a_place_without_a_line(curves_page):
    curves_page.open("#/curves")
    curves_page.choose("#axis", "tokens")
    curves_page.choose("#scale", "log")
    assert "axis=tokens" in curves_page.js("return location.hash")
    assert "scale=log" in curves_page.js("return location.hash")
    _, rows = plot_rows(curves_page)
    first = next(row for row in rows if row["tokens"] == "0")
    assert float(first["x"]) == pytest.approx(1000 * TOKENS_PER_STEP / 3)
    assert [row["part"] for row in rows if row["curve"] == "mine"] == ["mine 0", *["mine 1"] * 5]
    assert "Position 0 is drawn at the left edge" in curves_page.text("main")


def test_categories_are_small_plots_in_the_order_of_learning(curves_page):
    curves_page.open("#/curves")
    titles = curves_page.texts("figure h2")
    assert titles[1:] == ["agreement", "order"]
    assert curves_page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_statistics_and_verdicts_are_tables(curves_page, curves_dir):
    curves_page.open("#/curves")
    headings = curves_page.texts("main h2")
    assert "Which tasks can be trusted at this size" in headings
    assert "Area between two curves, at equal positions" in headings
    assert curves_page.texts(".badge.useful") == ["useful"]
    button = curves_page.find("button[aria-label$='curve statistics as CSV']")
    _, content = downloads(curves_page, button)
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    (row,) = [row for row in rows if row["Curve"] == "mine" and not row["Category"]]
    (expected,) = table(curves_dir, "curve_statistics").query(
        "curve == 'mine' and category.isna() and metric == 'accuracy'"
    )["learned_90"]
    assert int(row["90 % at"]) == expected


def test_series_without_an_axis_in_common_are_drawn_on_their_own_and_their_slopes_have_their_units(
    tmp_path, run_report
):
    build(out=tmp_path / "page", **write_run(tmp_path, in_words="=other"))
    page = run_report(tmp_path / "page").open("#/curves")
    for axis, curve in (("step", "mine"), ("words", "'=other")):
        page.choose("#axis", axis)
        _, rows = plot_rows(page)
        assert {row["curve"] for row in rows} == {curve}
    _, content = downloads(page, page.find("button[aria-label$='curve statistics as CSV']"))
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert {row["Curve"]: row["Axis"] for row in rows} == {"mine": "steps", "'=other": "words"}
    assert "Slope of the last third, per 1,000 steps or 10⁹ words" in rows[0]


def test_slider_shows_the_answer_of_each_checkpoint(curves_page):
    curves_page.open(f"#/curve-item/{EVALUATION}/mine")
    assert curves_page.text(".training output").startswith("checkpoint-0")
    slider = curves_page.find("#checkpoint")
    outcomes = []
    for k in range(len(STEPS)):
        curves_page.js("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", slider, k)
        curves_page.until(
            f"document.querySelector('.training output').textContent.startsWith('checkpoint-{STEPS[k]} ')"
        )
        curves_page.until("document.querySelector('.options .badge.chosen')")
        outcomes.append(curves_page.text(".training output .badge").split()[-1])
    assert outcomes == sorted(outcomes, reverse=True)  # incorrect first, then correct
    assert set(outcomes) == {"incorrect", "correct"}
    assert curves_page.js("return document.querySelector('#checkpoint').getAttribute('aria-valuetext')") == (
        "checkpoint-16000, correct"
    )
    item = curves_page.text("h1 small")
    curves_page.click(curves_page.find("a[rel=next]"))
    assert curves_page.text("h1 small") != item
    curves_page.choose("#curve", "=other")
    curves_page.until("location.hash.includes('%3Dother')")
    # without the missing one
    assert int(curves_page.settled().find("#checkpoint").get_attribute("max")) == len(STEPS) - 2


def test_views_fit_a_phone(curves_page):
    for address in ("#/curves", f"#/curve-item/{EVALUATION}/mine"):
        curves_page.open(address, width=400)
        assert curves_page.js("return document.documentElement.scrollWidth <= innerWidth + 1")
