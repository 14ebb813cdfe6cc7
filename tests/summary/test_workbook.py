import numpy as np
import openpyxl
import pandas as pd
import pytest
from vernacular.summary.grid import collect
from vernacular.summary.workbook import write_leaderboard, write_similarity, write_surprisal

BEST, SHARED, NEITHER = '0.0%" ●"', '0.0%" ○"', "0.0%_ _●"


@pytest.fixture
def written(metrics_table, tmp_path):
    """Write a workbook of rows and open it again."""

    def book(*rows, write=write_similarity, provenance=None, **extra):
        path = write(tmp_path / "book.xlsx", collect([metrics_table(*rows)]), provenance or {}, **extra)
        return openpyxl.load_workbook(path), path

    return book


def test_overview_then_a_sheet_per_language_then_provenance(written):
    book, _ = written({"language": "gl"}, {"language": "ca"})
    assert book.sheetnames == ["overview", "ca", "gl", "provenance"]


def test_sheets_of_languages_have_two_header_rows_task_and_metric(written):
    book, _ = written({}, {"metric": "cosine", "unit": "cosine", "headline": False}, {"task": "belebele"})
    rows = list(book["gl"].iter_rows(min_row=1, max_row=2, values_only=True))
    assert rows[0] == ("run", None, None, None, None, None, "belebele", "openbookqa", None)
    titles = ("accuracy (share ↑)", "accuracy (share ↑)", "cosine (↑)")
    assert rows[1] == ("model", "adapter", "shots", "seed", "style", "revision", *titles)
    assert {str(block) for block in book["gl"].merged_cells.ranges} == {"A1:F1", "H1:I1"}


def test_overview_puts_the_headline_metrics_of_all_languages_side_by_side(written):
    rows = [
        {"language": language, "metric": m, "headline": m == "accuracy"}
        for language in ("gl", "ca")
        for m in ("accuracy", "x")
    ]
    book, _ = written(*rows)
    header = [cells[6:] for cells in book["overview"].iter_rows(min_row=1, max_row=3, values_only=True)]
    assert header == [("ca", "gl"), ("openbookqa", "openbookqa"), ("accuracy (share ↑)",) * 2]


def test_reads_back_by_pandas_to_the_same_numbers(written):
    rows = [
        {"model": f"m{i}", "task": task, "value": (i + 1) / 7} for i in range(3) for task in ("belebele", "openbookqa")
    ]
    _, path = written(*rows)
    again = pd.read_excel(path, sheet_name="gl", header=[0, 1])
    assert again["run", "model"].tolist() == ["m0", "m1", "m2"]
    for task in ("belebele", "openbookqa"):
        assert again[task, "accuracy (share ↑)"].tolist() == [1 / 7, 2 / 7, 3 / 7]


def test_two_runs_of_one_model_are_two_rows(written):
    book, _ = written({"shots": 0}, {"shots": 5}, {"shots": 5, "seed": 7}, {"shots": 5, "style": "simil-eval"})
    found = [cells[:5] for cells in book["gl"].iter_rows(min_row=3, values_only=True)]
    assert found == [
        ("m", None, 0, 42, "vernacular"),
        ("m", None, 5, 7, "vernacular"),
        ("m", None, 5, 42, "simil-eval"),
        ("m", None, 5, 42, "vernacular"),
    ]


def test_best_is_marked_in_the_direction_of_the_metric(written):
    values = {"a": (0.70, 0.65, 0.75), "b": (0.66, 0.61, 0.71), "c": (0.50, 0.45, 0.55)}
    rows = []
    for model, (value, low, high) in values.items():
        numbers = {"model": model, "value": value, "ci_low": low, "ci_high": high}
        rows.append(numbers)
        rows.append(numbers | {"metric": "loss", "higher_is_better": False, "unit": "nats"})
        rows.append(numbers | {"metric": "length", "higher_is_better": None, "unit": None})
    book, _ = written(*rows)
    sheet = book["gl"]
    assert [cell.value for cell in sheet[2][6:]] == ["accuracy (share ↑)", "length", "loss (nats ↓)"]
    formats = [[cell.number_format for cell in row[6:]] for row in sheet["A3:I5"]]
    nats = [form.replace("0.0%", "0.000") for form in (NEITHER, NEITHER, BEST)]
    assert formats == [[BEST, "0.000", nats[0]], [SHARED, "0.000", nats[1]], [NEITHER, "0.000", nats[2]]]
    assert [sheet[at].font.bold for at in ("G3", "G4", "G5")] == [True, False, False]


def test_paired_standings_decide_what_shares_the_best_and_the_sheet_says_so(written, ranking_row):
    rows = [{"model": "a", "value": 0.58}, {"model": "b", "value": 0.57}, {"model": "c", "value": 0.45}]
    rankings = [
        ranking_row(model="a", best="a", difference=0.0, in_best_group=True),
        ranking_row(model="b", best="a", difference=-0.01, p_holm=0.004, in_best_group=False),
        ranking_row(model="c", best="a", difference=-0.13, p_holm=0.2, in_best_group=True),
    ]
    book, _ = written(*rows, rankings=rankings)
    for sheet, first in ((book["gl"], 3), (book["overview"], 4)):
        assert [sheet.cell(first + run, 7).number_format for run in range(3)] == [BEST, NEITHER, SHARED]
        assert sheet.cell(first - 1, 7).comment.text.startswith("Best: by paired tests on the same items (Holm).")
    assert book["gl"]["G3"].comment.text.endswith("items 100")
    assert book["gl"]["G4"].comment.text.endswith("-1.0 points against the best, a, p 0.004 (Holm)")
    book, _ = written(*rows)
    assert [book["gl"].cell(3 + run, 7).number_format for run in range(3)] == [BEST, SHARED, SHARED]
    assert book["gl"]["G2"].comment.text.startswith("Best: by each value's own interval (no paired tests).")


def test_the_better_is_the_bluer_in_either_direction(written):
    rows = [{"model": m, "value": v} for m, v in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    both = [row | {"metric": "loss", "unit": "nats", "higher_is_better": False} for row in rows]
    neither = [row | {"metric": "length", "unit": "characters", "higher_is_better": None} for row in rows]
    book, _ = written(*rows, *both, *neither)
    scales = {str(at.sqref): rules[0].colorScale for at, rules in book["gl"].conditional_formatting._cf_rules.items()}
    shades = {
        at: [(end.type, end.val, colour.rgb) for end, colour in zip(scale.cfvo, scale.color, strict=True)]
        for at, scale in scales.items()
    }
    white, blue = "00FFFFFF", "009ECAE1"
    assert shades == {
        "G3:G5": [("num", 0.25, white), ("num", 1, blue)],
        "I3:I5": [("min", None, blue), ("max", None, white)],
    }


def test_interval_chance_and_counts_stand_in_the_comment(written):
    book, _ = written(
        {"n_flagged": 3, "n_ties": 2}, {"model": "n", "chance_level": None, "ci_low": None, "ci_high": None}
    )
    assert (
        book["gl"]["G3"].comment.text
        == "95 % interval 40.0% to 60.0%\nchance level 25.0%\nitems 100, flagged 3, ties 2"
    )
    assert book["gl"]["G4"].comment.text == "items 100"


def test_a_majority_baseline_stands_beside_chance(written):
    book, _ = written({"majority_baseline": 0.375})
    assert "chance level 25.0%, majority baseline 37.5%" in book["gl"]["G3"].comment.text
    assert "chance level: 25.0%\nmajority baseline: 37.5%" in book["gl"]["G2"].comment.text


def test_number_formats_follow_the_unit(written):
    units = {"share": "0.0%", "percent": "0.0", "nats": "0.000", "cosine": "0.000"}
    book, _ = written(*({"metric": unit, "unit": unit} for unit in units))
    found = {cell.value.split(" ")[0]: book["gl"].cell(3, cell.column).number_format for cell in book["gl"][2][6:]}
    assert found == units


def test_a_value_at_chance_is_grey(written):
    rows = [{"ci_low": 0.2}, {"model": "n", "ci_low": 0.3}, {"model": "o", "ci_low": 0.3, "majority_baseline": 0.35}]
    book, _ = written(*rows, {"model": "p", "ci_low": 0.45, "value": 0.9, "ci_high": 0.95})
    colours = [cell.font.color.rgb if cell.font.color.type == "rgb" else None for cell in book["gl"]["G"][2:]]
    assert colours == ["00767676", None, "00767676", "000B5D2A"]


def test_what_could_not_be_computed_is_not_what_was_not_asked(written):
    missing = {"value": None, "ci_low": None, "ci_high": None, "n": 0, "n_flagged": 100}
    book, _ = written({"model": "a"} | missing, {"model": "b"}, {"model": "b", "task": "belebele"})
    assert [[cell.value for cell in row] for row in book["gl"]["G3:H4"]] == [[None, "n/a"], [0.5, 0.5]]
    assert "flagged 100" in book["gl"]["H3"].comment.text


def test_infinity_does_not_make_a_file_that_excel_refuses(written):
    book, path = written({"value": np.inf}, {"model": "n", "value": -np.inf})
    assert [book["gl"][at].value for at in ("G3", "G4")] == ["∞", "-∞"]
    assert pd.read_excel(path, sheet_name="gl", header=[0, 1]).shape == (2, 7)


@pytest.mark.parametrize("name", ['=HYPERLINK("http://x","y")', "+1", "-1", "@SUM(A1)", "#N/A", "=", "1e5", "TRUE"])
def test_hostile_names_are_text(written, name):
    provenance = {name: {name: name}}
    book, _ = written({"model": name, "adapter": name, "task": name, "metric": name}, provenance=provenance)
    sheet = book["gl"]
    for at in ("A3", "B3", "G1"):
        assert (sheet[at].value, sheet[at].data_type) == (name, "s")
    assert sheet["A3"].quotePrefix == (name[0] in "=+-@")
    everywhere = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert not [cell.coordinate for cell in everywhere if cell.data_type in "fe"]


def test_control_and_right_to_left_names_can_be_written(written):
    book, _ = written({"model": "a\x00\x1b"}, {"model": "نموذج"}, {"model": "x" * 40_000})
    assert [book["gl"][at].value[:9] for at in ("A3", "A4", "A5")] == ["a\\x00\\x1b", "x" * 9, "نموذج"]


def test_a_language_named_as_our_own_sheets_gets_its_own(written):
    book, _ = written({"language": "Overview"}, {"language": "a/b:c"})
    assert book.sheetnames == ["overview", "Overview (2)", "a_b_c", "provenance"]


def test_header_stays_in_view_and_filters_cover_the_runs(written):
    book, _ = written({"model": "a"}, {"model": "b"})
    assert book["gl"].freeze_panes == "D3"
    assert book["gl"].auto_filter.ref == "A2:G4"
    assert book["overview"].auto_filter.ref == "A3:G5"


def test_a_setting_that_no_run_has_is_hidden(written):
    book, _ = written({})
    assert book["gl"].column_dimensions["B"].hidden
    assert not book["gl"].column_dimensions["A"].hidden


def test_families_go_to_their_own_workbooks_and_headlines_to_the_leaderboard(written):
    rows = [
        {},
        {"metric": "detail", "headline": False},
        {"metric": "surprisal", "metric_group": "surprisal", "task": "galcola"},
    ]
    found = {}
    for write in (write_similarity, write_surprisal, write_leaderboard):
        book, _ = written(*rows, write=write)
        found[write.__name__] = [cell.value.split(" ")[0] for cell in book["gl"][2][6:]]
    assert found == {
        "write_similarity": ["accuracy", "detail"],
        "write_surprisal": ["surprisal"],
        "write_leaderboard": ["surprisal", "accuracy"],
    }


def test_a_leaderboard_without_marked_headlines_takes_metrics_with_a_direction(written):
    rows = [{"headline": None}, {"headline": None, "metric": "length", "higher_is_better": None}]
    book, _ = written(*rows, write=write_leaderboard)
    assert [cell.value for cell in book["gl"][2][6:]] == ["accuracy (share ↑)"]


def test_a_family_without_results_is_a_workbook_that_says_so(written):
    book, _ = written({}, write=write_surprisal)
    assert book.sheetnames == ["overview", "provenance"]
    assert book["overview"]["A1"].value == "No surprisal results."


def test_spread_between_seeds_stands_in_the_provenance(written):
    book, _ = written({"seed": 1, "value": 0.4}, {"seed": 2, "value": 0.6})
    rows = list(book["provenance"].iter_rows(values_only=True))
    assert any("1 2" in cells and 0.5 in cells for cells in rows)
    book, _ = written({})
    assert "spread between few-shot seeds" not in [cells[0] for cells in book["provenance"].iter_rows(values_only=True)]


def test_metrics_without_direction_alone_leave_nothing_to_rank(written):
    book, _ = written({"headline": None, "metric": "length", "higher_is_better": None})
    assert book["overview"]["A1"].value == "No similarity results to rank."
    assert book["gl"]["G3"].value == 0.5


def test_provenance_lists_revisions_signatures_and_what_the_workflow_adds(written):
    given = {
        "software": {"torch": "2.13", "jobs": 3},
        "dropped rows": [{"task": "x", "rows": 2}, {"why": None}],
        "note": "n",
    }
    book, _ = written({}, provenance=given)
    rows = [tuple(v for v in cells if v is not None) for cells in book["provenance"].iter_rows(values_only=True)]
    assert ("m", "abc") in rows
    assert ("openbookqa", "gl", "def") in rows
    assert ("accuracy", "share", "True", "similarity", "accuracy|v1") in rows
    at = rows.index(("software",))
    assert rows[at:] == [
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
