import numpy as np
import openpyxl
import pandas as pd
import pytest
from vernacular.summary.grid import combine_tables
from vernacular.summary.workbook import write_group, write_leaderboard

BEST, SHARED, UNMARKED = '0.0%" ●"', '0.0%" ○"', "0.0%_ _●"


@pytest.fixture
def write_workbook(metrics_table, tmp_path):
    """Return a function that writes a workbook of rows and loads it."""

    def write_and_load(*rows, write=write_group, provenance=None, **extra):
        extra = ({"group": "similarity"} if write is write_group else {}) | extra
        path = write(tmp_path / "book.xlsx", combine_tables([metrics_table(*rows)]), provenance or {}, **extra)
        return openpyxl.load_workbook(path), path

    return write_and_load


def test_sheets_are_overview_languages_provenance(write_workbook):
    workbook, _ = write_workbook({"language": "gl"}, {"language": "ca"})
    assert workbook.sheetnames == ["overview", "ca", "gl", "provenance"]


def test_language_sheet_has_task_setting_and_metric_header_rows(write_workbook):
    rows = [{}, {"metric": "cosine", "unit": "cosine", "headline": False}, {"task": "belebele", "shots": 0}]
    workbook, _ = write_workbook(*(row | {"style": "default"} for row in rows))
    assert list(workbook["gl"].iter_rows(min_row=1, max_row=3, values_only=True)) == [
        ("task", "belebele", "openbookqa", None),
        ("protocol", "generation · 0 shots", "generation · 5 shots", None),
        ("model", "Accuracy (↑)", "Accuracy (↑)", "Cosine (↑)"),
    ]
    assert {str(block) for block in workbook["gl"].merged_cells.ranges} == {"C1:D1", "C2:D2"}


def test_overview_has_headline_metrics_of_all_languages(write_workbook):
    rows = [
        {"language": language, "metric": m, "headline": m == "accuracy"}
        for language in ("gl", "ca")
        for m in ("accuracy", "x")
    ]
    workbook, _ = write_workbook(*rows)
    header = [cells[1:] for cells in workbook["overview"].iter_rows(min_row=1, max_row=4, values_only=True)]
    settings = ("generation · 5 shots · vernacular",) * 2
    assert header == [("ca", "gl"), ("openbookqa", "openbookqa"), settings, ("Accuracy (↑)",) * 2]


def test_pandas_reads_the_same_numbers(write_workbook):
    rows = [
        {"model": f"m{i}", "task": task, "value": (i + 1) / 7} for i in range(3) for task in ("belebele", "openbookqa")
    ]
    _, path = write_workbook(*rows, overall=[], write=write_leaderboard)
    for sheet, header in (("gl", [0, 1, 2]), ("overview", [0, 1, 2, 3])):
        table = pd.read_excel(path, sheet_name=sheet, header=header, index_col=0)
        assert table.index.tolist() == ["m0", "m1", "m2"]
        assert table.columns.names[-3:] == ["task", "protocol", "model"]
        for task in ("belebele", "openbookqa"):
            assert table.xs(task, axis=1, level="task").iloc[:, 0].tolist() == [1 / 7, 2 / 7, 3 / 7]


def test_settings_of_one_model_are_columns(write_workbook):
    settings = [{"shots": 0}, {"shots": 5}, {"shots": 5, "seed": 7}, {"shots": 5, "style": "simil-eval"}]
    rows = [{"style": "default"} | row | {"evaluation": str(row)} for row in settings]
    workbook, _ = write_workbook(*rows)
    rows = list(workbook["gl"].iter_rows(min_row=2, values_only=True))
    assert rows[0][1:] == (
        "generation · 0 shots",
        "generation · 5 shots · seed 7",
        "generation · 5 shots · seed 42",
        "generation · 5 shots · simil-eval",
    )
    assert [row[0] for row in rows[2:]] == ["m"]


def test_best_value_is_marked_in_metric_direction(write_workbook):
    values = {"a": (0.70, 0.65, 0.75), "b": (0.66, 0.61, 0.71), "c": (0.50, 0.45, 0.55)}
    rows = []
    for model, (value, low, high) in values.items():
        numbers = {"model": model, "value": value, "ci_low": low, "ci_high": high}
        rows.append(numbers)
        loss = {"metric": "loss", "higher_is_better": False, "unit": "nats", "chance_level": None}
        rows.append(numbers | loss)
        rows.append(numbers | {"metric": "length", "higher_is_better": None, "unit": None})
    workbook, _ = write_workbook(*rows)
    sheet = workbook["gl"]
    assert [cell.value for cell in sheet[3][1:]] == ["Accuracy (↑)", "Length", "Loss (nats ↓)"]
    formats = [[cell.number_format for cell in row[1:]] for row in sheet["A4:D6"]]
    nats = [form.replace("0.0%", "0.000") for form in (UNMARKED, UNMARKED, BEST)]
    assert formats == [[BEST, "0.000", nats[0]], [UNMARKED, "0.000", nats[1]], [UNMARKED, "0.000", nats[2]]]
    assert [sheet[address].font.bold for address in ("B4", "B5", "B6")] == [True, False, False]


def test_tests_determine_marks_and_comment_names_method(write_workbook, ranking_row):
    rows = [{"model": "a", "value": 0.58}, {"model": "b", "value": 0.57}, {"model": "c", "value": 0.45}]
    rankings = [
        ranking_row(model="a", best="a", difference=0.0, in_best_group=True),
        ranking_row(model="b", best="a", difference=-0.01, p_holm=0.004, in_best_group=False),
        ranking_row(model="c", best="a", difference=-0.13, p_holm=0.2, in_best_group=True),
    ]
    workbook, _ = write_workbook(*rows, rankings=rankings)
    for sheet, first in ((workbook["gl"], 4), (workbook["overview"], 5)):
        assert [sheet.cell(first + row, 2).number_format for row in range(3)] == [BEST, UNMARKED, SHARED]
        assert sheet.cell(first - 1, 2).comment.text.startswith(
            "● best; ○ by paired tests on the same items, Holm correction over all headline"
        )
    assert workbook["gl"]["B4"].comment.text.endswith("items 100")
    assert workbook["gl"]["B5"].comment.text.endswith("-1.0 points against the best, a, p = 0.004 (Holm)")
    workbook, _ = write_workbook(*rows)
    assert [workbook["gl"].cell(4 + row, 2).number_format for row in range(3)] == [BEST, UNMARKED, UNMARKED]
    assert workbook["gl"]["B3"].comment.text.startswith("● best; not all models were tested against it.")


def test_color_scale_follows_metric_direction(write_workbook):
    rows = [{"model": m, "value": v} for m, v in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    lower_is_better_rows = [row | {"metric": "loss", "unit": "nats", "higher_is_better": False} for row in rows]
    undirected_rows = [row | {"metric": "length", "unit": "characters", "higher_is_better": None} for row in rows]
    workbook, _ = write_workbook(*rows, *lower_is_better_rows, *undirected_rows)
    scales = {str(area.sqref): area.rules[0].colorScale for area in workbook["gl"].conditional_formatting}
    scale_points = {
        address: [(end.type, end.val, color.rgb) for end, color in zip(scale.cfvo, scale.color, strict=True)]
        for address, scale in scales.items()
    }
    white, blue = "00FFFFFF", "009ECAE1"
    assert scale_points == {
        "B4:B6": [("num", 0.25, white), ("num", 1, blue)],
        "D4:D6": [("min", None, blue), ("max", None, white)],
    }


def test_comment_has_interval_chance_level_and_counts(write_workbook):
    workbook, _ = write_workbook(
        {"n_flagged": 3, "n_ties": 2}, {"model": "n", "chance_level": None, "ci_low": None, "ci_high": None}
    )
    assert (
        workbook["gl"]["B4"].comment.text
        == "95 % interval 40.0% to 60.0%\nchance level 25.0%\nitems 100, flagged 3, ties 2"
    )
    assert workbook["gl"]["B5"].comment.text == "no 95 % interval\nitems 100"
    assert [workbook["gl"].cell(row, 2).number_format for row in (4, 5)] == ["0.0%", r"\(0.0%\)"]


def test_comment_has_majority_baseline(write_workbook):
    workbook, _ = write_workbook({"majority_baseline": 0.375})
    assert "chance level 25.0%, majority baseline 37.5%" in workbook["gl"]["B4"].comment.text
    assert "chance level: 25.0%\nmajority baseline: 37.5%" in workbook["gl"]["B3"].comment.text


def test_number_format_depends_on_unit(write_workbook):
    units = {"share": "0.0%", "percent": "0.0", "nats": "0.000", "cosine": "0.000"}
    workbook, _ = write_workbook(*({"metric": unit, "unit": unit} for unit in units))
    formats = {
        cell.value.split(" ")[0].lower(): workbook["gl"].cell(4, cell.column).number_format
        for cell in workbook["gl"][3][1:]
    }
    assert formats == units


def test_value_near_chance_is_gray(write_workbook):
    rows = [{"ci_low": 0.2}, {"model": "n", "ci_low": 0.3}, {"model": "o", "ci_low": 0.3, "majority_baseline": 0.35}]
    workbook, _ = write_workbook(*rows, {"model": "p", "ci_low": 0.45, "value": 0.9, "ci_high": 0.95})
    colors = [cell.font.color.rgb if cell.font.color.type == "rgb" else None for cell in workbook["gl"]["B"][3:]]
    assert colors == ["00767676", None, "00767676", "000B5D2A"]


def test_failed_value_differs_from_missing_value(write_workbook):
    missing = {"value": None, "ci_low": None, "ci_high": None, "n": 0, "n_flagged": 100}
    workbook, _ = write_workbook({"model": "a"} | missing, {"model": "b"}, {"model": "b", "task": "belebele"})
    assert [[cell.value for cell in row] for row in workbook["gl"]["B4:C5"]] == [[None, "n/a"], [0.5, 0.5]]
    assert "flagged 100" in workbook["gl"]["C4"].comment.text


def test_infinity_is_written_as_text(write_workbook):
    workbook, path = write_workbook({"value": np.inf}, {"model": "n", "value": -np.inf})
    assert [workbook["gl"][address].value for address in ("B4", "B5")] == ["∞", "-∞"]
    assert pd.read_excel(path, sheet_name="gl", header=[0, 1, 2]).shape == (2, 2)


@pytest.mark.parametrize("name", ['=HYPERLINK("http://x","y")', "+1", "-1", "@SUM(A1)", "#N/A", "=", "1e5", "TRUE"])
def test_formula_like_names_are_text(write_workbook, name):
    provenance = {name: {name: name}}
    workbook, _ = write_workbook({"model": name, "adapter": name, "task": name, "metric": name}, provenance=provenance)
    sheet = workbook["gl"]
    for address in ("A4", "B1"):
        assert (sheet[address].value, sheet[address].data_type) == (name, "s")
    assert sheet["A4"].quotePrefix == (name[0] in "=+-@")
    cells = [cell for sheet in workbook for row in sheet.iter_rows() for cell in row]
    assert not [cell.coordinate for cell in cells if cell.data_type in "fe"]


def test_control_and_right_to_left_characters_in_names(write_workbook):
    workbook, _ = write_workbook({"model": "a\x00\x1b"}, {"model": "نموذج"}, {"model": "x" * 40_000})
    assert [workbook["gl"][address].value[:9] for address in ("A4", "A5", "A6")] == ["a\\x00\\x1b", "x" * 9, "نموذج"]


def test_language_named_like_fixed_sheet_gets_unique_name(write_workbook):
    workbook, _ = write_workbook({"language": "Overview"}, {"language": "a/b:c"})
    assert workbook.sheetnames == ["overview", "Overview (2)", "a_b_c", "provenance"]


def test_frozen_panes_and_auto_filter(write_workbook):
    workbook, _ = write_workbook({"model": "a"}, {"model": "b"})
    assert workbook["gl"].freeze_panes == "B4"
    assert workbook["gl"].auto_filter.ref == "A3:B5"
    assert workbook["overview"].auto_filter.ref == "A4:B6"


def test_metric_groups_have_separate_workbooks(write_workbook):
    rows = [
        {},
        {"metric": "detail", "headline": False},
        {"metric": "surprisal", "metric_group": "surprisal", "task": "galcola"},
    ]
    metrics = {}
    groups = {group: {"group": group} for group in ("similarity", "surprisal")}
    for name, arguments in {**groups, "leaderboard": {"write": write_leaderboard}}.items():
        workbook, _ = write_workbook(*rows, **arguments)
        metrics[name] = [cell.value.split(" ")[0] for cell in workbook["gl"][3][1:]]
    assert metrics == {
        "similarity": ["Accuracy", "Detail"],
        "surprisal": ["Surprisal"],
        "leaderboard": ["Surprisal", "Accuracy"],
    }


def test_leaderboard_without_headline_metrics_uses_directed_metrics(write_workbook):
    rows = [{"headline": None}, {"headline": None, "metric": "length", "higher_is_better": None}]
    workbook, _ = write_workbook(*rows, write=write_leaderboard)
    assert [cell.value for cell in workbook["gl"][3][1:]] == ["Accuracy (↑)"]


def test_workbook_without_results_contains_message(write_workbook):
    workbook, _ = write_workbook({}, group="surprisal")
    assert workbook.sheetnames == ["overview", "provenance"]
    assert workbook["overview"]["A1"].value == "No surprisal results."


def test_provenance_has_seed_spread(write_workbook):
    workbook, _ = write_workbook({"seed": 1, "value": 0.4}, {"seed": 2, "value": 0.6})
    rows = list(workbook["provenance"].iter_rows(values_only=True))
    assert any("1 2" in cells and 0.5 in cells for cells in rows)
    workbook, _ = write_workbook({})
    assert "spread between few-shot seeds" not in [
        cells[0] for cells in workbook["provenance"].iter_rows(values_only=True)
    ]


def test_overview_without_directed_metrics_contains_message(write_workbook):
    workbook, _ = write_workbook({"headline": None, "metric": "length", "higher_is_better": None})
    assert workbook["overview"]["A1"].value == "No similarity results to rank."
    assert workbook["gl"]["B4"].value == 0.5


def test_provenance_lists_revisions_signatures_and_extra_sections(write_workbook):
    sections = {
        "software": {"torch": "2.13", "jobs": 3},
        "dropped rows": [{"task": "x", "rows": 2}, {"why": None}],
        "note": "n",
    }
    workbook, _ = write_workbook({}, provenance=sections)
    rows = [tuple(v for v in cells if v is not None) for cells in workbook["provenance"].iter_rows(values_only=True)]
    assert ("m", "abc") in rows
    assert ("openbookqa", "gl", "def") in rows
    assert ("accuracy", "share", "True", "similarity", "accuracy|v1") in rows
    start = rows.index(("software",))
    assert rows[start:] == [
        ("software",),
        ("torch", "2.13"),
        ("jobs", 3),
        (),
        ("dropped rows",),
        ("task", "rows", "why"),
        ("x", 2),
        (),
        (),
        ("note",),
        ("n",),
    ]
