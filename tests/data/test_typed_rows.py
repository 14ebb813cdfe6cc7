"""Texts that look like lists: texts in formats that have lists, and lists in tables, which have none."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vernacular.core.errors import DataError
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.types import accepted_answers

TASK = """
task: own
title: Own
citation: own
protocols: [{protocol}]
item_type: {item_type}
columns: {columns}
languages: {{gl: {{source: {{file: {file}}}}}}}
"""
PRINTED = ["(2, 3)", "[0, 1]", "{1, 2, 4}", '["un", "dous"]', "['un' 'dous']", "array([1, 2])", "{'text': ['a']}"]


def items_of(directory, rows, file, *, columns, item_type, protocol):
    path = directory / file
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        path.write_text("".join("\t".join(line) + "\n" for line in lines))
    task = directory / "own.yaml"
    task.write_text(TASK.format(columns=columns, item_type=item_type, protocol=protocol, file=file))
    return load_items(load_task(task), "gl")[0]


@pytest.mark.parametrize("file", ["own.json", "own.jsonl", "own.parquet"])
def test_a_text_of_a_typed_format_is_one_answer(tmp_path, file):
    rows = [{"q": f"Cal {n}?", "a": text} for n, text in enumerate(PRINTED)]
    kind = {"columns": "{question: q, targets: a}", "item_type": "open_question", "protocol": "generation"}
    assert [accepted_answers(item) for item in items_of(tmp_path, rows, file, **kind)] == [[text] for text in PRINTED]
    rows = [{"good": text, "bad": f"{text}?"} for text in PRINTED]
    kind = {"columns": "{good: good, bad: bad}", "item_type": "pair", "protocol": "minimal_pair"}
    assert [item["choices"] for item in items_of(tmp_path, rows, file, **kind)] == [[t, f"{t}?"] for t in PRINTED]


@pytest.mark.parametrize("file", ["own.json", "own.jsonl", "own.parquet"])
def test_lists_of_a_typed_format_are_lists(tmp_path, file):
    kind = {
        "columns": "{question: q, choices: o, gold: k, gold_format: index}",
        "item_type": "question",
        "protocol": "options",
    }
    [item] = items_of(tmp_path, [{"q": "?", "o": ["[0, 1]", "(0, 1)"], "k": 1}], file, **kind)
    assert (item["choices"], item["gold"]) == (["[0, 1]", "(0, 1)"], [1])
    with pytest.raises(DataError, match="fewer than two options"):
        items_of(tmp_path, [{"q": "?", "o": "[0, 1]", "k": 0}], file, **kind)


def test_a_table_has_lists_as_texts(tmp_path):
    kind = {"columns": "{question: q, targets: a}", "item_type": "open_question", "protocol": "generation"}
    [item] = items_of(tmp_path, [{"q": "?", "a": "['un', 'dous']"}], "own.tsv", **kind)
    assert accepted_answers(item) == ["un", "dous"]


def test_a_sentence_of_a_treebank_is_a_text(tmp_path):
    word = "{}\t{}\tword\tADJ\t_\t_\t{}\t{}\t_\tSpaceAfter=No\n"
    (tmp_path / "own.conllu").write_text(
        "".join(word.format(n, f, n and 1, "dep") for n, f in enumerate("[1,2,", 1))
        + word.format(6, "a", 1, "x").replace("ADJ", "VERB")
        + word.format(7, "]", 1, "x")
        + "\n"
    )
    (tmp_path / "own.yaml").write_text(
        TASK.format(
            columns="{good: original_text, bad: ungrammatical_text}",
            item_type="pair",
            protocol="minimal_pair",
            file="x",
        ).replace("{file: x}", "{treebank: own.conllu, pattern: deleted_word}")
    )
    [item] = load_items(load_task(tmp_path / "own.yaml"), "gl")[0]
    assert item["choices"] == ["[1,2,a]", "[1,2,]"]


@pytest.mark.parametrize("file", ["own.jsonl", "own.parquet"])
def test_document_markers_of_conll_are_no_words(tmp_path, file):
    """A row of one is counted as dropped; one in a sentence is removed from it."""
    columns = "{tokens: t, tags: n, types: [PER]}"
    rows = [{"t": ["-DOCSTART-"], "n": ["O"]}, {"t": ["-DOCSTART-", "Ana", "vén"], "n": ["O", "B-PER", "O"]}]
    [item] = items_of(tmp_path, rows, file, columns=columns, item_type="entities", protocol="entities")
    assert (item["context"], json.loads(item["target"])) == ("Ana vén", {"PER": ["Ana"]})
    counts = load_items(load_task(tmp_path / "own.yaml"), "gl")[1]["rows"]
    assert counts["dropped"] == {"document marker of CoNLL, no sentence": 1}
    assert counts["repaired"] == {"document marker of CoNLL removed from a sentence": 1}


def test_a_boolean_answer_is_a_class_as_task_files_write_it(tmp_path):
    """As BoolQ's; YAML reads the name of a class `True` as true."""
    rows = [{"q": "Cae neve en xullo?", "p": "Nieva.", "a": True}, {"q": "Cae chuvia?", "p": "Chove.", "a": False}]
    columns = "{{context: p, question: q, choices: {{labels: {{{yes}: si, {no}: non}}}}, gold: a, gold_format: text}}"
    for yes, no, file in (
        ("True", "False", "a.jsonl"),
        ("true", "false", "a.parquet"),
        ('"True"', '"False"', "a.json"),
    ):
        own = columns.format(yes=yes, no=no)
        items = items_of(tmp_path, rows, file, columns=own, item_type="passage", protocol="options")
        assert [(item["choices"], item["gold"]) for item in items] == [(["si", "non"], [0]), (["si", "non"], [1])]
