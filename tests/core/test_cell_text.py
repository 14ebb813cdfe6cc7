import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from vernacular.core.tables import formula_safe, plain_text, sheet_names

any_text = st.text(st.characters())  # with control characters and lone surrogates


@pytest.mark.parametrize(
    ("name", "expected"),
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
def test_plain_text_escapes_unreadable_characters(name, expected):
    assert plain_text(name) == expected


def test_plain_text_is_truncated_at_cell_limit():
    assert plain_text("x" * 40_000) == "x" * 32_766 + "…"


@given(any_text)
def test_plain_text_is_valid_in_xml_and_utf8(text):
    cell = plain_text(text)
    assert not ILLEGAL_CHARACTERS_RE.search(cell)
    assert cell.encode("utf-8").decode("utf-8") == cell


@pytest.mark.parametrize("name", ["=1+1", "+1", "-x", "@SUM(A1)", " =1", "\t=1", "＝1"])
def test_formula_gets_apostrophe(name):
    assert formula_safe(name) == "'" + plain_text(name)


@given(any_text)
def test_formula_safe_text_never_starts_a_formula(text):
    assert not formula_safe(text).lstrip().startswith(("=", "+", "-", "@"))


def test_sheet_names_are_valid_and_unique_ignoring_case():
    texts = ["gl", "GL", "a[b]:c*d?e/f\\g", "'quoted'", "History", "", "x" * 40, "x" * 50]
    assert sheet_names(texts) == [
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
def test_sheet_names_of_random_texts_are_valid(texts):
    names = sheet_names(texts)
    assert len({name.casefold() for name in names}) == len(texts)
    for name in names:
        assert 1 <= len(name) <= 31
        assert not set(name) & set("[]:*?/\\")
        assert not name.startswith("'")
        assert not name.endswith("'")
