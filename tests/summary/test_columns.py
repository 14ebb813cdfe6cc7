"""Columns of the sheets: outline, means per language, printing, and readable names."""

import openpyxl
import pytest
from openpyxl.utils import get_column_letter
from vernacular.summary.cells import SCREEN_COLUMNS
from vernacular.summary.grid import combine_tables, make_headings, model_labels
from vernacular.summary.workbook import write_group, write_leaderboard

MEAN = "Mean above chance (↑)"


@pytest.fixture
def write_workbook(metrics_table, tmp_path):
    """Return a function that writes a workbook of rows and loads it."""

    def write_and_load(*rows, write=write_leaderboard, tasks=None, models=None, provenance=None, **extra):
        long = combine_tables([metrics_table(*rows)])
        headings = make_headings(long, tasks or {}, models)
        return openpyxl.load_workbook(write(tmp_path / "book.xlsx", long, provenance or {}, headings=headings, **extra))

    return write_and_load


def evaluations(models: int, languages: int, tasks: int) -> list[dict]:
    return [
        {"model": f"m{m}", "language": f"l{lang}", "task": f"t{t}", "value": m / 20, "evaluation": f"t{t}.l{lang}"}
        for m in range(models)
        for lang in range(languages)
        for t in range(tasks)
    ]


def visible_columns(sheet) -> list[int]:
    letters = {number: get_column_letter(number) for number in range(1, sheet.max_column + 1)}
    # a dimension covers several columns if they are equal
    hidden = {
        number
        for dimension in sheet.column_dimensions.values()
        if dimension.hidden
        for number in range(dimension.min, dimension.max + 1)
    }
    return [number for number in letters if number not in hidden]


def outline(sheet) -> list[int]:
    levels = dict.fromkeys(range(1, sheet.max_column + 1), 0)
    for dimension in sheet.column_dimensions.values():
        levels |= dict.fromkeys(range(dimension.min, dimension.max + 1), dimension.outlineLevel)
    return list(levels.values())


@pytest.mark.slow
def test_overview_of_ten_models_and_many_evaluations_fits_a_screen(write_workbook, overall_row):
    overall = [
        overall_row(model=f"m{m}", scope=scope, mean=m / 10, rank=10 - m)
        for scope in ("all", "l0", "l1", "l2", "l3")
        for m in range(10)
    ]
    sheet = write_workbook(*evaluations(10, 4, 25), overall=overall)["overview"]
    assert sheet.max_column == 1 + 2 + 4 * 26
    titles = [sheet.cell(4, number).value for number in visible_columns(sheet)]
    assert titles == ["model", "Rank (↓)", *[MEAN] * 5]
    assert [sheet.cell(1, number).value for number in visible_columns(sheet)] == [
        "language", "all languages", None, "l0", "l1", "l2", "l3"
    ]  # fmt: skip
    assert sum(sheet.column_dimensions[get_column_letter(n)].width for n in visible_columns(sheet)) < 120
    assert sheet.max_row == 4 + 10
    assert [sheet.cell(row, 1).value for row in range(5, 15)] == [f"m{m}" for m in range(9, -1, -1)]
    assert not sheet.sheet_properties.outlinePr.summaryRight
    assert outline(sheet)[:5] == [0, 0, 0, 0, 1]


def test_overview_of_few_evaluations_hides_none(write_workbook, overall_row):
    overall = [overall_row(model=f"m{m}", scope=scope) for scope in ("all", "l0") for m in range(2)]
    sheet = write_workbook(*evaluations(2, 1, 3), overall=overall)["overview"]
    assert visible_columns(sheet) == [1, 2, 3, 4, 5, 6, 7]
    assert outline(sheet) == [0, 0, 0, 0, 1, 1, 1]


def test_overview_shows_one_metric_per_evaluation_if_all_do_not_fit(write_workbook):
    rows = [row | {"metric": metric} for row in evaluations(1, 1, SCREEN_COLUMNS // 2 + 1) for metric in ("a", "b")]
    sheet = write_workbook(*rows)["overview"]
    assert [sheet.cell(4, number).value for number in visible_columns(sheet)[1:]] == ["A (↑)"] * 9
    assert outline(sheet)[1:] == [0, 1] * 9


def test_mean_of_a_language_has_marks_interval_and_number_of_evaluations(write_workbook, overall_row):
    overall = [
        overall_row(model="m0", mean=0.1, ci_low=0.05, ci_high=0.15, rank=2, win_rate=0.0),
        overall_row(model="m1", mean=0.4, rank=1),
        overall_row(model="m2", mean=0.39, rank=1),
    ]
    sheet = write_workbook(*evaluations(3, 1, 1), overall=overall)["overview"]
    assert [sheet.cell(row, 1).value for row in (5, 6, 7)] == ["m1", "m2", "m0"]
    assert [sheet.cell(row, 2).value for row in (5, 6, 7)] == [1, 1, 2]
    assert [sheet.cell(row, 3).number_format for row in (5, 6, 7)] == ['0.0%" ●"', '0.0%" ○"', "0.0%_ _●"]
    assert sheet["C7"].comment.text == "95 % interval 5.0% to 15.0%\nrank 2–3 of 3\nwin rate 0.0%"
    assert sheet["C2"].value == "3 of 4 evaluations"
    assert "3 evaluations that all models have; 1 excluded" in sheet["C4"].comment.text


def test_means_at_chance_or_worse_have_no_mark(write_workbook, overall_row):
    overall = [overall_row(model=f"m{m}", mean=-m / 10, rank=1) for m in range(3)]
    sheet = write_workbook(*evaluations(3, 1, 1), overall=overall)["overview"]
    assert [sheet.cell(row, 3).number_format for row in (5, 6, 7)] == ["0.0%_ _●"] * 3


def test_model_without_mean_is_last_and_keeps_its_values(write_workbook, overall_row):
    overall = [overall_row(model="m1", mean=0.4), overall_row(model="m2", mean=None, rank=None)]
    sheet = write_workbook(*evaluations(3, 1, 1), overall=overall)["overview"]
    assert [[cell.value for cell in row] for row in sheet["A5:D7"]] == [
        ["m1", 1, 0.4, 1 / 20],
        ["m0", None, None, 0],
        ["m2", None, None, 2 / 20],
    ]


def test_language_sheet_collapses_metrics_that_are_not_headline_metrics(write_workbook):
    rows = [{"metric": metric, "headline": metric in ("a", "b")} for metric in "abcd"]
    rows.append({"task": "z", "metric": "c", "headline": False})
    sheet = write_workbook(*rows, write=write_group, group="similarity")["gl"]
    assert [sheet.cell(3, number).value for number in range(2, 7)] == ["A (↑)", "B (↑)", "C (↑)", "D (↑)", "C (↑)"]
    assert visible_columns(sheet) == [1, 2, 3, 6]
    assert sheet["E4"].value == 0.5
    assert sheet["E4"].comment.text.startswith("95 % interval")


def test_sheets_are_printed_on_landscape_pages_with_headings(write_workbook):
    sheet = write_workbook(*evaluations(2, 1, 60))["l0"]
    assert (sheet.page_setup.orientation, sheet.page_setup.fitToHeight) == ("landscape", 1)
    assert sheet.page_setup.fitToWidth == 3, "60 columns of 13 characters and the names, 287 characters to a page"
    assert (sheet.print_title_rows, sheet.print_title_cols) == ("$1:$3", "$A:$A")
    assert "best of its column" in sheet.oddHeader.left.text
    assert len(sheet.oddHeader.left.text) < 250  # of a page, in which Excel reads no more
    margins = sheet.page_margins
    assert margins.header + 8 / 72 < margins.top, "the legend does not overlap the first row"


def test_rows_of_the_provenance_are_as_high_as_their_texts(write_workbook):
    text = "word " * 60
    sheet = write_workbook(*evaluations(1, 1, 1), provenance={"sources": [{"a": "x", "b": text}], "notes": [text]})[
        "provenance"
    ]
    found = {cell.coordinate: cell for row in sheet.iter_rows() for cell in row if cell.value == text}
    assert [cell.column for cell in found.values()] == [2, 1]
    for cell, width in zip(found.values(), (20, 194), strict=True):
        assert cell.alignment.wrap_text
        assert sheet.row_dimensions[cell.row].height >= 15 * len(text) / width
    assert sheet.page_setup.fitToWidth == 1
    printed = int(sheet.print_area.rpartition("$")[2])
    assert printed < min(cell.row for cell in found.values()), "sources and notes are not printed"


def test_a_scope_is_shown_in_full(write_workbook, overall_row):
    rows = [overall_row(model="m0", mean=0.4, scope=f"task:{'x' * 18}")]
    sheet = write_workbook(*evaluations(1, 1, 1), overall=rows)["overall"]
    assert sheet.column_dimensions["A"].width > len(sheet["A2"].value)
    assert (sheet.print_title_rows, sheet.print_title_cols) == ("$1:$1", "$A:$D")


def test_title_and_note_of_a_task_are_in_heading_comment_and_provenance(write_workbook):
    tasks = {"openbookqa": {"title": "OpenBookQA (translated by professionals)", "note": "Read me."}}
    book = write_workbook({}, {"task": "plain"}, tasks=tasks)
    assert [cell.value for cell in book["gl"][1]] == ["task", "OpenBookQA", "plain"]
    assert book["gl"]["B1"].comment.text == "OpenBookQA (translated by professionals) (openbookqa)\nRead me."
    assert book["gl"]["C1"].comment.text == "plain"
    rows = list(book["provenance"].iter_rows(max_col=3, values_only=True))
    assert ("openbookqa", "OpenBookQA (translated by professionals)", "Read me.") in rows


def test_model_has_a_readable_name_with_adapter_and_revision_as_comment(write_workbook):
    label = "mine (adapter of base, 4bit)"
    rows = [{"model": "mine", "adapter": "me/lora", "base": "base"}, {"model": "base"}]
    sheet = write_workbook(*rows, models={"mine": label})["gl"]
    assert [sheet.cell(row, 1).value for row in (4, 5)] == ["base", label]
    assert sheet["A5"].comment.text == "adapter me/lora\nrevision abc"


def test_titles_that_are_equal_without_parentheses_stay_distinct(metrics_table):
    tasks = {"dev": "PalmX 2025 general culture (development)", "test": "PalmX 2025 general culture (test)"}
    long = combine_tables([metrics_table(*({"task": task} for task in tasks))])
    assert make_headings(long, {task: {"title": title} for task, title in tasks.items()}).titles == tasks


def test_precision_is_named_only_where_models_differ_or_are_quantized():
    models = [{"name": name, "base": None, "dtype": "bfloat16", "quantization": None} for name in "ab"]
    assert model_labels(models) == {"a": "a", "b": "b"}
    models[1]["dtype"] = "float32"
    assert model_labels(models) == {"a": "a (bfloat16)", "b": "b (float32)"}
    assert model_labels([models[0] | {"quantization": "8bit"}]) == {"a": "a (8bit)"}
