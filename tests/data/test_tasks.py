"""Task files: those shipped are sound, and a mistake in one's own is named with file, line and key."""

import pytest
from vernacular.core.errors import ConfigError
from vernacular.data.load import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import FOLDER as PROMPTS
from vernacular.protocols.registry import PROTOCOLS, takes_prompt_lines

SHIPPED = task_names([WORKFLOW / "tasks"])

# the languages of every data set of the four tools
WANTED = {
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


@pytest.mark.parametrize("name", WANTED)
def test_every_set_has_its_languages(name):
    task = load_task(SHIPPED[name])
    assert set(WANTED[name].split()) <= set(task["languages"])
    assert task["protocols"]


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_shipped_task_files_name_no_language_the_old_way(name):
    task = load_task(SHIPPED[name])
    assert "cat" not in task["languages"]
    for entry in task["languages"].values():
        assert all("/" in source.get("hub", "/") for source in entry["source"])
        assert all("{language}" not in str(source) for source in entry["source"])


def test_multiblimp_has_all_its_languages():
    languages = load_task(SHIPPED["multiblimp"])["languages"]
    assert len(languages) == 101
    assert languages["gl"]["source"][0]["config"] == "glg"
    assert languages["sr"]["source"][0]["config"] == "hbs"  # Serbian is inside Serbo-Croatian


def test_portuguese_stories_are_not_the_galician_ones():
    assert load_task(SHIPPED["xstorycloze"])["languages"]["pt"]["source"][0]["hub"] == "proxectonos/XStoryCloze_pt"


def test_language_overrides_columns_one_by_one():
    columns = load_task(SHIPPED["cola"])["languages"]["es"]["columns"]
    assert (columns["context"], columns["label"], columns["id"]) == ("Sentence", "Label", "ID|")


GOOD = """task: mine
title: Mine
citation: me
protocols: [options]
item_type: question
columns: {question: q, choices: [a, b], gold: g, gold_format: letter}
languages:
  gl: {source: {file: mine.csv}}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "item_type: question",
            "item_type: qestion",
            'line 5: item_type: unknown value "qestion". Did you mean "question"?',
        ),
        (
            "protocols: [options]",
            "protocols: [option]",
            'protocols[0]: unknown value "option". Did you mean "options"?',
        ),
        ("title: Mine", "titel: Mine", 'titel: unknown key. Did you mean "title"?'),
        ("item_type: question\n", "", 'the key "item_type" is missing'),
        ("task: mine", "task: yours", 'line 1: task: expected the file\'s name, "mine", got "yours"'),
        ("choices: [a, b]", "choises: [a, b]", 'choises: unknown key. Did you mean "choices"?'),
        ("question: q, ", "", 'columns: "question" is missing, which item_type: question requires'),
        (", gold_format: letter", "", 'columns: "gold" requires "gold_format"'),
        (
            "gl: {source: {file: mine.csv}}",
            "gl: {expected_rows: 3}",
            'line 8: languages.gl: the key "source" is missing',
        ),
        (
            "{file: mine.csv}",
            "{file: mine.csv, hub: a/b}",
            "expected one of hub, url, file, treebank, lm-eval, got hub and file",
        ),
        ("{file: mine.csv}", "{split: test}", "expected one of hub, url, file"),
        ("{file: mine.csv}", "{hub: glue}", 'expected owner/name of a dataset on the Hub, got "glue"'),
        ("{file: mine.csv}", "{url: 'https://x/y', sha256: abc}", 'sha256: expected 64 hexadecimal digits, got "abc"'),
        ("gl: {", "galician: {", "languages.galician: invalid name; expected an ISO 639 code"),
        ("gl: {", "gl: {expected_rows: many, ", 'expected_rows: expected an integer, got "many"'),
        ("columns: {", "columns: {{", "not valid YAML"),
    ],
)
def test_mistake_is_named_in_one_or_two_lines(tmp_path, old, new, said):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as error:
        load_task(path, PROTOCOLS)
    assert said in str(error.value)
    assert str(error.value).startswith(str(path))
    assert len(str(error.value).splitlines()) <= 2


def test_a_title_and_a_citation_may_be_left_out_and_no_shipped_task_does(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD.replace("title: Mine\ncitation: me\n", ""))
    assert load_task(tmp_path / "mine.yaml")["protocols"] == ["options"]
    assert all(
        load_task(path, PROTOCOLS)["title"] and load_task(path, PROTOCOLS)["citation"] for path in SHIPPED.values()
    )


def test_norwegian_is_a_language(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD.replace("gl: {", "no: {"))
    assert list(load_task(tmp_path / "mine.yaml")["languages"]) == ["no"]


def test_ones_own_task_comes_before_a_shipped_one_of_the_same_name(tmp_path):
    (tmp_path / "belebele.yaml").write_text(GOOD.replace("mine", "belebele"))
    names = task_names([WORKFLOW / "tasks", tmp_path])
    assert load_task(names["belebele"])["citation"] == "me"
    assert len(names) == len(SHIPPED)


def test_every_way_to_ask_a_shipped_task_has_its_prompt_lines():
    wordless = {
        (task["task"], language)
        for task in map(load_task, SHIPPED.values())
        for language in task["languages"]
        for protocol in task["protocols"]
        if takes_prompt_lines(protocol, task["item_type"], "default") and not (PROMPTS / f"{language}.yaml").exists()
    }
    assert wordless == set()
