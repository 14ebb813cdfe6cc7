"""Task files: built-in ones are valid, and errors in user-provided ones give file, line and key."""

import pytest
from support.messages import assert_states
from vernacular.core.errors import ConfigError
from vernacular.core.languages import prompts_file
from vernacular.data.load import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import PROMPTS_DIR as PROMPTS
from vernacular.protocols.registry import PROTOCOLS

TASK_FILES = task_names([WORKFLOW / "tasks"])

# languages of the datasets of the four source tools
LANGUAGES = {
    "openbookqa": "gl en ca es pt",
    "belebele": "gl en ca es pt",
    "veritasqa": "gl en ca es",
    "truthfulqa": "gl en",
    "truthfulqa_mc1": "gl en",
    "truthfulqa_mc2": "gl en",
    "xstorycloze": "gl en ca es pt",
    "summarization": "gl",
    "cola": "gl en ca es",
    "calame": "gl pt",
    "global_piqa": "gl en ca es pt",
    "palmx_culture": "ar",
    "palmx_culture_dev": "ar",
    "palmx_islamic": "ar",
    "palmx_islamic_dev": "ar",
    "serbian_cloze": "sr",
    "target_word": "ka",
    "multiblimp": "gl en ca es pt sr ar",
    "blimp": "en",
    "truthfulqa_multi": "en es ca gl",
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_built_in_task_has_expected_languages(name):
    task = load_task(TASK_FILES[name])
    assert set(LANGUAGES[name].split()) <= set(task["languages"])
    assert task["protocols"]


@pytest.mark.parametrize("name", sorted(TASK_FILES))
def test_built_in_tasks_use_current_language_codes_and_sources(name):
    task = load_task(TASK_FILES[name])
    assert "cat" not in task["languages"]
    for entry in task["languages"].values():
        assert all("/" in source.get("hub", "/") for source in entry["source"])
        assert all("{language}" not in str(source) for source in entry["source"])


def test_multiblimp_has_all_its_languages():
    languages = load_task(TASK_FILES["multiblimp"])["languages"]
    assert len(languages) == 101
    assert languages["gl"]["source"][0]["config"] == "glg"
    assert languages["sr"]["source"][0]["config"] == "hbs"  # Serbian is part of Serbo-Croatian


def test_portuguese_xstorycloze_has_its_own_dataset():
    assert load_task(TASK_FILES["xstorycloze"])["languages"]["pt"]["source"][0]["hub"] == "proxectonos/XStoryCloze_pt"


def test_language_columns_override_task_columns():
    columns = load_task(TASK_FILES["cola"])["languages"]["es"]["columns"]
    assert (columns["context"], columns["label"], columns["id"]) == ("Sentence", "Label", "ID|")


TASK = """task: mine
title: Mine
citation: me
protocols: [options]
item_type: question
columns: {question: q, choices: [a, b], gold: g, gold_format: letter}
languages:
  gl: {source: {file: mine.csv}}
"""


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        (
            "item_type: question",
            "item_type: qestion",
            # the complete sentence, once
            ('line 5: item_type: unknown value "qestion". Did you mean "question"?',),
        ),
        ("protocols: [options]", "protocols: [option]", ("line 4", "protocols[0]", '"option"', '"options"')),
        ("title: Mine", "titel: Mine", ("line 2", "titel", "unknown", '"title"')),
        ("item_type: question\n", "", ('"item_type"', "missing")),
        ("task: mine", "task: yours", ("line 1", "task", '"mine"', '"yours"')),
        ("choices: [a, b]", "choises: [a, b]", ("line 6", "columns.choises", "unknown", '"choices"')),
        ("question: q, ", "", ("line 8", "languages.gl", '"question"', "missing", "item_type: question")),
        (", gold_format: letter", "", ("line 8", "languages.gl", '"gold"', '"gold_format"')),
        ("gl: {source: {file: mine.csv}}", "gl: {expected_rows: 3}", ("line 8", "languages.gl", '"source"', "missing")),
        (
            "{file: mine.csv}",
            "{file: mine.csv, hub: a/b}",
            ("line 8", "languages.gl.source", "hub, url, file, treebank", "hub and file"),
        ),
        ("{file: mine.csv}", "{split: test}", ("line 8", "languages.gl.source", "hub, url, file", "none")),
        ("{file: mine.csv}", "{hub: glue}", ("line 8", "languages.gl.source.hub", "owner/name", '"glue"')),
        (
            "{file: mine.csv}",
            "{url: 'https://x/y', sha256: abc}",
            ("line 8", "languages.gl.source.sha256", "64", '"abc"'),
        ),
        ("gl: {", "galician: {", ("line 8", "languages.galician", "invalid", "ISO 639")),
        ("gl: {", "gl: {expected_rows: many, ", ("line 8", "languages.gl.expected_rows", "integer", '"many"')),
        ("columns: {", "columns: {{", ("line 7", "YAML")),
    ],
)
def test_invalid_task_file_raises_config_error(tmp_path, old, new, parts):
    path = tmp_path / "mine.yaml"
    path.write_text(TASK.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        load_task(path, PROTOCOLS)
    assert str(raised.value).startswith(str(path))
    assert_states(raised.value, "mine.yaml", *parts)


def test_title_and_citation_are_optional_but_present_in_built_in_tasks(tmp_path):
    (tmp_path / "mine.yaml").write_text(TASK.replace("title: Mine\ncitation: me\n", ""))
    assert load_task(tmp_path / "mine.yaml")["protocols"] == ["options"]
    assert all(
        load_task(path, PROTOCOLS)["title"] and load_task(path, PROTOCOLS)["citation"] for path in TASK_FILES.values()
    )


def test_language_code_no_is_not_parsed_as_boolean(tmp_path):
    (tmp_path / "mine.yaml").write_text(TASK.replace("gl: {", "no: {"))
    assert list(load_task(tmp_path / "mine.yaml")["languages"]) == ["no"]


def test_user_task_overrides_built_in_task_of_the_same_name(tmp_path):
    (tmp_path / "belebele.yaml").write_text(TASK.replace("mine", "belebele"))
    task_files = task_names([WORKFLOW / "tasks", tmp_path])
    assert load_task(task_files["belebele"])["citation"] == "me"
    assert len(task_files) == len(TASK_FILES)


def test_languages_with_prompt_lines_have_the_words_of_all_their_tasks():
    missing = {
        (task["task"], language, name)
        for task in map(load_task, TASK_FILES.values())
        for language, entry in task["languages"].items()
        if prompts_file(language, PROMPTS)
        for name in entry.get("lacks", ())
    }
    assert missing == set()
