"""The sheets that are lists: comparisons of pairs, and models across tasks."""

import openpyxl
import pandas as pd
import pytest
from vernacular.summary.grid import collect
from vernacular.summary.lists import in_words
from vernacular.summary.workbook import write_leaderboard


@pytest.fixture
def leaderboard(metrics_table, tmp_path):
    """Write a leaderboard with what is given beside the results and open it again."""

    def book(*rows, **extra):
        path = write_leaderboard(tmp_path / "book.xlsx", collect([metrics_table(*(rows or [{}]))]), {}, **extra)
        return openpyxl.load_workbook(path), path

    return book


def test_lists_stand_between_overview_and_languages_and_only_where_given(leaderboard, comparison_row, overall_row):
    book, _ = leaderboard({"language": "Comparisons"}, overall=[overall_row()], comparisons=[comparison_row()])
    assert book.sheetnames == ["overview", "overall", "comparisons", "Comparisons (2)", "provenance"]
    book, _ = leaderboard()
    assert book.sheetnames == ["overview", "gl", "provenance"]


def test_comparisons_are_the_headline_rows_over_all_items(leaderboard, comparison_row):
    rows = [
        comparison_row(),
        comparison_row(task="cola", metric="mcc", unit="score", better=None, significant=False, p_holm=0.6),
        comparison_row(metric="detail", headline=False),
        comparison_row(category="verbs"),
    ]
    book, path = leaderboard(comparisons=rows)
    again = pd.read_excel(path, sheet_name="comparisons")
    assert again["metric"].tolist() == ["accuracy (share ↑)", "mcc (score ↑)"]
    assert (
        again[["baseline value", "candidate value", "difference", "low", "high"]].to_numpy().tolist()
        == [[0.5, 0.531, 0.031, 0.012, 0.05]] * 2
    )
    assert again["p (Holm)"].tolist() == [0.004, 0.6]
    assert again["significant"].tolist() == ["yes", "no"]
    assert again["net gain"].tolist() == [15, 15]
    formats = [book["comparisons"].cell(row, 13).number_format for row in (2, 3)]
    assert formats == ["+0.0%;-0.0%;0.0%", "+0.000;-0.000;0.000"]
    assert [book["comparisons"].cell(row, 13).font.bold for row in (2, 3)] == [True, False]


def test_missing_figures_leave_cells_empty_and_hostile_names_are_text(leaderboard, comparison_row, overall_row):
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
    book, _ = leaderboard(comparisons=[row], overall=[overall_row(model="-m", mean=None, rank=None, win_rate=None)])
    sheet = book["comparisons"]
    assert [(sheet[at].value, sheet[at].data_type) for at in ("A2", "B2")] == [("=1+1", "s"), ("@x", "s")]
    assert [sheet.cell(2, column).value for column in range(13, 20)] == [None] * 7
    assert sheet.cell(2, 10).value == "Not comparable: no items in common."
    assert book["overall"]["C2"].data_type == "s"


def test_nothing_compared_is_said(leaderboard, comparison_row):
    book, _ = leaderboard(comparisons=[comparison_row(headline=False)], overall=[])
    assert book["comparisons"]["A1"].value == "No comparisons of headline metrics."
    assert book["overall"]["A1"].value == "No aggregates over tasks."


def test_across_tasks_all_languages_come_first_then_by_rank(leaderboard, overall_row):
    rows = [
        overall_row(scope="gl", model="b"),
        overall_row(model="a", rank=2, mean=0.2),
        overall_row(model="c", mean=1 / 3),
        overall_row(model="b", mean=0.4),
    ]
    _, path = leaderboard(overall=rows)
    again = pd.read_excel(path, sheet_name="overall")
    assert list(zip(again["scope"], again["rank"], again["model"], strict=True)) == [
        ("all", 1, "b"),
        ("all", 1, "c"),
        ("all", 2, "a"),
        ("gl", 1, "b"),
    ]
    assert again["mean above chance"].tolist()[1] == 1 / 3


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_a_comparison_in_words(comparison_row, changes, said):
    assert in_words(comparison_row(**changes)) == said
