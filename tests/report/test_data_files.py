import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vernacular.report.data_files import round_significant, script_json, write_data_file


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\ud800", '"\\', "__proto__"])
def test_script_json_escapes_markup(text):
    script = script_json([text])
    assert not any(character in script for character in "<>&\u2028\u2029\ud800")
    assert json.loads(script) == [text]


@given(st.recursive(st.text() | st.integers() | st.none() | st.booleans(), st.lists, max_leaves=8))
def test_script_json_round_trip(value):
    assert json.loads(script_json(value)) == value


def test_script_json_rejects_nan():
    with pytest.raises(ValueError, match="JSON"):
        script_json([float("nan")])


def test_round_significant_returns_none_for_non_finite_numbers():
    assert [round_significant(x) for x in (None, float("nan"), float("inf"), 0.0, -0.1234567890123, 7)] == [
        None,
        None,
        None,
        0.0,
        -0.123456789,
        7,
    ]


def test_data_file_is_one_call_with_its_name(tmp_path):
    write_data_file(tmp_path, "e1/i0", [["سلام", "</script>"]])
    assert (tmp_path / "data/e1/i0.js").read_text("utf-8") == (
        'vernacular.piece("e1/i0",[["سلام","\\u003c/script\\u003e"]]);\n'
    )
