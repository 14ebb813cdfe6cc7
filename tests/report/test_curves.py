"""The view of training curves, in Chromium: plots equal the tables, gaps, axes, categories and one item over training."""

import csv
import io

import pandas as pd
import pytest
from support import report_curves
from support.report_curves import EVALUATION, MISSING, STEPS, TOKENS_PER_STEP
from vernacular.report.page import build

from report.conftest import _checked
from report.test_views_of_two_models import downloads

LINES = "arguments[0].vega.data('source_0')"


@pytest.fixture(scope="module")
def curves_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("curves")
    build(out=root / "page", **report_curves.write_run(root))
    return root


@pytest.fixture
def page(chromium, curves_dir):
    yield from _checked(chromium, curves_dir / "page")


def table(curves_dir, name="curves"):
    return pd.read_csv(curves_dir / "results" / "summary" / f"{name}.csv", keep_default_na=True)


def plot_rows(page, number=0):
    """Return the rows of a plot, as its CSV download contains them."""
    buttons = page.find_all("figure .downloads button[aria-label$='as CSV']")
    name, content = downloads(page, buttons[number])
    return name, list(csv.DictReader(io.StringIO(content.decode())))


def test_navigation_shows_curves_only_with_series(page, chromium, report_dir):
    page.open()
    assert page.find("nav a[href='#/curves']").is_displayed()
    other = next(_checked(chromium, report_dir))
    other.open()
    assert not other.find("nav a[href='#/curves']").is_displayed()
    other.open("#/curves")
    assert "No training curves" in other.text("main")


def test_plot_has_the_values_of_the_table(page, curves_dir):
    page.open("#/curves")
    assert "For models of this size (135M parameters): look at" in page.text(".headline")
    name, rows = plot_rows(page)
    assert name == "pairs.gl.minimal_pair.0shot-accuracy-curve-value.csv"
    points = table(curves_dir).query("category.isna() and metric == 'accuracy' and value.notna()")
    assert len(rows) == len(points) == 2 * len(STEPS) - 1
    drawn = {(row["curve"].removeprefix("'"), int(row["step"])): float(row["value"]) for row in rows}
    for _, point in points.iterrows():
        assert drawn[point["curve"].removeprefix("'"), point["step"]] == pytest.approx(100 * point["value"], rel=1e-4)
    assert (MISSING.partition(".")[0], 2000) not in drawn
    assert {row["part"] for row in rows} == {"mine 0", "'=other 0", "'=other 1"}  # a gap, not a line through it
    assert page.find_all("figure svg path")


def test_differences_are_paired_and_shown_on_request(page, curves_dir):
    page.open("#/curves")
    page.choose("#show", "last")
    _, rows = plot_rows(page)
    points = table(curves_dir).query("category.isna() and metric == 'accuracy' and last_difference.notna()")
    assert sorted(float(row["value"]) for row in rows) == pytest.approx(
        sorted(100 * points["last_difference"]), rel=1e-3
    )
    page.choose("#show", "pair:0")
    _, rows = plot_rows(page)
    assert [int(row["tokens"]) for row in rows] == [step * TOKENS_PER_STEP for step in STEPS if step != 2000]
    pair = table(curves_dir, "curve_pair_points").query("category.isna() and metric == 'accuracy'")
    assert [float(row["value"]) for row in rows] == pytest.approx((100 * pair["difference"]).tolist(), abs=0.01)


def test_axis_and_scale_are_chosen_and_step_0_has_a_place_without_a_line(page):
    page.open("#/curves")
    page.choose("#axis", "tokens")
    page.choose("#scale", "log")
    assert "axis=tokens" in page.js("return location.hash")
    assert "scale=log" in page.js("return location.hash")
    _, rows = plot_rows(page)
    first = next(row for row in rows if row["tokens"] == "0")
    assert float(first["x"]) == pytest.approx(1000 * TOKENS_PER_STEP / 3)
    assert [row["part"] for row in rows if row["curve"] == "mine"] == ["mine 0", *["mine 1"] * 5]
    assert "Position 0 is drawn at the left edge" in page.text("main")


def test_categories_are_small_plots_in_the_order_of_learning(page):
    page.open("#/curves")
    titles = page.texts("figure h2")
    assert titles[1:] == ["agreement", "order"]
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_statistics_and_verdicts_are_tables(page, curves_dir):
    page.open("#/curves")
    headings = page.texts("main h2")
    assert "Which tasks can be trusted at this size" in headings
    assert "Area between two curves, at equal positions" in headings
    assert page.texts(".badge.useful") == ["useful"]
    button = page.find("button[aria-label$='curve statistics as CSV']")
    _, content = downloads(page, button)
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    (row,) = [row for row in rows if row["Curve"] == "mine" and not row["Category"]]
    (expected,) = table(curves_dir, "curve_statistics").query(
        "curve == 'mine' and category.isna() and metric == 'accuracy'"
    )["learned_90"]
    assert int(row["90 % at"]) == expected


def test_slider_shows_the_answer_of_each_checkpoint(page):
    page.open(f"#/curve-item/{EVALUATION}/mine")
    assert page.text(".training output").startswith("checkpoint-0")
    slider = page.find("#checkpoint")
    outcomes = []
    for k in range(len(STEPS)):
        page.js("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", slider, k)
        page.until(f"document.querySelector('.training output').textContent.startsWith('checkpoint-{STEPS[k]} ')")
        page.until("document.querySelector('.options .badge.chosen')")
        outcomes.append(page.text(".training output .badge").split()[-1])
    assert outcomes == sorted(outcomes, reverse=True)  # incorrect first, then correct
    assert set(outcomes) == {"incorrect", "correct"}
    assert page.js("return document.querySelector('#checkpoint').getAttribute('aria-valuetext')") == (
        "checkpoint-16000, correct"
    )
    item = page.text("h1 small")
    page.click(page.find("a[rel=next]"))
    assert page.text("h1 small") != item
    page.choose("#curve", "=other")
    page.until("location.hash.includes('%3Dother')")
    assert int(page.settled().find("#checkpoint").get_attribute("max")) == len(STEPS) - 2  # without the missing one


def test_views_fit_a_phone(page):
    for address in ("#/curves", f"#/curve-item/{EVALUATION}/mine"):
        page.open(address, width=400)
        assert page.js("return document.documentElement.scrollWidth <= innerWidth + 1")
