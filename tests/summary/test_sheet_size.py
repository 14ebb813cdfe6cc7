"""Sheets that are full: the rows and columns that do not fit are on further sheets, and none is missing."""

import openpyxl
import pytest
from openpyxl import Workbook
from vernacular.comparison.curves.schema import CURVE_STATISTICS, TASK_TRUST
from vernacular.comparison.schema import PROMPTS
from vernacular.core.tables import CELL_LIMIT, SHEET_LIMIT, plain_text, sheet_names
from vernacular.metrics.schema import TOKENIZERS
from vernacular.summary.cells import EXCEL, SheetSize
from vernacular.summary.grid import combine_tables
from vernacular.summary.lists import curve_sheets
from vernacular.summary.tokenizers import write_tokenizers
from vernacular.summary.workbook import write_group, write_leaderboard

N_ROWS = 7  # of each list
SIZES = {"one more than fits": N_ROWS, "several sheets": 3}  # rows of a sheet, with its header; a list of 7 needs 8
MODELS = [f"m{number}" for number in range(N_ROWS)]


def parts(book: Workbook, name: str) -> list:
    """Return the sheets of a name in their order: "gl", "gl (2)", …."""
    found = [sheet for sheet in book if sheet.title == name or sheet.title.startswith(f"{name} (")]
    titles = [name, *(f"{name} ({number})" for number in range(2, len(found) + 1))]
    assert [sheet.title for sheet in found] == titles
    return found


def rows(sheets: list, n_headers: int = 1) -> list[tuple]:
    """Return the rows of sheets below their headers, which must be equal."""
    contents = [list(sheet.values) for sheet in sheets]
    assert all(content[:n_headers] == contents[0][:n_headers] for content in contents)
    return [row for content in contents for row in content[n_headers:]]


@pytest.fixture
def leaderboards(metrics_table, comparison_row, overall_row, tmp_path):
    """Return a function that writes a leaderboard with seven rows per list; sheets of at most `size`."""
    setting = {"task": "t", "language": "gl", "protocol": "options", "shots": 0, "seed": 0, "style": "default",
               "evaluation": "e", "prompt": "default", "category": "", "metric": "accuracy", "unit": "share",
               "higher_is_better": True, "headline": True, "n": 10}  # fmt: skip
    curves = [dict.fromkeys(CURVE_STATISTICS.schema.names) | setting | {"curve": model} for model in MODELS]
    trust = [dict.fromkeys(TASK_TRUST.schema.names) | setting | {"task": model} for model in MODELS]
    means = [
        dict.fromkeys(PROMPTS.schema.names)
        | setting
        | {"model": model, "prompt": "all", "n_prompts": 2, "n_clusters": 10, "prompts": ["a", "b"]}
        | dict.fromkeys(("variance_items", "variance_prompts", "variance_items_prompts"), 0.1)
        for model in MODELS
    ]
    arguments = {
        "comparisons": [comparison_row(candidate=model, significant=True) for model in MODELS],
        "overall": [overall_row(model=model, scope="gl", rank=1) for model in MODELS],
        "prompts": means,
        "extra_sheets": curve_sheets(curves, trust, "Ignore t."),
    }
    long = combine_tables([metrics_table(*({"model": model} for model in MODELS[:1]))])
    provenance = {"notes": [{"note": model} for model in MODELS]}

    def write(size: SheetSize) -> Workbook:
        path = write_leaderboard(tmp_path / f"{size.rows}.xlsx", long, provenance, size=size, **arguments)
        return openpyxl.load_workbook(path)

    return write


@pytest.mark.parametrize("n_rows", [*SIZES.values(), N_ROWS + 1], ids=[*SIZES, "fits"])
def test_lists_are_continued_on_further_sheets(leaderboards, n_rows):
    usual, low = leaderboards(EXCEL), leaderboards(SheetSize(n_rows, EXCEL.columns))
    for name in ("comparisons", "overall", "curves"):
        sheets = parts(low, name)
        assert len(sheets) == -(-N_ROWS // (n_rows - 1))
        assert rows(sheets) == rows(parts(usual, name))
        assert all(sheet.max_row <= n_rows and sheet.auto_filter.ref for sheet in sheets)
    bold = [
        row[0].value for sheet in parts(low, "comparisons") for row in sheet.iter_rows(2) if any(c.font.b for c in row)
    ]
    assert len(bold) == N_ROWS
    trusted = [row[0] for row in rows(parts(low, "task trust"), 0) if row[0] not in (None, "task")]
    assert trusted == [*MODELS, "Ignore t."]
    texts = [[cell for row in rows(parts(book, "provenance"), 0) for cell in row if cell] for book in (low, usual)]
    assert texts[0] == texts[1]
    tables = [rows(parts(book, "prompts"), 0) for book in (low, usual)]
    for model in MODELS:
        lines = [[row for row in table if row[0] == model] for table in tables]
        assert len(lines[0]) == len(lines[1]) > 10
        assert [row[:8] for row in lines[0]] == [row[:8] for row in lines[1]]
    assert all(sheet.max_row <= n_rows for name in ("prompts", "provenance") for sheet in parts(low, name))


@pytest.mark.parametrize("n_rows", [*SIZES.values(), N_ROWS + 1], ids=[*SIZES, "fits"])
def test_tokenizers_are_continued_on_further_sheets(tmp_path, n_rows):
    content = [dict.fromkeys(TOKENIZERS.schema.names) | {"model": model} for model in MODELS]
    size = SheetSize(n_rows, EXCEL.columns)
    book = openpyxl.load_workbook(write_tokenizers(tmp_path / "book.xlsx", content, size))
    assert [row[0] for row in rows(parts(book, "tokenizers"))] == MODELS


@pytest.mark.parametrize("n_columns", [10, 9, 4], ids=["fits", "one more than fits", "several sheets"])
def test_evaluations_are_continued_on_further_sheets(metrics_table, overall_row, tmp_path, n_columns):
    """Ten columns: the names, two means, and seven tasks; the sheet of the language has no means."""
    changes = [
        {"task": f"t{task}", "model": model, "value": (task + number) / 10}
        for task in range(7)
        for number, model in enumerate(MODELS[:2])
    ]
    long = combine_tables([metrics_table(*changes)])
    overall = [overall_row(model=model, scope="all", rank=1) for model in MODELS[:2]]
    size = SheetSize(EXCEL.rows, n_columns)
    book = openpyxl.load_workbook(write_leaderboard(tmp_path / "book.xlsx", long, {}, overall=overall, size=size))
    usual = openpyxl.load_workbook(write_leaderboard(tmp_path / "usual.xlsx", long, {}, overall=overall))
    for name, n_headers in (("overview", 4), ("gl", 3)):
        sheets = parts(book, name)
        assert (len(sheets) > 1) == (usual[name].max_column > n_columns)
        assert all(sheet.max_column <= n_columns for sheet in sheets)
        columns = [column for sheet in sheets for column in list(sheet.iter_cols(2, values_only=True))]
        expected = list(usual[name].iter_cols(2, values_only=True))
        tasks = [
            column[n_headers - 3 :] for column in columns if "Mean" not in str(column) and "Rank" not in str(column)
        ]
        assert [column[2:] for column in tasks] == [
            column[n_headers - 1 :] for column in expected if "Mean" not in str(column) and "Rank" not in str(column)
        ]


def test_no_column_of_a_metric_is_omitted(metrics_table, tmp_path):
    long = combine_tables([metrics_table(*({"metric": f"m{number}", "headline": number == 2} for number in range(5)))])
    book = openpyxl.load_workbook(
        write_group(tmp_path / "book.xlsx", long, {}, group="similarity", size=SheetSize(EXCEL.rows, 4))
    )
    shown = [cell for sheet in parts(book, "gl") for cell in list(sheet.values)[2][1:]]
    assert sorted(shown) == [f"M{number} (↑)" for number in range(5)]
    assert SheetSize(rows=1_048_576, columns=16_384) == EXCEL


@pytest.mark.parametrize("character", ["x", "ñ", "ქ", "𞤀"])  # the last one has two UTF-16 code units
@pytest.mark.parametrize("more", [-1, 0, 1, 500])
def test_texts_are_limited_as_excel_counts_them(character, more):
    units = len(character.encode("utf-16-le")) // 2
    cell = plain_text(character * ((CELL_LIMIT + more) // units))
    assert len(cell.encode("utf-16-le")) // 2 <= CELL_LIMIT
    assert cell.endswith("…") == (units * ((CELL_LIMIT + more) // units) > CELL_LIMIT)
    names = sheet_names([character * ((SHEET_LIMIT + more) // units)] * 3)
    assert len(set(names)) == 3
    assert all(len(name.encode("utf-16-le")) // 2 <= SHEET_LIMIT for name in names)
