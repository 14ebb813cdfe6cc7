"""Sheets with a row per comparison or per model: comparisons and aggregates over tasks."""

import openpyxl
import pandas as pd
import pytest
from vernacular.summary.grid import combine_tables
from vernacular.summary.lists import describe_comparison
from vernacular.summary.workbook import write_leaderboard


@pytest.fixture
def leaderboard(metrics_table, tmp_path):
    """Return a function that writes a leaderboard of rows and keyword arguments and loads it."""

    def write(*rows, **extra):
        path = write_leaderboard(tmp_path / "book.xlsx", combine_tables([metrics_table(*(rows or [{}]))]), {}, **extra)
        return openpyxl.load_workbook(path), path

    return write


def test_list_sheets_follow_overview_and_are_optional(leaderboard, comparison_row, overall_row):
    workbook, _ = leaderboard({"language": "Comparisons"}, overall=[overall_row()], comparisons=[comparison_row()])
    assert workbook.sheetnames == ["overview", "overall", "comparisons", "Comparisons (2)", "provenance"]
    workbook, _ = leaderboard()
    assert workbook.sheetnames == ["overview", "gl", "provenance"]


def test_comparisons_sheet_contains_headline_rows_over_all_items(leaderboard, comparison_row):
    rows = [
        comparison_row(),
        comparison_row(task="cola", metric="mcc", unit="score", better=None, significant=False, p_holm=0.6),
        comparison_row(metric="detail", headline=False),
        comparison_row(category="verbs"),
    ]
    workbook, path = leaderboard(comparisons=rows)
    table = pd.read_excel(path, sheet_name="comparisons")
    assert table["metric"].tolist() == ["Accuracy (↑)", "MCC (↑)"]
    assert (
        table[["baseline value", "candidate value", "difference", "low", "high"]].to_numpy().tolist()
        == [[0.5, 0.531, 0.031, 0.012, 0.05]] * 2
    )
    assert table["p (Holm)"].tolist() == [0.004, 0.6]
    assert table["significant"].tolist() == ["yes", "no"]
    assert table["net gain"].tolist() == [15, 15]
    formats = [workbook["comparisons"].cell(row, 12).number_format for row in (2, 3)]
    assert formats == ["+0.0%;-0.0%;0.0%", "+0.000;-0.000;0.000"]
    assert [workbook["comparisons"].cell(row, 12).font.bold for row in (2, 3)] == [True, False]


def test_lists_are_printed_upright_on_few_pages_without_the_texts_that_repeat_them(leaderboard, comparison_row):
    rows = [comparison_row(baseline=f"m{k}") for k in range(400)]
    workbook, _ = leaderboard(comparisons=rows)
    sheet = workbook["comparisons"]
    titles = [cell.value for cell in sheet[1]]
    assert sheet.print_area == f"'comparisons'!$A$1:$P${len(rows) + 1}"
    assert (titles[15], titles[16]) == ("p (Holm)", "interpretation")
    assert (sheet.page_setup.orientation, sheet.page_setup.fitToWidth) == ("portrait", 1)
    assert sheet.page_setup.fitToHeight <= 5


def test_missing_values_are_empty_cells_and_formula_names_are_text(leaderboard, comparison_row, overall_row):
    missing = dict.fromkeys(["difference", "ci_low", "ci_high", "p_value", "p_holm", "significant", "better"])
    counts = dict.fromkeys(
        [
            "both_correct",
            "both_incorrect",
            "baseline_only_correct",
            "candidate_only_correct",
            "net_gain",
            "n_tests",
        ]
    )
    row = comparison_row(baseline="=1+1", candidate="@x", n=0, note="no items in common", **missing, **counts)
    workbook, _ = leaderboard(comparisons=[row], overall=[overall_row(model="-m", mean=None, rank=None, win_rate=None)])
    sheet = workbook["comparisons"]
    assert [(sheet[at].value, sheet[at].data_type) for at in ("A2", "B2")] == [("=1+1", "s"), ("@x", "s")]
    assert [sheet.cell(2, column).value for column in (*range(12, 17), 18, 19)] == [None] * 7
    assert sheet.cell(2, 17).value == "Not comparable: no items in common."
    assert workbook["overall"]["D2"].data_type == "s"


def test_empty_list_sheets_contain_message(leaderboard, comparison_row):
    workbook, _ = leaderboard(comparisons=[comparison_row(headline=False)], overall=[])
    assert workbook["comparisons"]["A1"].value == "No comparisons of headline metrics."
    assert workbook["overall"]["A1"].value == "No aggregates over tasks."


def test_overall_sheet_orders_by_scope_then_rank(leaderboard, overall_row):
    rows = [
        overall_row(scope="gl", model="b"),
        overall_row(model="a", rank=2, mean=0.2),
        overall_row(model="c", mean=1 / 3),
        overall_row(model="b", mean=0.4),
    ]
    _, path = leaderboard(overall=rows)
    table = pd.read_excel(path, sheet_name="overall")
    assert list(zip(table["scope"], table["rank"], table["model"], strict=True)) == [
        ("all", 1, "b"),
        ("all", 1, "c"),
        ("all", 2, "a"),
        ("gl", 1, "b"),
    ]
    assert table["mean above chance"].tolist()[1] == 1 / 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "mine is better than base by 3.1 points (95 % interval +1.2 points to +5.0 points)."),
        (
            {"difference": -0.031, "ci_low": -0.05, "ci_high": -0.012, "better": "baseline"},
            "base is better than mine by 3.1 points (95 % interval +1.2 points to +5.0 points).",
        ),
        (
            {"difference": -0.5, "ci_low": -0.7, "ci_high": -0.3, "unit": "nats", "higher_is_better": False},
            "mine is better (lower) than base by 0.500 (95 % interval +0.300 to +0.700).",
        ),
        (
            {"significant": False, "better": None, "difference": 0.004},
            "No significant difference (+0.4 points); minimum detectable difference with 500 items: 2.5 points.",
        ),
        (
            {"significant": False, "better": None, "minimum_detectable_difference": None, "note": "3 items excluded"},
            "No significant difference (+3.1 points). Note: 3 items excluded.",
        ),
        (
            {"better": None, "higher_is_better": None},
            "mine differs from base by +3.1 points (95 % interval +1.2 points to +5.0 points); neither direction is better.",
        ),
        ({"significant": None, "better": None, "p_value": None}, "Not tested: +3.1 points."),
        ({"difference": float("nan")}, "Not comparable: no item has a value for both models."),
    ],
)
def test_describe_comparison(comparison_row, changes, expected):
    assert describe_comparison(comparison_row(**changes)) == expected
