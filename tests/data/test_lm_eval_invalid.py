"""Invalid and malicious lm-eval task files: accepted ones are rendered as in lm-eval, the rest raise an error.

Expected gold options and dropped rows are those of lm-eval 0.4.13 for the same file and row.
"""

import json
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.messages import assert_one_problem_per_line, assert_states
from support.schema_cases import UNUSUAL_VALUES, replace_at, schema_keys
from support.soak import examples, seed
from vernacular.config import load as config
from vernacular.core.errors import ConfigError, DataError
from vernacular.core.validate import schema
from vernacular.data.lm_eval import templates
from vernacular.data.lm_eval.items import build_items
from vernacular.data.lm_eval.settings import translate

N_CASES = examples(150)  # of each kind of file
MULTIPLE_CHOICE = {
    "task": "t", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "a.jsonl"}}, "test_split": "test",
    "output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_target": "g", "doc_to_choice": ["a", "b"],
    "fewshot_config": {"samples": [{"q": "x", "g": 0}]}, "metric_list": [{"metric": "acc"}],
}  # fmt: skip
GENERATE_UNTIL = MULTIPLE_CHOICE | {
    "output_type": "generate_until", "doc_to_choice": None, "generation_kwargs": {"until": ["\n"]},
    "metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["a"]}], "filter_list": [{"filter": [{"function": "lowercase"}]}],
}  # fmt: skip
ROWS = [{"q": "?", "g": 0}, {"q": "!", "g": 1}]


def write(path, content) -> None:
    """Write `content` as JSON, which is valid YAML; NaN and infinity in YAML's notation."""
    text = re.sub(
        r"[\x7f\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", json.dumps(content, ensure_ascii=False)
    )
    path.write_text(
        re.sub(r"(?<![\w\"])(-?)(NaN|Infinity)", lambda match: f"{match[1]}.{match[2][:3].lower()}", text), "utf-8"
    )


def translate_and_build(directory, content, rows=ROWS, **source):
    """Return (items, counts); `content` is a mapping, or the text of the file."""
    if isinstance(content, str):
        (directory / "theirs.yaml").write_text(content, "utf-8")
    else:
        write(directory / "theirs.yaml", content)
    data_source, lm_eval_settings = translate({"lm-eval": "theirs.yaml", **source}, directory)
    json.dumps(
        [data_source, lm_eval_settings], allow_nan=False, ensure_ascii=False
    ).encode()  # must be serializable: it is a parameter of a rule
    items, counts, _, _ = build_items(rows, [], lm_eval_settings, directory, {"kind": "file", "file": "a.jsonl"})
    return [item for item in items if not item["few_shot"]], counts


def error_message(directory, content, rows=ROWS, **source) -> str:
    """Return the error message, without the directory."""
    with pytest.raises((ConfigError, DataError)) as error:
        translate_and_build(directory, content, rows, **source)
    message = str(error.value)
    assert len(message.splitlines()) <= 2
    assert len(message) < 600
    return message.replace(f"{directory}/", "")


@pytest.mark.fuzz
@pytest.mark.parametrize("content", [MULTIPLE_CHOICE, GENERATE_UNTIL], ids=["choice", "written"])
def test_unusual_values_are_accepted_or_raise_error_with_file_and_key(tmp_path, content):
    root = schema(config.WORKFLOW / "schemas" / "lm_eval.schema.yaml")
    paths = [
        *dict.fromkeys(path for path, _ in schema_keys(root, root, content) if path),
        ("include",),
        ("zzz",),
        ("group",),
    ]
    cases = [(path, value) for path in paths for value in [*UNUSUAL_VALUES, "2024-01-01", "!function x.y"]]
    assert len(cases) > 3000
    assert len(translate_and_build(tmp_path, content)[0]) == 2
    for path, value in random.Random(seed(4)).sample(cases, min(N_CASES, len(cases))):
        try:
            translate_and_build(tmp_path, replace_at(content, path, value))
        except (ConfigError, DataError) as error:
            message = str(error)
            assert "theirs.yaml: " in message, (path, value)
            assert_one_problem_per_line(message, "theirs.yaml: ")
            assert max(map(len, message.splitlines())) < 600
            assert "s3cret" not in message, (path, value)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"target_delimiter": None}, ("target_delimiter", "text", "null")),
        ({"target_delimiter": 5}, ("target_delimiter", "text", "5")),
        ({"num_fewshot": "five"}, ("num_fewshot", "integer", "null", '"five"')),
        ({"test_split": 5}, ("test_split", "text", "null", "5")),
        ({"test_split": None}, ('"test_split"', '"validation_split"', "missing")),
        ({"doc_to_choice": 3}, ("doc_to_choice", "text", "list", "mapping", "null", "3")),
        ({"doc_to_text": ["q"]}, ("doc_to_text", "text", "integer", "true or false", "null", '["q"]')),
        ({"process_docs": "utils.f"}, ("process_docs", "!function", '"utils.f"')),
        ({"process_docs": "!function u.f"}, ("process_docs", "!function", "without quotes")),
        ({"description": "{{q"}, ("description", "Jinja", "end of template")),
        ({"dataset_path": "a b", "dataset_kwargs": None}, ("dataset_path", "a b", "owner/name")),
        (
            {"dataset_path": "../../etc", "dataset_kwargs": None},
            ("dataset_path", "../../etc", "directory", "data_files"),
        ),
        (
            {"dataset_kwargs": {"data_files": {"test": "~nobody-at-all/a.csv"}}},
            ("dataset_kwargs.data_files", "file name"),
        ),
        ({"dataset_kwargs": {"data_files": {"test": ["a", "b"]}}}, ("dataset_kwargs.data_files", "one file", "test")),
        (
            {"dataset_kwargs": {"data_files": "https://me:s3cret@h.org/a.csv"}},
            ("dataset_kwargs.data_files", "URL", "password"),
        ),
        (
            {"dataset_kwargs": {"data_files": {"test": "https://h.org/a.csv?sig=s3cret"}}},
            ("dataset_kwargs.data_files.test", "URL", "signature"),
        ),
        ({"metric_list": ["acc"]}, ("metric_list[0]", "mapping", '"acc"')),
        ({"filter_list": [{"name": "x"}]}, ("filter_list[0]", '"filter"', "missing")),
        ({"fewshot_config": {"samples": "!function u.f"}}, ("fewshot_config.samples", "not supported", "list")),
        ({"include": "https://me:s3cret@h.org/a.yaml"}, ("include", "not found", "https://…@h.org/a.yaml")),
        ({"include": [None]}, ("include", "not found", "None")),
        ({"include": "."}, ("include", "not found", "..")),
        ({"group": "g", "task": [{"task": "a"}, 5, "b"]}, ("group", "a, 5, b")),
    ],
)
def test_invalid_settings_raise_one_line_error(tmp_path, changes, parts):
    message = error_message(tmp_path, MULTIPLE_CHOICE | changes)
    assert_states(message, "theirs.yaml", *parts)
    assert len(message.splitlines()) == 1
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"generation_kwargs": {"temperature": "warm"}}, ("generation_kwargs.temperature", "number", "null", '"warm"')),
        ({"generation_kwargs": {"max_gen_toks": -1}}, ("generation_kwargs.max_gen_toks", "at least 1", "-1")),
        (
            {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["("]}]},
            ("metric_list.exact_match.regexes_to_ignore", '"("', "regular expression", "position 0"),
        ),
        (
            {"filter_list": [{"filter": [{"function": "take_first_k", "k": 3}]}]},
            ("filter_list", "take_first_k", "remove_whitespace", "lowercase", "uppercase", "take_first"),
        ),
    ],
)
def test_invalid_generation_settings_raise_one_line_error(tmp_path, changes, parts):
    message = error_message(tmp_path, GENERATE_UNTIL | changes)
    assert_states(message, "theirs.yaml", *parts)
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("task: 2024-13-01\n", ("YAML", "month")),
        ("x: " + "9" * 5000, ("YAML", "limit")),
        ("[" * 1000, ("YAML", "nested")),
        ("x: !!python/object/apply:os.system [id]\n", ("line 1", "YAML", "constructor")),
        ("- a\n", ("lm-eval", "key: value")),
        ("", ("lm-eval", "key: value")),
        (json.dumps(MULTIPLE_CHOICE).replace('"x"', "2024-01-01"), ("text", "2024-01-01", "date", "quotes")),
    ],
)
def test_unsafe_or_unsupported_yaml_raises_error(tmp_path, text, parts):
    assert_states(error_message(tmp_path, text), "theirs.yaml", *parts)


def test_repeated_includes_are_read_once_and_depth_is_limited(tmp_path):
    for i in range(40):
        write(tmp_path / f"{i}.yaml", {"include": [f"{i + 1}.yaml"] * 2})
    write(tmp_path / "40.yaml", MULTIPLE_CHOICE)
    assert len(translate_and_build(tmp_path, {"include": "0.yaml"})[0]) == 2
    for i in range(40, 60):
        write(tmp_path / f"{i}.yaml", {"include": f"{i + 1}.yaml"})
    assert_states(error_message(tmp_path, {"include": "0.yaml"}), "50.yaml", "included", "50 files")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("..up.f", ("!function ..up.f", "module not found")),
        (".tmp.f", ("!function .tmp.f", "module not found")),
        ("f", ("!function f", "module not found")),
        ("no_such_module.f", ("!function no_such_module.f", "module not found", "No module named 'no_such_module'")),
        ("here.nothing", ("here.nothing", "function not found", "here.py")),
        ("broken.f", ("broken.py", "imported", "SyntaxError", "invalid syntax")),
        ("slip.f", ("slip.py", "imported", "NameError", "'undefined'")),
        ("rows.none", ("process_docs", "rows.none", "TypeError", "'NoneType'")),
        ("rows.numbers", ("process_docs", "rows.numbers", "TypeError", "'int'")),
        ("rows.nothing", ("theirs.yaml", "process_docs", "no rows")),
        ("rows.slip", ("process_docs", "rows.slip", "NameError", "'undefined'")),
        ("rows.strict", ("process_docs", "rows.strict", "AssertionError", "two rows")),
        # the complete sentence, once
        ("rows.gone", ("theirs.yaml: the first row cannot be rendered (template: 'q' is undefined).",)),
    ],
)
def test_unavailable_or_failing_trusted_function_raises_error(tmp_path, name, parts):
    (tmp_path / "directory").mkdir()
    (tmp_path / "up.py").write_text("raise SystemExit('outside')\n")
    (tmp_path / "directory" / "here.py").write_text("nothing = 5\n")
    (tmp_path / "directory" / "broken.py").write_text("def\n")
    (tmp_path / "directory" / "slip.py").write_text("undefined\n")
    bodies = {"none": "return None", "numbers": "return [1, 2]", "nothing": "return []", "slip": "return undefined"}
    bodies |= {"strict": "assert len(rows) == 3, 'two rows'", "gone": "return [{'g': 0}]"}
    (tmp_path / "directory" / "rows.py").write_text(
        "".join(f"def {function}(rows): {body}\n" for function, body in bodies.items())
    )
    text = json.dumps(MULTIPLE_CHOICE)[:-1] + f", process_docs: !function {name}}}"
    assert_states(error_message(tmp_path / "directory", text, trust_functions=True), *parts)


# ----- templates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("{% include 'x' %}", ("included",)),
        ("{% import 'os' as os %}", ("imported",)),
        ("{{ q|random }}", ("No filter", "'random'")),
        ("{% do q.append(1) %}", ("unknown tag", "'do'")),
        ("{{" + "(" * 500 + "1" + ")" * 500 + "}}", ("too deep", "RecursionError")),
        ("{% for a in q %}" * 30 + "{% endfor %}" * 30, ("too deep", "SyntaxError")),
    ],
)
def test_invalid_template_is_rejected_before_rows_are_read(tmp_path, template, parts):
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix"):
        message = error_message(tmp_path, MULTIPLE_CHOICE | {key: template})
        assert_states(message, "theirs.yaml", key, "Jinja", *parts)


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("{{ ''.__class__.__mro__ }}", ("'__class__'", "'str'", "unsafe")),
        ("{{ '{0.__class__}'.format(q) }}", ("'__class__'", "'str'", "unsafe")),
        ("{{ cycler.__init__.__globals__.os.system('id') }}", ("'__init__'", "'type'", "unsafe")),
        ("{{ open('/etc/passwd') }}", ("'open'", "undefined")),
        ("{{ lipsum() }}", ("'lipsum'", "undefined")),
        ("{% for i in range(10**9) %}x{% endfor %}", ("OverflowError", "MAX_RANGE (100000)")),
        ("{{ 'a' * 10**11 }}", ("memory limit",)),
        ("{{ q|center(10**11) }}", ("memory limit",)),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ("recursion limit",)),
    ],
)
def test_unsafe_or_oversized_template_raises_error(tmp_path, template, parts):
    message = error_message(tmp_path, MULTIPLE_CHOICE | {"doc_to_text": template})
    assert_states(message, "theirs.yaml", "first row", *parts)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ (q * 40 ~ 'b')|regex_replace('(a+)+$', '') }}",
        "{{ (q|length + 6) ** (9 ** 9) }}",
    ],
)
def test_slow_template_raises_error_after_time_limit(tmp_path, monkeypatch, template):
    monkeypatch.setattr(templates, "MAX_SECONDS", 0.2)
    rows = [{"q": "a", "g": 0}] * 1000
    message = error_message(tmp_path, MULTIPLE_CHOICE | {"doc_to_text": template}, rows)
    assert_states(message, "theirs.yaml", "templates", "0.2 seconds", "100 rows")


def test_slow_constant_expression_raises_error_after_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "MAX_SECONDS", 0.2)
    message = error_message(tmp_path, MULTIPLE_CHOICE | {"doc_to_text": "{{ 7 ** (9 ** 9) }}"})
    assert_states(message, "theirs.yaml", "doc_to_text", "Jinja", "0.2 seconds")


# ----- rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "row", "choices", "gold"),
    [
        ({}, {"g": 1.0}, ["a", "b"], [1]),  # a column of integers with a missing value
        ({}, {"g": 1.5}, ["a", "b"], []),
        ({}, {"g": True}, ["a", "b"], [1]),
        ({}, {"g": -1}, ["a", "b"], []),
        ({}, {"g": 2}, ["a", "b"], []),
        ({}, {"g": None}, ["a", "b"], []),
        ({}, {"g": "b"}, ["a", "b"], [1]),
        ({}, {"g": [0, 1, 7]}, ["a", "b"], [0, 1]),
        ({"doc_to_target": "{{g}}"}, {"g": [1]}, ["a", "b"], [1]),
        ({"doc_to_choice": {"x": "A", "y": "B"}}, {"g": 1}, ["A", "B"], [1]),
        ({"doc_to_choice": "{{['x'] * 40}}"}, {"g": 39}, ["x"] * 40, [39]),
        ({"doc_to_choice": "{{[q, g|string]}}"}, {"g": 1}, ["?", "1"], [1]),
        ({"doc_to_choice": []}, {"g": 0}, [], []),
    ],
)
def test_gold_equals_lm_eval(tmp_path, changes, row, choices, gold):
    (item,), counts = translate_and_build(tmp_path, MULTIPLE_CHOICE | changes, [{"q": "?", **row}])
    assert (item["choices"], item["gold"]) == (choices, gold)
    assert list(counts["repaired"].values()) == ([] if gold else [1])
    for note in counts["repaired"]:
        assert_states(note, "answer", "options", "unknown")


@pytest.mark.parametrize(
    ("changes", "row", "parts"),
    [
        ({"doc_to_choice": [1, 2]}, {}, ("doc_to_choice", "list of texts")),
        ({"doc_to_choice": "q"}, {}, ("doc_to_choice", "list of texts")),
        ({"doc_to_choice": "{{q}}"}, {}, ("doc_to_choice", "not a list")),
        ({"doc_to_choice": "{{none}}"}, {}, ("doc_to_choice", "list of texts")),
        ({"description": "g"}, {}, ("column g", "not text")),
        ({"gen_prefix": "g"}, {}, ("column g", "not text")),
        ({"output_type": "loglikelihood"}, {}, ("doc_to_target is not text",)),
        ({"output_type": "generate_until", "doc_to_text": 1}, {}, ("doc_to_text", "number", "multiple_choice")),
        (
            {"output_type": "generate_until", "doc_to_choice": None},
            {"g": [1, 2]},
            ("doc_to_target", "list", "not text"),
        ),
        ({"output_type": "generate_until", "doc_to_choice": None}, {"g": []}, ("doc_to_target", "list", "first row")),
    ],
)
def test_row_that_cannot_be_rendered_is_dropped_with_reason(tmp_path, changes, row, parts):
    items, counts = translate_and_build(tmp_path, MULTIPLE_CHOICE | changes, [{"q": "?", "g": 0, **row}])
    assert (items, list(counts["dropped"].values())) == ([], [1])
    (reason,) = counts["dropped"]
    assert_states(reason, *parts)
    assert ("list of texts" in reason) == ("list of texts" in parts)  # unlike "not a list"


@pytest.mark.parametrize(
    ("target", "targets"), [(0, ["a"]), (-1, ["b"]), (1.0, ["b"]), (2, None), ("b", ["b"]), (True, ["b"])]
)
def test_generation_targets_equal_lm_eval(tmp_path, target, targets):
    (item,), counts = translate_and_build(
        tmp_path, GENERATE_UNTIL | {"doc_to_choice": ["a", "b"]}, [{"q": "?", "g": target}]
    )
    assert json.loads(item["extra"].get("targets", "null")) == targets
    assert bool(counts["repaired"]) == (targets is None)


def test_continuation_of_context_options_may_be_a_number(tmp_path):
    content = MULTIPLE_CHOICE | {"doc_to_text": "g", "doc_to_target": "year", "doc_to_choice": "{{[q, 'x']}}"}
    (item,), _ = translate_and_build(tmp_path, content, [{"q": "En", "g": 1, "year": 1975}])
    assert (item["choices"], item["gold"], item["extra"]["continuation"]) == (["En", "x"], [1], " 1975")


CELL_TEXTS = st.sampled_from(["?", "", "7", "007", "²", "{x}", "['a']", "a\nb", "=1", "\ud800", "🐈‍⬛ أ"])
CELL_VALUES = st.one_of(
    CELL_TEXTS, st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.lists(CELL_TEXTS, max_size=3), st.lists(st.none()),
    st.dictionaries(st.sampled_from("xy"), CELL_TEXTS, max_size=2), st.binary(max_size=2),
)  # fmt: skip
FIELD_VALUES = [
    "q",
    "g",
    "{{q}}",
    "{{g}}",
    "{{q}} {{g}}",
    "{{q.strip()}}",
    "{{g[0]}}",
    "{{[q, g]}}",
    "{{q|length}}",
    "gone",
    "",
    0,
    1,
]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_row_becomes_an_item_or_is_counted(tmp_path, data):
    fields = {key: data.draw(st.sampled_from(FIELD_VALUES)) for key in ("doc_to_text", "doc_to_target")}
    fields["doc_to_choice"] = data.draw(st.sampled_from(["q", "{{[q, g]}}", "g", ["a", "b"], "{{g}}"]))
    fields |= {key: data.draw(st.sampled_from(["", "q", "{{g}}", "x"])) for key in ("description", "gen_prefix")}
    output_type = data.draw(st.sampled_from(["multiple_choice", "loglikelihood", "generate_until"]))
    rows = data.draw(st.lists(st.fixed_dictionaries({"q": CELL_VALUES, "g": CELL_VALUES}), min_size=1, max_size=4))
    message = ""
    try:
        items, counts = translate_and_build(tmp_path, MULTIPLE_CHOICE | fields | {"output_type": output_type}, rows)
    except DataError as error:
        message = str(error)
    if message:
        assert "theirs.yaml" in message
        assert "first row" in message
        return
    assert len(items) + sum(counts["dropped"].values()) == len(rows)
    for item in items:
        assert all(0 <= index < len(item["choices"]) for index in item["gold"])
        assert all(isinstance(text, str) for text in item["extra"].values())
        json.dumps(item, ensure_ascii=False).encode()
