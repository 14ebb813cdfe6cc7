"""Names from outside: which may be in tables and pages, which may be directories, and names that are free."""

import re

import pytest
import yaml
from support import served, tiny
from support.workspace import ROOT
from vernacular.config.load import load
from vernacular.core import validate
from vernacular.core.errors import ConfigError, DataError
from vernacular.core.names import (
    check_readable,
    directory_name,
    displayable,
    free_name,
    portable_problem,
    quoted,
    readable_problem,
)

UNREADABLE = {
    "": "is empty", " ": "is empty", "a\0b": "contains U+0000", "a\nb": "contains U+000A", "a\x1b[0m": "contains U+001B",
    "a\ud800": "contains U+D800", "a\u202eb": "contains U+202E", "a\u2066b": "contains U+2066", "a\u2028": "contains U+2028",
    "a\u200bb": "contains U+200B", "a\u00a0b": "contains U+00A0", " a": "starts or ends with a space", "a ": "starts or ends with a space",
    "{model}": "contains a brace", "}": "contains a brace", "n" * 251: "has 251 characters; expected at most 250",
    None: "is not text", 5: "is not text", ("a",): "is not text",
}  # fmt: skip
DIRECTORY = "is not a directory name (letters, digits, . _ + -; at most 100 characters)"
WINDOWS = "is not a valid directory name on Windows"
NOT_PORTABLE = {
    "../x": DIRECTORY, "..": DIRECTORY, "/etc": DIRECTORY, "a/b": DIRECTORY, "a\\b": DIRECTORY, ".x": DIRECTORY, "-x": DIRECTORY,
    "_x": DIRECTORY, "a:b": DIRECTORY, "a b": DIRECTORY, "é": DIRECTORY, "<b>": DIRECTORY, "=x": DIRECTORY, "n" * 101: DIRECTORY,
    "nul": WINDOWS, "NUL.txt": WINDOWS, "Com1": WINDOWS, "x.": WINDOWS,
}  # fmt: skip
READABLE = [
    "Llama 3 (8B)",
    "meta/llama",
    "=cmd()",
    "__proto__",
    "<script>",
    "é" * 250,
    "لغة",
    "null",
    "tiny (A)",
    "n" * 250,
]
PORTABLE = ["tiny", "llama-3.1_8B+x", "n" * 100, "null", "com10", "a.nul", "0"]


@pytest.mark.parametrize(("name", "problem"), UNREADABLE.items(), ids=range(len(UNREADABLE)))
def test_name_that_is_not_a_line_of_printable_characters_is_refused(name, problem):
    assert readable_problem(name) == portable_problem(name) == problem
    with pytest.raises(DataError) as caught:
        check_readable(name, "x.json", "model")
    assert str(caught.value) == f"x.json: model {quoted(name)} {problem}."
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("name", "problem"), NOT_PORTABLE.items())
def test_name_that_cannot_be_a_directory_is_readable_only(name, problem):
    assert readable_problem(name) is None
    assert portable_problem(name) == problem


@pytest.mark.parametrize("name", [*READABLE, *PORTABLE])
def test_other_names_are_accepted(name):
    assert readable_problem(name) is None
    assert (portable_problem(name) is None) == (name in PORTABLE)


def test_free_name_is_not_in_use_regardless_of_case():
    taken = {"tiny (a)", "tiny (a) (2)"}
    assert [free_name("Tiny (A)", taken), free_name("tiny (a)", taken), free_name("other", taken)] == [
        "Tiny (A) (3)",
        "tiny (a) (4)",
        "other",
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/../b", "a_.._b"),
        ("..", "unnamed"),
        ("nul.gguf", "_nul.gguf"),
        ("x" * 150, "x" * 100),
        ("語" * 100, "語" * 66),
    ],
)
def test_directory_name_of_any_text_can_be_created(text, name, tmp_path):
    assert directory_name(text) == name
    (tmp_path / name).mkdir()


def test_what_a_server_states_is_shown_on_one_line_of_limited_length():
    assert displayable("vLLM 0.9") == "vLLM 0.9"
    assert displayable("a\nb\x1b") == r"a\u000ab\u001b"
    assert displayable("x" * 1000) == "x" * 250


@pytest.mark.parametrize("key", ["models", "external_results"])
def test_schema_of_the_config_has_the_same_rule(key):
    pattern = validate.schema(ROOT / "workflow" / "schemas" / "config.schema.yaml")["properties"][key]["propertyNames"]
    assert all(re.search(pattern["pattern"], name) for name in PORTABLE)
    for name, problem in NOT_PORTABLE.items():
        assert (re.search(pattern["pattern"], name) is None) == (problem == DIRECTORY), name


@pytest.mark.parametrize("name", ["con", "nul", "com1"])
def test_task_that_cannot_be_a_file_is_refused(tmp_path, name):
    """Evaluations are files whose names start with that of the task."""
    text = (ROOT / "workflow" / "tasks" / "cola.yaml").read_text("utf-8")
    (tmp_path / f"{name}.yaml").write_text(text.replace("task: cola", f"task: {name}"), "utf-8")
    config = {"models": {"m": {"source": "./m"}}, "evaluations": [{"task": name, "languages": ["gl"]}]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config | {"tasks": [str(tmp_path)]}))
    with pytest.raises(ConfigError, match=r"config\.yaml") as caught:
        load([tmp_path / "config.yaml"])
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a\u202eb", "a\nb", "n" * 300])
def test_server_with_a_name_that_is_not_readable_is_unavailable(tmp_path, name):
    server = served.Server(tiny.load_model("llama"), "chat", name=name)
    try:
        record = served.record(server, tmp_path)
    finally:
        server.stop()
    assert record.unavailable.startswith(f"model big: the name of the model on the server, {quoted(name)}, ")
