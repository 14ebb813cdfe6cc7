"""A report of an evaluation with several prompts: their mean stands for them, and a view shows each."""

import json

import pytest
from support.report_prompts import EVALUATION, MEAN, OTHER, PROMPTS_OF, N


def data(directory, name):
    text = (directory / "data" / f"{name}.js").read_text("utf-8")
    return json.loads(text.partition(",")[2].rpartition(")")[0])


def test_index_holds_the_mean_in_place_of_each_prompt(prompts_dir):
    index = data(prompts_dir, "index")
    by_id = {evaluation["id"]: number for number, evaluation in enumerate(index["evaluations"])}
    assert list(by_id) == [*PROMPTS_OF, OTHER, MEAN]
    group = index["evaluations"][by_id[MEAN]]
    assert group["runs"] == [by_id[name] for name in PROMPTS_OF]
    assert {index["evaluations"][run]["group"] for run in group["runs"]} == {by_id[MEAN]}
    assert {cell[0] for cell in index["cells"]} == {by_id[OTHER], by_id[MEAN]}
    assert "prompt" not in index["evaluations"][by_id[OTHER]]


def test_verdict_counts_the_mean_once_and_each_answer(prompts_dir):
    ((_, _, summary),) = data(prompts_dir, "index")["pairs"]
    assert (summary["tests"], summary["items"], summary["repeated"]) == (2, 4 * N, True)
    rows = data(prompts_dir, "p0")["rows"]
    headline = [row for row in rows if row["headline"] and row["difference"] is not None]
    assert [row.get("single", False) for row in headline] == [True, True, True, False, False]


def test_overview_and_leaderboard_show_the_mean(prompts_page):
    prompts_page.open()
    assert prompts_page.texts(".tiles dd") == ["2", "1", "2", "4", str(2 * N)]
    rows = [row for row in prompts_page.texts(".map tbody tr .metric") if "letters" in row]
    assert rows == ["letters · mean over prompts", "letters"] or rows == ["letters", "letters · mean over prompts"]
    prompts_page.open("#/leaderboard?down=evaluations")
    assert "4 evaluations" in prompts_page.text(".lead")
    link = prompts_page.find(f".board a[href*='{MEAN}']")
    assert link.get_attribute("href").endswith(f"#/prompts/{MEAN}")


@pytest.mark.parametrize("address", ["#/prompts", f"#/prompts/{MEAN}", f"#/task/{MEAN}"])
def test_prompts_view_shows_a_point_per_prompt_and_the_wordings(prompts_page, address):
    prompts_page.open(address)
    assert prompts_page.text("h1").startswith("A quiz (samples) Galician")
    assert prompts_page.text("nav [aria-current]") == "Prompts"
    prompts_page.until("document.querySelectorAll('.mark-symbol.role-mark path').length === 6")
    places = prompts_page.js(
        "return [...document.querySelectorAll('.mark-symbol.role-mark path')].map((each) => each.getAttribute('transform'))"
    )
    assert len(set(places)) == 6  # also of equal values
    assert len(prompts_page.find_all(".mark-rule.role-mark line")) == 2  # the interval of each model's mean
    wordings = prompts_page.texts(".wording pre")
    assert [text.partition("\n")[0] for text in wordings] == ["Que bebe?", "Diga que bebe.", "Bebe"]
    assert [badge for badge in prompts_page.texts(".wording .badge")] == ["not reviewed by a speaker"] * 2
    assert "prompts like these" in prompts_page.text("main")


def test_comparison_folds_single_prompts(prompts_page):
    prompts_page.open("#/comparison")
    assert "of 2 headline metrics" in prompts_page.text(".headline")
    assert f"of {4 * N} results" in prompts_page.text(".headline")
    summaries = prompts_page.texts("summary")
    assert "3 rows of single prompts, which are not part of the Holm correction" in summaries


def test_task_of_one_prompt_links_to_all(prompts_page):
    prompts_page.open(f"#/task/{EVALUATION}.formal")
    assert "prompt formal" in prompts_page.text("h1")
    link = prompts_page.find_all(".crumbs a")[1]
    assert prompts_page.click(link).text("nav [aria-current]") == "Prompts"
