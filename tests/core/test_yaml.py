"""YAML 1.2 as plain values: types, line numbers and errors; defaults of a schema."""

import jsonschema
import pytest
from vernacular.core import validate
from vernacular.core.errors import ConfigError
from vernacular.core.yaml import read


def content(tmp_path, text: str):
    path = tmp_path / "a.yaml"
    path.write_text(text, "utf-8")
    return read(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("y", "y"), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("=", "="),
        ("010", 10), ("0o10", 8), ("0x1F", 31), ("1e3", 1000.0), (".5", 0.5), ("true", True), ("~", None), ("", None),
        ("!!str 5", "5"), ("'5'", "5"), (r'"\ud83d\ude42"', "🙂"), ("|\n  a\n  b", "a\nb\n"),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(tmp_path, text, value):
    parsed = content(tmp_path, f"a: {text}\n")[0]["a"]
    assert (parsed, type(parsed)) == (value, type(value))


def test_keys_are_text_as_written(tmp_path):
    value = content(tmp_path, "007: a\n1.10: b\nno: c\nnull: d\n2024-01-01: e\n'<<': f\n")[0]
    assert value == {"007": "a", "1.10": "b", "no": "c", "null": "d", "2024-01-01": "e", "<<": "f"}


def test_lines_of_keys_and_entries(tmp_path):
    value, lines = content(tmp_path, "# note\na: &x\n  b: [1,\n    2]\nc:\n- {<<: *x, b: 3}\n")
    assert value == {"a": {"b": [1, 2]}, "c": [{"b": 3}]}
    assert type(value["c"][0]) is dict
    own_lines = {key_path: line for key_path, line in lines.items() if "<<" not in key_path}
    assert own_lines == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 3,
        ("a", "b", 1): 4,
        ("c",): 5,
        ("c", 0): 6,
        ("c", 0, "b"): 6,
    }


@pytest.mark.parametrize("text", ["", "# note\n", "---\n", "~\n"])
def test_empty_file_is_none(tmp_path, text):
    assert content(tmp_path, text) == (None, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", ', line 2: not valid YAML (found duplicate key "c").'),
        ("a: 1\n1: x\n'1': y\n", ', line 3: not valid YAML (found duplicate key "1").'),
        ("a: [\n", ", line 2: not valid YAML (expected the node content, but found '<stream end>')."),
        ("a:\n\tb: 1\n", ", line 2: not valid YAML (found character '\\t' that cannot start any token). Indent with spaces, not tabs."),
        ("a: !!bool x\n", ", line 1: not valid YAML ('x')."),
        ("a: !mine x\n", ", line 1: not valid YAML (could not determine a constructor for the tag '!mine')."),
        (f"a: 1\nb: 0x{'f' * 5000}\n", ", line 2: not valid YAML (an integer of more digits than can be printed)."),
        ("a: -_\n", ", line 1: not valid YAML (invalid literal for int() with base 10: '')."),
    ],
)  # fmt: skip
def test_error_names_file_and_line(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        content(tmp_path, text)
    assert str(error.value) == f"{tmp_path}/a.yaml{message}"


def test_aliases_may_repeat_values_up_to_a_limit(tmp_path, low_limits):
    text = "a: &a [1, 2, 3, 4]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    values, lines = content(tmp_path, text)
    assert values["c"] == [[[1, 2, 3, 4]] * 2] * 2
    assert lines["c", 1, 1, 3] == 1
    low_limits("core.yaml", MAX_REPEATED=-len(text) + 10)
    with pytest.raises(ConfigError, match=r"a\.yaml, line \d: not valid YAML \(aliases repeat more than"):
        content(tmp_path, f"{text}\n")


def test_content_can_be_changed_and_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: [1]}\n")
    content, _ = read(path)
    content["a"]["b"].append(2)
    assert read(path) == ({"a": {"b": [1]}}, {("a",): 1, ("a", "b"): 1, ("a", "b", 0): 1})
    path.write_text("\na: {b: [3]}\n")
    assert read(path)[0] == {"a": {"b": [3]}}
    assert read(path)[1][("a",)] == 2


def test_defaults_are_filled_at_all_levels_and_not_shared():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a", "default": {}}, "n": {"type": "integer", "default": 3}},
        "$defs": {"a": {"type": "object", "properties": {"b": {"type": "array", "default": []}}}},
    }
    first, second = {"n": 4}, {"a": {}}
    validate.fill_defaults(first, schema)
    assert first == {"a": {"b": []}, "n": 4}
    first["a"]["b"].append(1)
    validate.fill_defaults(second, schema)
    assert second == {"a": {"b": []}, "n": 3}
    with pytest.raises(jsonschema.ValidationError):
        validate.fill_defaults({"n": "x"}, schema)
