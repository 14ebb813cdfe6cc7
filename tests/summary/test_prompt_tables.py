"""Means over prompts in the long table, and the sheet with their parts and other designs."""

import openpyxl
import pytest
from vernacular.comparison.schema import PROMPTS
from vernacular.summary.grid import as_questions, build_grid, combine_tables, make_headings, wide
from vernacular.summary.lists import write_comparisons
from vernacular.summary.paper import make_table
from vernacular.summary.prompts import add_prompt_means, prompt_notes, standard_errors, write_prompts

RUNS = ["openbookqa.gl.generation.5shot", "openbookqa.gl.generation.5shot.formal"]
MEAN = "openbookqa.gl.generation.5shot.all"
GENERATION = "generation · 5 shots · vernacular"


@pytest.fixture
def long(metrics_table):
    rows = [{"evaluation": RUNS[0]}, {"evaluation": RUNS[1], "prompt": "formal", "value": 0.7, "n_flagged": 2}]
    rows += [{"evaluation": RUNS[0], "category": "k", "metric": "accuracy"}]
    rows += [{"evaluation": "cola.gl.acceptability.0shot", "task": "cola", "protocol": "acceptability"}]
    return combine_tables([metrics_table(*rows)])


def mean_row(**changes) -> dict:
    row = dict.fromkeys(PROMPTS.schema.names) | {
        "model": "m", "evaluation": MEAN, "task": "openbookqa", "language": "gl", "protocol": "generation", "shots": 5,
        "prompt": "all", "metric": "accuracy", "unit": "share", "headline": True, "n": 100, "n_clusters": 100,
        "n_prompts": 2, "n_seeds": 1, "evaluations": RUNS, "prompts": ["default", "formal"], "value": 0.6, "ci_low": 0.5,
        "ci_high": 0.7, "se": 0.04, "question": "these prompts", "note": "two prompts",
        "variance_items": 0.1, "variance_prompts": 0.0004, "variance_items_prompts": 0.1, "share_items": 0.5,
    }  # fmt: skip
    return row | changes


def test_mean_is_a_row_of_its_own_with_the_first_prompts_provenance(long):
    table = add_prompt_means(long, [mean_row()])
    assert len(table) == len(long) + 1
    row = table[table["prompt"] == "all"].iloc[0]
    assert (row["evaluation"], row["value"], row["n_flagged"], row["model_revision"]) == (MEAN, 0.6, 2, "abc")
    assert row["signature"] == "accuracy|v1 | mean over 2 prompts | these prompts"
    assert table.dtypes.equals(long.dtypes)
    assert table[table["prompt"] != "all"].reset_index(drop=True).equals(long)


def test_without_means_the_table_is_unchanged(long):
    assert add_prompt_means(long, []).equals(long)
    assert as_questions(long, []).equals(long)
    assert add_prompt_means(long, [mean_row(baseline="other")]).equals(long)


def test_a_mean_stands_for_its_prompts(long):
    rows = [mean_row()]
    questions = as_questions(add_prompt_means(long, rows), rows)
    assert set(questions["evaluation"]) == {MEAN, "cola.gl.acceptability.0shot"}


def test_only_means_have_a_standard_error_of_their_own(long):
    rows = [mean_row()]
    table = standard_errors(add_prompt_means(long, rows), rows)
    assert table.loc[table["prompt"] == "all", "se"].tolist() == [0.04]
    assert table.loc[table["prompt"] != "all", "se"].isna().all()


def test_notes_name_model_and_group_once():
    notes = prompt_notes([mean_row(), mean_row(), mean_row(metric="f1", headline=False), mean_row(note=None)])
    assert notes == [{"model": "m", "evaluation": MEAN, "note": "two prompts", "kind": "prompts", "count": 2}]


def test_sheet_lists_means_and_designs():
    sheet = openpyxl.Workbook().active
    write_prompts(sheet, [mean_row(), mean_row(model="b", baseline="m"), mean_row(metric="x", headline=False)])
    rows = [[cell.value for cell in row] for row in sheet.iter_rows()]
    header = rows[0]
    assert float(rows[1][header.index("mean")]) == 0.6
    assert rows[2][header.index("compared with")] == "m"
    assert "x" not in {value for row in rows for value in row}
    start = next(n for n, row in enumerate(rows) if row[6] == "SE of the mean")
    designs = {(int(row[4]), int(row[5])): float(row[6]) for row in rows[start + 1 :]}
    assert set(designs) == {(items, prompts) for items in (50, 100, 200, 400) for prompts in (1, 2, 3, 5, 10)}
    assert designs[100, 1] == pytest.approx((0.1 / 100 + 0.1 / 100 + 0.0004) ** 0.5)
    assert designs[100, 5] < designs[400, 1] * 1.2


def test_a_model_is_one_row_with_a_column_per_prompt_and_one_of_their_mean(long):
    table = add_prompt_means(long, [mean_row()])
    assert wide(table).columns.tolist() == [
        "model",
        "gl / cola / acceptability 5 shots vernacular / Accuracy (share)",
        "gl / openbookqa / generation 5 shots vernacular mean over prompts / Accuracy (share)",
        "gl / openbookqa / generation 5 shots vernacular / Accuracy (share)",
        "gl / openbookqa / generation 5 shots vernacular prompt formal / Accuracy (share)",
    ]
    layout = build_grid(as_questions(table, [mean_row()]))
    assert layout.columns["setting"].tolist() == [
        "acceptability · 5 shots · vernacular",
        f"{GENERATION} · mean over prompts",
    ]


def test_seeds_that_are_paired_with_prompts_are_not_named(metrics_table):
    names = [{"evaluation": RUNS[0], "seed": 0}, {"evaluation": RUNS[1], "prompt": "formal", "seed": 4}]
    settings = make_headings(combine_tables([metrics_table(*names)]), {}).settings
    assert list(settings.values()) == [
        GENERATION,
        f"{GENERATION} · prompt formal",
    ]


@pytest.mark.parametrize(
    ("question", "sampled"),
    [
        ("these prompts", "items"),
        ("prompts like these", "items, those of means over at least three prompts also over prompts"),
    ],
)
def test_caption_states_what_intervals_of_means_are_over(long, question, sampled):
    rows = [mean_row(question=question), mean_row(model="other")]
    table = as_questions(add_prompt_means(long, rows[:1]), rows)
    caption = make_table(table, make_headings(table, {}), [], models=["m"], intervals=True, prompts=rows).caption
    assert "Mean over prompts: 2 wordings of the prompt for the same items." in caption
    assert f"In brackets: 95 % intervals over {sampled}." in caption


def test_comparisons_name_prompts_only_if_there_are_several(comparison_row):
    def titles(*rows):
        sheet = openpyxl.Workbook().active
        write_comparisons(sheet, list(rows))
        return [[cell.value for cell in row] for row in sheet.iter_rows()]

    one, several = titles(comparison_row()), titles(comparison_row(), comparison_row(prompt="all"))
    assert "prompt" not in one[0]
    position = several[0].index("prompt")
    assert [row[position] for row in several[1:]] == ["default", "mean over prompts"]
