"""Values without an interval, below chance, with many digits, of regressed items and in numbered categories."""

import pyarrow as pa
import pytest
from support import report_forms
from support.report_forms import LETTERS, PAIRS
from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL
from vernacular.core import artifacts
from vernacular.metrics.schema import RESULTS
from vernacular.report.page import build


def _edit(path, kind, change):
    """Apply `change` to each row of an artifact."""
    rows = [row | change(row) for row in artifacts.read(path, kind).to_pylist()]
    table = pa.Table.from_pylist(rows, schema=kind.schema)
    artifacts.write(path, kind, table, artifacts.metadata(path))


@pytest.fixture(scope="module")
def forms_dir(tmp_path_factory):
    """Replace the directory of the report that `page` opens."""
    root = tmp_path_factory.mktemp("uncertain")
    arguments = report_forms.write_run(root, pair=["Ela come pan.", "Ela comen pan."])
    summary = root / "results" / "summary"

    def results(row):
        if row["evaluation"] == LETTERS:
            return {"unit": "nats", "value": 10.80516, "ci_low": None, "ci_high": None, "chance_level": None}
        return {"category": row["category"] and "1"}

    _edit(summary / "results.parquet", RESULTS, results)
    intervals = {"base": (-0.3, 0.1), "tuned": (None, None)}

    def overall(row):
        low, high = intervals[row["model"]]
        return {"rank_worst": 2, "mean": -0.125, "ci_low": low, "ci_high": high}

    path = summary / "overall.parquet"
    _edit(path, OVERALL, overall)
    rows = artifacts.read(path, OVERALL).to_pylist()
    rows += [row | {"scope": "gl"} for row in rows]
    artifacts.write(path, OVERALL, pa.Table.from_pylist(rows, schema=OVERALL.schema), artifacts.metadata(path))
    _edit(summary / "comparisons.parquet", COMPARISONS, lambda row: {"minimum_detectable_difference": 0.456})
    _edit(arguments["changes"]["base", "tuned"], CHANGES, lambda row: {"change": "regressed", "margin_change": 4.22})
    build(out=root / "page", **arguments)
    return root / "page"


def test_value_without_an_interval_is_in_parentheses_and_explained(page):
    page.open("#/leaderboard?down=evaluations")
    lacking = [cell.text for cell in page.find_all(".board tbody td a") if "no interval" in cell.text]
    assert [text[:8] for text in lacking] == ["(10.805)"] * 2  # 10.80516, rounded once
    assert "(Parentheses): no interval" in page.text(".legend")
    page.open("#/overview")
    assert "(10.805) ▲" in page.texts(".map tbody .value")
    assert "(Parentheses): no interval" in page.text(".map .note")
    page.open(f"#/task/{LETTERS}/base")
    assert "(10.805)" in page.texts(".numbers tbody .value")
    assert "(Parentheses): no interval" in page.text("main")
    page.open("#/leaderboard?scale=baseline&down=evaluations")
    assert "(" not in "".join(page.texts(".board tbody .value"))


def test_a_value_below_chance_has_one_color_in_all_views(page):
    """The value 25 % of the first model, where chance is 50 %."""
    page.open("#/overview?show=model:0")
    in_map = page.find(".map tbody td.cold")
    heat = page.js("return arguments[0].style.getPropertyValue('--heat')", in_map)
    page.open("#/leaderboard?down=evaluations")
    in_board = page.find(".board tbody td.cold")
    assert page.js("return arguments[0].style.getPropertyValue('--heat')", in_board) == heat == "50%"


def test_overall_values_have_the_marks_of_others(page):
    """Italic if the interval contains chance, in parentheses without one, of which the verdict says what is unknown."""
    page.open("#/leaderboard?down=models")
    italic = [row.text.split()[0] for row in page.find_all(".board tbody tr:has(td.overall .near-chance)")]
    in_parentheses = [row for row in page.texts(".board tbody td.overall .value") if row.startswith("(")]
    assert (italic, in_parentheses) == (["base"], ["(\u221212.5)"])
    page.open("#/overview?show=model:0")
    assert page.texts(".map .top .near-chance .value") == ["\u221212.5"]
    page.open("#/overview?show=model:1")
    assert page.texts(".map thead .top .value") == ["(\u221212.5)"]
    page.open("#/overview")
    assert "not distinguishable from guessing" in page.text(".headline")


def test_overall_below_chance_and_possible_ranks_are_stated(page):
    page.open("#/overview")
    assert "\u221212.5 on a scale from 0 (chance) to 100 (all correct)" in page.text(".headline")
    assert page.texts(".map thead .top td .n")[-1] == "2 models"  # of equal means, as in the cells
    page.open("#/leaderboard?down=models")
    assert page.texts(".board tbody td.rank") == ["1\u2009–\u20092"] * 2
    page.open("#/leaderboard?by=language-means")
    assert len(page.find_all(".board tbody td .value")) == 4
    assert not page.find_all(".board tbody .mark")  # of both, which are equal


def test_comparison_shows_both_p_values_and_the_minimum_detectable_difference(page):
    page.open("#/comparison")
    names = page.texts("main .tablebox:first-of-type thead th")
    [row] = page.find_all("main .tablebox:first-of-type tbody tr")
    cells = dict(zip(names, [cell.text for cell in row.find_elements("css selector", "th, td")], strict=True))
    shown = {name: cells[name] for name in ("p", "p (Holm)", "Minimum detectable")}
    assert shown == {"p": "0.010", "p (Holm)": "0.030", "Minimum detectable": "45.6"}


def test_margin_of_a_regressed_item_falls(page):
    page.open(f"#/comparison/base/tuned/{PAIRS[0]}")
    assert {row.text.split()[-1] for row in page.find_all(".items tbody tr")} == {"\u22124.220"}
    assert "Minimal pairs (samples) · Galician" in page.text(".crumbs")


def test_numbered_category_is_called_a_category(page):
    page.open(f"#/task/{PAIRS[0]}/base")
    assert "category 1" in page.texts("details table tbody th")


def test_axis_of_few_words_lists_each_once(page):
    page.open(f"#/task/{PAIRS[0]}/base")
    figure = next(f for f in page.find_all("figure") if f.text.startswith("Surprisal by position"))
    labels = (
        "return [...arguments[0].querySelector('.role-axis-label').querySelectorAll('text')].map((t) => t.textContent)"
    )
    assert page.js(labels, figure) == ["1", "2", "3"]


def test_hidden_columns_are_announced(page):
    page.open("#/leaderboard?down=models", width=500)
    page.until("document.querySelector('.leaderboard .scroll.more')")
    page.js("document.querySelector('.leaderboard .scroll').scrollLeft = 10000")
    page.until("!document.querySelector('.leaderboard .scroll.more')")
    page.open("#/leaderboard?down=models", width=1600)
    page.until("!document.querySelector('.leaderboard .scroll.more')")


def test_a_run_whose_datasets_could_not_be_read_states_why(tmp_path, open_report):
    """As the terminal does, instead of "no evaluation has a chance level"."""
    arguments = report_forms.write_run(tmp_path)
    summary = tmp_path / "results" / "summary"
    why = "openbookqa (gl): the Hub cannot be reached."
    names = {"model": "base", "kind": "unavailable", "note": why, "count": None}
    notes = [names | {"evaluation": evaluation} for evaluation in arguments["evaluations"]]
    artifacts.write(
        summary / "results.parquet", RESULTS, [], artifacts.metadata(summary / "results.parquet") | {"notes": notes}
    )
    artifacts.write(summary / "overall.parquet", OVERALL, [], {})
    build(out=tmp_path / "page", **arguments)
    page = open_report(tmp_path / "page").open("#/overview")
    n = len(notes)
    assert page.text(".headline").strip() == (
        f"No overall value: {n} of {n} evaluations could not be completed. {why} ({n} evaluations)."
    )


def test_a_model_without_an_overall_value_is_not_compared(tmp_path, open_report):
    """As one that failed: the other was \"the best of 2 models, significantly better than the other\"."""
    arguments = report_forms.write_run(tmp_path)
    path = tmp_path / "results" / "summary" / "overall.parquet"
    rows = [row for row in artifacts.read(path, OVERALL).to_pylist() if row["model"] == "tuned"]
    artifacts.write(path, OVERALL, rows, {})
    build(out=tmp_path / "page", **arguments)
    page = open_report(tmp_path / "page").open("#/overview")
    assert page.text(".headline").startswith("tuned scores 20.0 on a scale from 0 (chance) to 100 (all correct)")


def test_one_value_without_a_chance_level_has_no_color(tmp_path, run_report):
    """Neither the best nor the worst of its row, where another model has none."""
    arguments = report_forms.write_run(tmp_path)
    path = tmp_path / "results" / "summary" / "results.parquet"

    def results(row):
        alone = {"unit": "nats", "chance_level": None, "higher_is_better": False}
        alone |= {"value": 9.5, "ci_low": 9.0, "ci_high": 10.0} if row["model"] == "base" else {"value": None}
        return alone if row["evaluation"] == LETTERS else {}

    _edit(path, RESULTS, results)
    build(out=tmp_path / "page", **arguments)
    page = run_report(tmp_path / "page").open("#/leaderboard?down=evaluations")
    (cell,) = [cell for cell in page.find_all(".board tbody td") if cell.text.startswith("9.500")]
    assert page.js("return arguments[0].style.getPropertyValue('--heat')", cell) == "0%"


def test_the_only_model_with_a_value_is_not_significantly_better_than_others(tmp_path, open_report):
    """As a causal model beside a masked one: its value was underlined on the map."""
    arguments = report_forms.write_run(tmp_path)
    path = tmp_path / "results" / "summary" / "results.parquet"
    rows = artifacts.read(path, RESULTS).to_pylist()
    rows = [row | {"chance_level": None} for row in rows if (row["model"], row["evaluation"]) != ("tuned", LETTERS)]
    table = pa.Table.from_pylist(rows, schema=RESULTS.schema)
    artifacts.write(path, RESULTS, table, artifacts.metadata(path))
    build(out=tmp_path / "page", **arguments)
    page = open_report(tmp_path / "page").open("#/overview")
    assert "base" in page.texts(".map tbody .who")
    assert not page.find_all(".map tbody .significant")


def test_values_of_other_models_are_complete_and_metrics_without_a_test_are_not_counted(tmp_path, open_report):
    """A model that failed is not why there is no overall value; of one item, a difference has no test."""
    arguments = report_forms.write_run(tmp_path)
    summary = tmp_path / "results" / "summary"
    rows = artifacts.read(summary / "results.parquet", RESULTS).to_pylist()
    table = pa.Table.from_pylist([row for row in rows if row["model"] == "base"], schema=RESULTS.schema)
    notes = [
        {"model": "tuned", "evaluation": evaluation, "kind": "unavailable", "note": "out of memory", "count": None}
        for evaluation in arguments["evaluations"]
    ]
    artifacts.write(
        summary / "results.parquet", RESULTS, table, artifacts.metadata(summary / "results.parquet") | {"notes": notes}
    )
    artifacts.write(summary / "overall.parquet", OVERALL, [], {})
    untested = dict.fromkeys(("p_value", "p_holm", "n_tests", "significant", "better"))
    _edit(summary / "comparisons.parquet", COMPARISONS, lambda row: untested if row["evaluation"] == LETTERS else {})
    build(out=tmp_path / "page", **arguments)
    page = open_report(tmp_path / "page").open("#/overview")
    assert page.text(".headline") == ("No overall value: no evaluation has a chance level and a value for every model.")
    assert page.text(".verdicts").startswith(
        "tuned is significantly better than base in 1 of 2 headline metrics and worse in none; 1 metric does not differ"
    )


def test_legend_of_values_without_a_chance_level(tmp_path, run_report):
    """As bits per byte: no Overall, no Rank, nothing in italics, and a sentence where the color is explained."""
    arguments = report_forms.write_run(tmp_path)
    summary = tmp_path / "results" / "summary"
    bits = {"unit": "bits", "chance_level": None, "higher_is_better": False}
    _edit(summary / "results.parquet", RESULTS, lambda row: bits)
    artifacts.write(summary / "overall.parquet", OVERALL, [], {})
    build(out=tmp_path / "page", **arguments)
    legend = run_report(tmp_path / "page").open("#/leaderboard?down=models").text(".legend")
    assert "the better. Without a chance level: from the worst to the best value of the column" in legend
    assert not any(word in legend for word in ("Overall", "Rank:", "Italic"))
