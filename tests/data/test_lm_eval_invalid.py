"""lm-eval's files as a careless or hostile author leaves them: what is taken is asked as lm-eval asks it, the rest is named.

Where a row is expected to be right, or to stay out, that is what lm-eval 0.4.13 makes of the same file and row.
"""

import json
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.schema_cases import ODD, keys, put
from support.soak import examples, seed
from vernacular.config import load as config
from vernacular.core.errors import ConfigError, DataError
from vernacular.core.validate import schema
from vernacular.data.lm_eval import templates
from vernacular.data.lm_eval.items import lay_out
from vernacular.data.lm_eval.settings import translate

CASES = examples(150)  # of each kind of file
CHOICE = {
    "task": "t", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "a.jsonl"}}, "test_split": "test",
    "output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_target": "g", "doc_to_choice": ["a", "b"],
    "fewshot_config": {"samples": [{"q": "x", "g": 0}]}, "metric_list": [{"metric": "acc"}],
}  # fmt: skip
WRITTEN = CHOICE | {
    "output_type": "generate_until", "doc_to_choice": None, "generation_kwargs": {"until": ["\n"]},
    "metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["a"]}], "filter_list": [{"filter": [{"function": "lowercase"}]}],
}  # fmt: skip
ROWS = [{"q": "?", "g": 0}, {"q": "!", "g": 1}]


def write(path, content) -> None:
    """As YAML, by way of JSON; NaN and infinity as YAML has them."""
    text = re.sub(r"[\x7f\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", json.dumps(content, ensure_ascii=False))
    path.write_text(re.sub(r"(?<![\w\"])(-?)(NaN|Infinity)", lambda m: f"{m[1]}.{m[2][:3].lower()}", text), "utf-8")


def laid_out(folder, content, rows=ROWS, **source):
    """(items, counts); `content` is a mapping, or the text of the file."""
    if isinstance(content, str):
        (folder / "theirs.yaml").write_text(content, "utf-8")
    else:
        write(folder / "theirs.yaml", content)
    data, found = translate({"lm-eval": "theirs.yaml", **source}, folder)
    json.dumps([data, found], allow_nan=False, ensure_ascii=False).encode()  # goes on as a rule's parameter
    items, counts, _, _ = lay_out(rows, [], found, folder, {"kind": "file", "file": "a.jsonl"})
    return [item for item in items if not item["few_shot"]], counts


def refused(folder, content, rows=ROWS, **source) -> str:
    """What a person is told, less the folder."""
    with pytest.raises((ConfigError, DataError)) as error:
        laid_out(folder, content, rows, **source)
    said = str(error.value)
    assert len(said.splitlines()) <= 2
    assert len(said) < 600
    return said.replace(f"{folder}/", "")


@pytest.mark.fuzz
@pytest.mark.parametrize("good", [CHOICE, WRITTEN], ids=["choice", "written"])
def test_odd_values_are_taken_or_refused_with_file_and_key(tmp_path, good):
    root = schema(config.WORKFLOW / "schemas" / "lm_eval.schema.yaml")
    places = [*dict.fromkeys(at for at, _ in keys(root, root, good) if at), ("include",), ("zzz",), ("group",)]
    cases = [(at, odd) for at in places for odd in [*ODD, "2024-01-01", "!function x.y"]]
    assert len(cases) > 3000
    assert len(laid_out(tmp_path, good)[0]) == 2
    for at, odd in random.Random(seed(4)).sample(cases, min(CASES, len(cases))):
        try:
            laid_out(tmp_path, put(good, at, odd))
        except (ConfigError, DataError) as error:
            said = str(error)
            assert "theirs.yaml: " in said, (at, odd)
            assert len(said.splitlines()) <= 2
            assert len(said) < 600
            assert "s3cret" not in said, (at, odd)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target_delimiter": None}, "target_delimiter: expected text, got null."),
        ({"target_delimiter": 5}, "target_delimiter: expected text, got 5."),
        ({"num_fewshot": "five"}, 'num_fewshot: expected an integer or null, got "five".'),
        ({"test_split": 5}, "test_split: expected text or null, got 5."),
        ({"test_split": None}, 'the key "test_split" or "validation_split" is missing.'),
        ({"doc_to_choice": 3}, "doc_to_choice: expected text or a list or a mapping (key: value) or null, got 3."),
        ({"doc_to_text": ["q"]}, 'doc_to_text: expected text or an integer or true or false or null, got ["q"].'),
        ({"process_docs": "utils.f"}, 'process_docs: expected !function module.name, got "utils.f".'),
        ({"process_docs": "!function u.f"}, "process_docs: expected !function module.name without quotes, got text."),
        ({"description": "{{q"}, "description is not a valid Jinja template (unexpected end of template, expected 'end of print statement'.)."),
        ({"dataset_path": "a b", "dataset_kwargs": None}, "dataset_path: a b is not supported (expected owner/name of a dataset on the Hub)."),
        ({"dataset_path": "../../etc", "dataset_kwargs": None}, "dataset_path: ../../etc is not supported (a directory; list its files in data_files)."),
        ({"dataset_kwargs": {"data_files": {"test": "~nobody-at-all/a.csv"}}}, "dataset_kwargs.data_files is not supported (not a valid file name on this system)."),
        ({"dataset_kwargs": {"data_files": {"test": ["a", "b"]}}}, "dataset_kwargs.data_files is not supported (expected one file for the split test)."),
        ({"dataset_kwargs": {"data_files": "https://me:s3cret@h.org/a.csv"}}, "dataset_kwargs.data_files: contains a URL with a user name or password, which would be copied into the results; remove them."),
        ({"dataset_kwargs": {"data_files": {"test": "https://h.org/a.csv?sig=s3cret"}}}, "dataset_kwargs.data_files.test: contains a URL with a key, token or signature, which would be copied into the results; download the file and give its path."),
        ({"metric_list": ["acc"]}, 'metric_list[0]: expected a mapping (key: value), got "acc".'),
        ({"filter_list": [{"name": "x"}]}, 'filter_list[0]: the key "filter" is missing.'),
        ({"fewshot_config": {"samples": "!function u.f"}}, "fewshot_config.samples is not supported (supported: a list of rows)."),
        ({"include": "https://me:s3cret@h.org/a.yaml"}, "include: file not found: https://…@h.org/a.yaml."),
        ({"include": [None]}, "include: file not found: None."),
        ({"include": "."}, "include: file not found: .."),
        ({"group": "g", "task": [{"task": "a"}, 5, "b"]}, "is a group of tasks; give one of its tasks. Tasks: a, 5, b."),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_said_in_one_line(tmp_path, changed, said):
    assert refused(tmp_path, CHOICE | changed) == f"theirs.yaml: {said}"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"generation_kwargs": {"temperature": "warm"}}, 'generation_kwargs.temperature: expected a number or null, got "warm".'),
        ({"generation_kwargs": {"max_gen_toks": -1}}, "generation_kwargs.max_gen_toks: expected at least 1, got -1."),
        ({"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["("]}]}, 'metric_list.exact_match.regexes_to_ignore: "(" is not a regular expression (missing ), unterminated subpattern at position 0).'),
        ({"filter_list": [{"filter": [{"function": "take_first_k", "k": 3}]}]}, "filter_list: the filter take_first_k is not supported (supported: remove_whitespace, lowercase, uppercase, take_first)."),
    ],
)  # fmt: skip
def test_a_way_of_generating_that_cannot_be_meant_is_said_too(tmp_path, changed, said):
    assert refused(tmp_path, WRITTEN | changed) == f"theirs.yaml: {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task: 2024-13-01\n", "not valid YAML (month must be in 1..12)."),
        ("x: " + "9" * 5000, "not valid YAML (Exceeds the limit"),
        ("[" * 1000, "not valid YAML (nested too deeply)."),
        ("x: !!python/object/apply:os.system [id]\n", "line 1: not valid YAML (could not determine a constructor"),
        ("- a\n", "is not an lm-eval task file (expected `key: value` lines)."),
        ("", "is not an lm-eval task file (expected `key: value` lines)."),
        (json.dumps(CHOICE).replace('"x"', "2024-01-01"), "expected text, got 2024-01-01 (for YAML a date); put it in quotes."),
    ],
)  # fmt: skip
def test_yaml_that_does_harm_or_cannot_be_kept_is_refused(tmp_path, text, said):
    assert refused(tmp_path, text).removeprefix("theirs.yaml").lstrip(":, ").startswith(said)


def test_includes_that_double_at_every_step_are_read_once_and_endless_ones_not_at_all(tmp_path):
    for i in range(40):
        write(tmp_path / f"{i}.yaml", {"include": [f"{i + 1}.yaml"] * 2})
    write(tmp_path / "40.yaml", CHOICE)
    assert len(laid_out(tmp_path, {"include": "0.yaml"})[0]) == 2
    for i in range(40, 60):
        write(tmp_path / f"{i}.yaml", {"include": f"{i + 1}.yaml"})
    assert refused(tmp_path, {"include": "0.yaml"}) == "50.yaml: included through more than 50 files."


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("..up.f", "module not found next to the task file"),
        (".tmp.f", "module not found next to the task file"),
        ("f", "module not found next to the task file"),
        ("no_such_module.f", "module not found next to the task file (No module named 'no_such_module')"),
        ("here.nothing", "here.nothing: function not found in "),
        ("broken.f", "broken.py: cannot be imported (SyntaxError: invalid syntax"),
        ("slip.f", "slip.py: cannot be imported (NameError: name 'undefined' is not defined)."),
        ("rows.none", "process_docs (rows.none) fails: TypeError: 'NoneType' object is not iterable"),
        ("rows.numbers", "process_docs (rows.numbers) fails: TypeError: 'int' object is not iterable"),
        ("rows.nothing", "process_docs returns no rows."),
        ("rows.slip", "process_docs (rows.slip) fails: NameError: name 'undefined' is not defined"),
        ("rows.strict", "process_docs (rows.strict) fails: AssertionError: two rows"),
        ("rows.gone", "the first row cannot be rendered (template: 'q' is undefined)."),
    ],
)
def test_a_trusted_function_comes_from_beside_the_file_or_from_a_package(tmp_path, name, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "up.py").write_text("raise SystemExit('outside')\n")
    (tmp_path / "folder" / "here.py").write_text("nothing = 5\n")
    (tmp_path / "folder" / "broken.py").write_text("def\n")
    (tmp_path / "folder" / "slip.py").write_text("undefined\n")
    bodies = {"none": "return None", "numbers": "return [1, 2]", "nothing": "return []", "slip": "return undefined"}
    bodies |= {"strict": "assert len(rows) == 3, 'two rows'", "gone": "return [{'g': 0}]"}
    (tmp_path / "folder" / "rows.py").write_text("".join(f"def {n}(rows): {b}\n" for n, b in bodies.items()))
    text = json.dumps(CHOICE)[:-1] + f", process_docs: !function {name}}}"
    assert said in refused(tmp_path / "folder", text, trust_functions=True)


# ----- templates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% include 'x' %}", "other files cannot be included or imported"),
        ("{% import 'os' as os %}", "other files cannot be included or imported"),
        ("{{ q|random }}", "No filter named 'random'."),
        ("{% do q.append(1) %}", "Encountered unknown tag 'do'."),
        ("{{" + "(" * 500 + "1" + ")" * 500 + "}}", "too deep or too long: RecursionError"),
        ("{% for a in q %}" * 30 + "{% endfor %}" * 30, "too deep or too long: SyntaxError"),
    ],
)
def test_a_template_is_refused_before_any_row_is_read(tmp_path, template, said):
    for key in ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix"):
        assert (
            refused(tmp_path, CHOICE | {key: template}) == f"theirs.yaml: {key} is not a valid Jinja template ({said})."
        )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ '{0.__class__}'.format(q) }}", "access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ cycler.__init__.__globals__.os.system('id') }}", "access to attribute '__init__' of 'type' object is unsafe."),
        ("{{ open('/etc/passwd') }}", "'open' is undefined"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{% for i in range(10**9) %}x{% endfor %}", "OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."),
        ("{{ 'a' * 10**11 }}", "memory limit exceeded"),
        ("{{ q|center(10**11) }}", "memory limit exceeded"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion limit exceeded"),
    ],
)  # fmt: skip
def test_a_template_that_reaches_out_or_grows_is_stopped_at_its_row(tmp_path, template, said):
    told = refused(tmp_path, CHOICE | {"doc_to_text": template})
    assert (
        told.removeprefix(f"{tmp_path.name}/") == f"theirs.yaml: the first row cannot be rendered (template: {said})."
    )


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ (q * 40 ~ 'b')|regex_replace('(a+)+$', '') }}",
        "{{ (q|length + 6) ** (9 ** 9) }}",
    ],
)
def test_a_template_without_end_stops_the_set_and_not_the_run(tmp_path, monkeypatch, template):
    monkeypatch.setattr(templates, "SECONDS", 0.2)
    rows = [{"q": "a", "g": 0}] * 1000
    said = refused(tmp_path, CHOICE | {"doc_to_text": template}, rows)
    assert (
        said.removeprefix(f"{tmp_path.name}/") == "theirs.yaml: its templates take more than 0.2 seconds for 100 rows."
    )


def test_so_does_one_that_is_worked_out_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "SECONDS", 0.2)
    said = refused(tmp_path, CHOICE | {"doc_to_text": "{{ 7 ** (9 ** 9) }}"})
    assert said == "theirs.yaml: doc_to_text is not a valid Jinja template (parsing takes more than 0.2 seconds)."


# ----- rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "row", "choices", "gold"),
    [
        ({}, {"g": 1.0}, ["a", "b"], [1]),  # a column of whole numbers with a hole in it
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
def test_what_is_right_is_what_lm_eval_takes_for_right(tmp_path, changed, row, choices, gold):
    (item,), counts = laid_out(tmp_path, CHOICE | changed, [{"q": "?", **row}])
    assert (item["choices"], item["gold"]) == (choices, gold)
    assert counts["repaired"] == ({} if gold else {"answer not among the options: treated as unknown": 1})


@pytest.mark.parametrize(
    ("changed", "row", "reason"),
    [
        ({"doc_to_choice": [1, 2]}, {}, "doc_to_choice is not a list of texts"),
        ({"doc_to_choice": "q"}, {}, "doc_to_choice is not a list of texts"),
        ({"doc_to_choice": "{{q}}"}, {}, "doc_to_choice is not a list"),
        ({"doc_to_choice": "{{none}}"}, {}, "doc_to_choice is not a list of texts"),
        ({"description": "g"}, {}, "column g is not text"),
        ({"gen_prefix": "g"}, {}, "column g is not text"),
        ({"output_type": "loglikelihood"}, {}, "doc_to_target is not text"),
        ({"output_type": "generate_until", "doc_to_text": 1}, {}, "doc_to_text is a number, which only multiple_choice supports"),
        ({"output_type": "generate_until", "doc_to_choice": None}, {"g": [1, 2]}, "doc_to_target is a list with values that are not text, which no output can equal"),
        ({"output_type": "generate_until", "doc_to_choice": None}, {"g": []}, "doc_to_target is a list, unlike in the first row, which determines the type"),
    ],
)  # fmt: skip
def test_a_row_that_lm_eval_could_not_ask_or_score_is_kept_out_with_the_reason(tmp_path, changed, row, reason):
    items, counts = laid_out(tmp_path, CHOICE | changed, [{"q": "?", "g": 0, **row}])
    assert (items, counts["dropped"]) == ([], {reason: 1})


@pytest.mark.parametrize(
    ("right", "targets"), [(0, ["a"]), (-1, ["b"]), (1.0, ["b"]), (2, None), ("b", ["b"]), (True, ["b"])]
)
def test_a_generated_answer_is_compared_with_the_option_that_theirs_takes(tmp_path, right, targets):
    (item,), counts = laid_out(tmp_path, WRITTEN | {"doc_to_choice": ["a", "b"]}, [{"q": "?", "g": right}])
    assert json.loads(item["extra"].get("targets", "null")) == targets
    assert bool(counts["repaired"]) == (targets is None)


def test_a_number_may_follow_options_that_are_contexts(tmp_path):
    content = CHOICE | {"doc_to_text": "g", "doc_to_target": "year", "doc_to_choice": "{{[q, 'x']}}"}
    (item,), _ = laid_out(tmp_path, content, [{"q": "En", "g": 1, "year": 1975}])
    assert (item["choices"], item["gold"], item["extra"]["continuation"]) == (["En", "x"], [1], " 1975")


TEXTS = st.sampled_from(["?", "", "7", "007", "²", "{x}", "['a']", "a\nb", "=1", "\ud800", "🐈‍⬛ أ"])
CELLS = st.one_of(
    TEXTS, st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.lists(TEXTS, max_size=3), st.lists(st.none()),
    st.dictionaries(st.sampled_from("xy"), TEXTS, max_size=2), st.binary(max_size=2),
)  # fmt: skip
FIELDS = [
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
def test_every_row_is_an_item_or_counted_whatever_its_columns_hold(tmp_path, data):
    fields = {key: data.draw(st.sampled_from(FIELDS)) for key in ("doc_to_text", "doc_to_target")}
    fields["doc_to_choice"] = data.draw(st.sampled_from(["q", "{{[q, g]}}", "g", ["a", "b"], "{{g}}"]))
    fields |= {key: data.draw(st.sampled_from(["", "q", "{{g}}", "x"])) for key in ("description", "gen_prefix")}
    kind = data.draw(st.sampled_from(["multiple_choice", "loglikelihood", "generate_until"]))
    rows = data.draw(st.lists(st.fixed_dictionaries({"q": CELLS, "g": CELLS}), min_size=1, max_size=4))
    said = ""
    try:
        items, counts = laid_out(tmp_path, CHOICE | fields | {"output_type": kind}, rows)
    except DataError as error:
        said = str(error)
    if said:
        assert "theirs.yaml: the first row cannot be rendered (" in said
        return
    assert len(items) + sum(counts["dropped"].values()) == len(rows)
    for item in items:
        assert all(0 <= place < len(item["choices"]) for place in item["gold"])
        assert all(isinstance(text, str) for text in item["extra"].values())
        json.dumps(item, ensure_ascii=False).encode()
