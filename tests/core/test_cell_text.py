import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from vernacular.core.tables import formula_safe, plain_text, sheet_names

anything = st.text(st.characters())  # with control characters and halves of surrogate pairs


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("gl_Llama-3.1-8B", "gl_Llama-3.1-8B"),
        ("نموذج عربي", "نموذج عربي"),
        ("модел 😀", "модел 😀"),
        ("a\x00b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("line one\r\nline two\tend", "line one line two end"),
        ("\u202efdp.exe", "\\u202efdp.exe"),
        ("half \ud83d", "half \\ud83d"),
        ("\uffff", "\\uffff"),
        ("", ""),
    ],
)
def test_names_are_shown_with_escapes_where_unreadable(name, shown):
    assert plain_text(name) == shown


def test_very_long_text_is_cut_visibly_at_the_limit_of_a_cell():
    assert plain_text("x" * 40_000) == "x" * 32_766 + "…"


@given(anything)
def test_any_text_can_be_written_to_xml_and_utf8(text):
    shown = plain_text(text)
    assert not ILLEGAL_CHARACTERS_RE.search(shown)
    assert shown.encode("utf-8").decode("utf-8") == shown


@pytest.mark.parametrize("name", ["=1+1", "+1", "-x", "@SUM(A1)", " =1", "\t=1", "＝1"])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(name):
    assert formula_safe(name) == "'" + plain_text(name)


@given(anything)
def test_no_text_of_a_csv_starts_a_formula(text):
    assert not formula_safe(text).lstrip().startswith(("=", "+", "-", "@"))


def test_sheet_names_are_legal_and_unique_whatever_their_case():
    wanted = ["gl", "GL", "a[b]:c*d?e/f\\g", "'quoted'", "History", "", "x" * 40, "x" * 50]
    assert sheet_names(wanted) == [
        "gl",
        "GL (2)",
        "a_b__c_d_e_f_g",
        "quoted",
        "History (2)",
        "_",
        "x" * 31,
        "x" * 27 + " (2)",
    ]


@given(st.lists(st.text(max_size=40), max_size=12))
def test_sheet_names_of_any_texts_are_ones_excel_takes(wanted):
    names = sheet_names(wanted)
    assert len({name.casefold() for name in names}) == len(wanted)
    for name in names:
        assert 1 <= len(name) <= 31
        assert not set(name) & set("[]:*?/\\")
        assert not name.startswith("'")
        assert not name.endswith("'")
