"""All mistakes of a config are reported at once, each with its file, line and key; none that follows from another."""

from pathlib import Path

import pytest
from vernacular.config.load import load
from vernacular.core.errors import ConfigError

MISTAKES = """\
models:
  one: {source: ./one, dtype: flaot32, devise: cpu}
  two: {base: one, adapter: ./two}
  three: {source: ./three}
evaluations:
  - {task: cola, languages: [xx, gl, yy], shots: 5, data: samples}
  - {taks: cola}
  - {task: colla}
  - {task: openbookqa, languages: [gl], protocols: [leters], data: samples}
  - {task: openbookqa, languages: [gl], protocols: [options, cloze], styles: [simil-eval], data: samples}
similarity: {encoders: {gl: "./encoder"}}
store: ./config.yaml
externals: {}
"""

EXPECTED = [
    'line 2: models.one.devise: unknown key. Did you mean "device"?',
    'line 2: models.one.dtype: unknown value "flaot32". Did you mean "float32"?',
    'line 7: evaluations[1].taks: unknown key. Did you mean "task"?',
    'line 9: evaluations[3].protocols[0]: unknown value "leters". Did you mean "letters"?',
    'line 13: externals: unknown key. Did you mean "external_results"?',
    'line 6: evaluations[0].languages: language "xx" not found in cola.',
    'line 6: evaluations[0].languages: language "yy" not found in cola.',
    "line 6: evaluations[0].shots: few-shot examples are not supported by acceptability; remove shots.",
    'line 8: evaluations[2].task: task "colla" not found. Did you mean "cola"?',
    'line 10: evaluations[4].protocols: protocol "cloze" is not supported by openbookqa.',
    'line 10: evaluations[4].styles: style "simil-eval" is not supported by options.',
    'line 12: store: expected a directory, got "./config.yaml":',
]


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def messages(*paths: Path, overrides: dict | None = None) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(list(paths), overrides)
    return str(error.value).splitlines()


def write(text: str, name: str = "config.yaml") -> Path:
    Path(name).write_text(text, "utf-8")
    return Path(name)


def test_all_mistakes_are_reported_at_once(directory):
    lines = messages(write(MISTAKES))
    assert len(lines) == len(EXPECTED), lines
    for expected, line in zip(EXPECTED, lines, strict=True):
        assert line.startswith(f"config.yaml, {expected}")


def test_mistakes_of_several_files_name_their_file(directory):
    models = write("models: {one: {source: ./one, devise: cpu}}\n", "models.yaml")
    evaluations = write("evaluations:\n  - {task: colla}\n", "evaluations.yaml")
    lines = messages(models, evaluations, overrides={"data": "sample"})
    assert [line.split(": ")[0] for line in lines] == ["models.yaml, line 1", "--config", "evaluations.yaml, line 2"]


def test_long_lists_of_mistakes_are_cut(directory):
    entries = "".join(f"  - {{task: none{number}}}\n" for number in range(30))
    lines = messages(write(f"models: {{one: {{source: ./one}}}}\nevaluations:\n{entries}"))
    assert len(lines) == 21
    assert lines[-1] == "and 10 more mistakes"


def test_missing_keys_of_a_mapping_are_one_message(directory):
    lines = messages(write("data: samples\n"))
    assert lines == ['config.yaml: the keys "models" and "evaluations" are missing.']


GOOD = """\
models: {one: {source: ./one}}
evaluations:
  - {task: cola, languages: [gl]}
  - {task: global_piqa, languages: [gl], limit: 5}
data: samples
"""


def test_limit_of_the_run_applies_to_all_evaluations(directory):
    path = write(GOOD)
    assert [evaluation.limit for evaluation in load([path]).evaluations.values()] == [None, 5]
    limited = load([path], {"limit": 10})
    assert [evaluation.limit for evaluation in limited.evaluations.values()] == [10, 5]
    assert [evaluation.items_stem for evaluation in limited.evaluations.values()] == [
        "cola.gl.limit10",
        "global_piqa.gl.limit5",
    ]


def test_output_is_a_directory_of_its_own(directory):
    path = write(GOOD)
    assert load([path]).output == "results"
    assert load([path], {"output": "~/mine/"}).output == str(Path("~/mine").expanduser())
    assert load([path], {"output": "mine", "store": "mine/store"}).store == "mine/store"
    for value, expected in [
        (".", "contains the working directory"),
        ("..", "contains the working directory"),
        ("resources/mine", "outside of resources/"),
        ("config.yaml", "is not a directory"),
        ("a{b}", "without braces"),
    ]:
        (line,) = messages(path, overrides={"output": value})
        assert line.startswith("--config: output: expected a ")
        assert expected in line
    (line,) = messages(path, overrides={"output": "mine", "store": "mine/summary"})
    assert line.startswith("--config: store: expected mine/store or a directory outside of mine/")


def test_options_of_the_order_test(directory):
    """They need all items, and one of them the other; a protocol without them reports them by name."""
    entries = [
        "{task: flores, languages: [gl], order_permutations: 5, limit: 10}",
        "{task: flores, languages: [en], order_shards: 5}",
        "{task: cola, languages: [gl], order_permutations: 5}",
        "{task: openbookqa, languages: [gl], protocols: [options], min_k_plus_plus: true}",
    ]
    text = "models: {one: {source: ./one}}\ndata: samples\nevaluations:\n" + "".join(f"  - {e}\n" for e in entries)
    lines = messages(write(text))
    assert [line.partition(": evaluations")[2] for line in lines] == [
        "[0].order_permutations: needs all items in their published order; remove limit.",
        "[1].order_shards: no effect without order_permutations; set it, or remove order_shards.",
        "[2].order_permutations: not supported by acceptability, only by text; remove it.",
        "[3].min_k_plus_plus: not supported by options, only by acceptability and minimal_pair and text; remove it.",
    ]
    valid = load([write(text.replace(", limit: 10", "").split("  - {task: flores, languages: [en]")[0])])
    [evaluation] = valid.evaluations.values()
    assert dict(evaluation.options) == {"order_permutations": 5}
