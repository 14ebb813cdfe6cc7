import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vernacular.report.pieces import script_json, short, write_piece


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\ud800", '"\\', "__proto__"])
def test_no_text_can_end_the_script_it_stands_in(text):
    written = script_json([text])
    assert not any(sign in written for sign in "<>&\u2028\u2029\ud800")
    assert json.loads(written) == [text]


@given(st.recursive(st.text() | st.integers() | st.none() | st.booleans(), st.lists, max_leaves=8))
def test_what_goes_into_a_piece_comes_out_again(value):
    assert json.loads(script_json(value)) == value


def test_a_number_that_json_lacks_is_refused_rather_than_written():
    with pytest.raises(ValueError, match="JSON"):
        script_json([float("nan")])


def test_missing_and_infinite_numbers_are_shown_as_missing():
    assert [short(x) for x in (None, float("nan"), float("inf"), 0.0, -0.123456, 7)] == [
        None,
        None,
        None,
        0.0,
        -0.12346,
        7,
    ]


def test_a_piece_is_one_call_with_its_name(tmp_path):
    write_piece(tmp_path, "e1/i0", [["سلام", "</script>"]])
    assert (tmp_path / "data/e1/i0.js").read_text("utf-8") == (
        'vernacular.piece("e1/i0",[["سلام","\\u003c/script\\u003e"]]);\n'
    )
