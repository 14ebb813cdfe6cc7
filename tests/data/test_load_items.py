"""Loading of items: the shipped samples, user-provided files, and the examples in the documentation."""

import functools
import json
import re
from pathlib import Path

import pytest
from support.messages import assert_states
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.load import WORKFLOW, load_items
from vernacular.data.schema import ITEMS
from vernacular.data.tasks import load_task, task_names

DOCS = Path(__file__).parents[2] / "docs" / "tasks.md"
TASKS = task_names([WORKFLOW / "tasks"])
SAMPLES = [
    (path.parent.name, path.name)
    for path in sorted((WORKFLOW / "samples").glob("*/*/"))
    if path.parent.name in TASKS and not path.parent.name.startswith("treebank_")  # tested separately
]


@functools.cache
def included(name: str) -> dict:
    return load_task(TASKS[name])


def write_documented_tasks(directory: Path) -> Path:
    """Write the example files of docs/tasks.md to `directory`, and return it."""
    for name, text in re.findall(r"<!-- my_tasks/(\S+) -->\n```\w+\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL):
        (directory / name).write_text(text, "utf-8")
    return directory


def write(
    directory: Path,
    name: str,
    columns: str,
    rows: str,
    *,
    item_type="question",
    protocols="options",
    language="gl",
    **source,
):
    """Write a task file next to a data file, and return the task."""
    source.setdefault("file", f"{name}.csv")
    (directory / source["file"]).write_text(rows, "utf-8")
    (directory / f"{name}.yaml").write_text(
        f"task: {name}\ntitle: T\ncitation: C\nprotocols: [{protocols}]\nitem_type: {item_type}\ncolumns: {columns}\n"
        f"languages:\n  {language}: {{source: {json.dumps(source)}}}\n",
        "utf-8",
    )
    return load_task(directory / f"{name}.yaml")


@pytest.mark.parametrize(("name", "language"), SAMPLES)
def test_samples_match_the_items_schema(tmp_path, name, language):
    rows, metadata = load_items(included(name), language, source="samples")
    artifacts.write(tmp_path / "items.parquet", ITEMS, rows, metadata)
    assert metadata["rows"]["dropped"] == {}
    assert metadata["rows"]["kept"] == metadata["rows"]["read"] > 0
    assert metadata["source"]["kind"] in ("samples", "file")


def test_samples_of_the_few_shot_split_become_few_shot_examples():
    rows, metadata = load_items(included("openbookqa"), "gl", source="samples", limit=3)
    examples = [row for row in rows if row["few_shot"]]
    assert len(examples) == metadata["few_shot_examples"]["kept"] > 0
    assert len(rows) - len(examples) == metadata["rows"]["evaluated"] == 3


def test_task_without_samples_raises_data_error():
    with pytest.raises(DataError) as raised:
        load_items(included("summarization"), "gl", source="samples", root=Path("/nowhere"))
    assert_states(raised.value, "summarization (gl)", "samples", "data: hub")


def test_unknown_language_error_suggests_the_closest():
    with pytest.raises(ConfigError) as raised:
        load_items(included("belebele"), "glg", source="samples")
    # the complete sentence, once
    assert str(raised.value) == 'task belebele: language "glg" not found. Did you mean "gl"?'


def test_documented_questions_load(tmp_path):
    rows, metadata = load_items(load_task(write_documented_tasks(tmp_path) / "rivers.yaml"), "gl")
    assert [row["item_id"] for row in rows] == ["1", "2"]
    assert rows[0]["choices"] == ["o Tambre", "o Miño", "o Ulla"]
    assert [row["gold"] for row in rows] == [[1], [0]]
    assert rows[0]["category"] == "ríos"
    assert metadata["warnings"] == []
    assert metadata["source"]["file"] == "rivers.csv"
    assert len(metadata["source"]["sha256"]) == 64


def test_documented_sentences_pairs_and_cloze_items_load(tmp_path):
    directory = write_documented_tasks(tmp_path)
    sentences, _ = load_items(load_task(directory / "clitics.yaml"), "gl")
    assert [(row["context"], row["extra"]) for row in sentences] == [
        ("Díxenlle que viñese.", {"label": "1"}),
        ("Lle dixen que viñese.", {"label": "0"}),
    ]
    pairs, _ = load_items(load_task(directory / "agreement.yaml"), "gl")
    assert (pairs[0]["choices"], pairs[0]["gold"]) == (["Os nenos cantan.", "Os nenos canta."], [0])
    assert pairs[0]["cluster_id"] == "nenos"
    cloze_items, _ = load_items(load_task(directory / "gaps.yaml"), "sr")
    assert [row["gold"] for row in cloze_items] == [[0], [1]]
    assert cloze_items[1]["context"] == "Vidim __ na stolu."


def test_documented_task_files_are_under_25_lines(tmp_path):
    files = list(write_documented_tasks(tmp_path).glob("*.yaml"))
    assert len(files) == 5
    assert all(len(file.read_text("utf-8").splitlines()) < 25 for file in files)


def test_unexpected_number_of_rows_is_reported(tmp_path):
    directory = write_documented_tasks(tmp_path)
    text = (directory / "rivers.yaml").read_text("utf-8").replace("expected_rows: 2", "expected_rows: 3")
    (directory / "rivers.yaml").write_text(text, "utf-8")
    _, metadata = load_items(load_task(directory / "rivers.yaml"), "gl")
    [warning] = metadata["warnings"]
    assert_states(warning, "rivers (gl)", "expected 3", "got 2")


def test_dropped_rows_are_counted_by_reason(tmp_path):
    rows = "q,a,b,answer\n¿?,x,y,A\n,x,y,A\n¿?,x,x,A\n¿?,x,,A\n¿?,x,y,E\n¿?,x,z,\n"
    task = write(tmp_path, "odd", "{question: q, choices: [a, b], gold: answer, gold_format: letter}", rows)
    items, metadata = load_items(task, "gl")
    assert metadata["rows"]["dropped"] == {
        "empty question": 1,
        "duplicated options": 1,
        "empty option": 1,
        "answer not among the options": 1,
    }
    assert metadata["rows"]["repaired"] == {"answer withheld by the dataset": 1}
    assert [item["gold"] for item in items] == [[0], []]
    assert [item["source_row"] for item in items] == [0, 5]
    [warning] = [warning for warning in metadata["warnings"] if "empty option" in warning]
    assert_states(warning, "odd (gl)", "1 row", "empty option", "odd.csv, line 5", '"x", ""')


NUMBERED = "{question: q, choices: [a, b, c], gold: answer, gold_format: %s}"


@pytest.mark.parametrize(
    ("gold_format", "answers", "parts"),
    [
        ("index", "123", ("expected 0 to 2", "got 3", "numbered.csv, line 4", "from 1", "gold_format: number")),
        ("number", "201", ("expected 1 to 3", "got 0", "numbered.csv, line 3", "from 0", "gold_format: index")),
        ("index", "0123", None),  # one invalid answer of a correct format
        ("number", "0123", None),
        ("index", "12", None),
    ],
)
def test_answers_that_are_numbered_from_another_number_are_rejected(tmp_path, gold_format, answers, parts):
    rows = "q,a,b,c,answer\n" + "".join(f"{i}?,x,y,z,{answer}\n" for i, answer in enumerate(answers))
    task = write(tmp_path, "numbered", NUMBERED % gold_format, rows)
    if parts is None:
        assert len(load_items(task, "gl")[0]) >= len(answers) - 1
        return
    with pytest.raises(DataError) as raised:
        load_items(task, "gl")
    assert_states(raised.value, "numbered (gl)", f"gold_format: {gold_format}", *parts)


def test_missing_column_error_suggests_the_closest(tmp_path):
    task = write(tmp_path, "typo", "{question: qestion, choices: [a, b]}", "question,a,b\nx,y,z\n")
    with pytest.raises(DataError) as raised:
        load_items(task, "gl")
    # the complete sentence, once
    assert str(raised.value) == 'typo (gl): typo.csv: column "qestion" not found. Did you mean "question"?'


def test_dataset_without_valid_rows_raises_data_error(tmp_path):
    task = write(tmp_path, "none", "{question: q, choices: [a, b]}", "q,a,b\nx,y,y\n")
    with pytest.raises(DataError) as raised:
        load_items(task, "gl")
    assert_states(raised.value, "none (gl)", "no row", "duplicated options (1)")


def test_checksum_mismatch_raises_data_error(tmp_path):
    task = write(tmp_path, "pinned", "{question: q, choices: [a, b]}", "q,a,b\nx,y,z\n", sha256="0" * 64)
    with pytest.raises(DataError) as raised:
        load_items(task, "gl")
    assert_states(raised.value, "pinned (gl)", "pinned.csv", "checksum", "0" * 64)


def test_second_source_is_used_if_the_first_is_missing(tmp_path):
    write_documented_tasks(tmp_path)
    text = (tmp_path / "rivers.yaml").read_text("utf-8")
    (tmp_path / "rivers.yaml").write_text(
        text.replace("{file: rivers.csv}", "[{file: gone.csv}, {file: rivers.csv}]"), "utf-8"
    )
    rows, metadata = load_items(load_task(tmp_path / "rivers.yaml"), "gl")
    assert len(rows) == 2
    assert (metadata["source"]["file"], metadata["source"]["layout"]) == ("rivers.csv", 2)


def test_data_file_given_as_source_uses_the_task_columns(tmp_path):
    write_documented_tasks(tmp_path)
    (tmp_path / "mine.jsonl").write_text(
        '{"number": 7, "question": "?", "option_a": "x", "option_b": "y", "option_c": "z", "answer": "c", "topic": ""}'
    )
    rows, _ = load_items(load_task(tmp_path / "rivers.yaml"), "gl", source=tmp_path / "mine.jsonl")
    assert (rows[0]["item_id"], rows[0]["gold"], rows[0]["category"]) == ("7", [2], None)


def test_few_shot_examples_are_read_from_a_separate_file(tmp_path):
    write_documented_tasks(tmp_path)
    (tmp_path / "shown.csv").write_text((tmp_path / "rivers.csv").read_text("utf-8"), "utf-8")
    text = (tmp_path / "rivers.yaml").read_text("utf-8")
    (tmp_path / "rivers.yaml").write_text(
        text.replace("{file: rivers.csv}", "{file: rivers.csv, few_shot: shown.csv}"), "utf-8"
    )
    rows, metadata = load_items(load_task(tmp_path / "rivers.yaml"), "gl", limit=1)
    assert [row["item_id"] for row in rows if row["few_shot"]] == ["shot/1", "shot/2"]
    assert [row["repeats"] for row in rows if row["few_shot"]] == ["1", "2"]  # also of the item beyond the limit
    assert_states(metadata["warnings"][0], "rivers (gl)", "2 few-shot examples", "evaluated", "shown.csv, line 2", "1.")
    rows, _ = load_items(load_task(tmp_path / "rivers.yaml"), "gl")
    assert [row["item_id"] for row in rows] == ["1", "2", "shot/1", "shot/2"]
    assert [row["few_shot"] for row in rows] == [False, False, True, True]


def test_emoji_right_to_left_text_and_lone_surrogates(tmp_path):
    rows = [
        {"s": "👩‍🔬 مرحبا ‏", "l": 1, "c": "a"},
        {"s": "\ud83d half", "l": 0, "c": "\udc00"},
        {"s": "x" * 200_000, "l": True, "c": None},
    ]
    (tmp_path / "odd.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    task = write(
        tmp_path,
        "odd",
        "{context: s, label: l, category: c}",
        (tmp_path / "odd.jsonl").read_text(),
        item_type="sentence",
        protocols="acceptability",
        file="odd.jsonl",
    )
    items, metadata = load_items(task, "gl")
    artifacts.write(tmp_path / "items.parquet", ITEMS, items, metadata)
    assert "\ufffd" in items[1]["context"]
    assert metadata["rows"]["repaired"] == {"lone surrogates replaced by U+FFFD": 1}
    assert [item["extra"]["label"] for item in items] == ["1", "0", "1"]
