"""Truncated, empty, misplaced and malicious Hub repositories: read completely, or rejected with a short DataError.

Also the columns of all built-in tasks, each missing or corrupt in turn.
"""

import json
import random

import pytest
import yaml
from support.hub_files import jsonl, parquet, question, task_file
from support.hub_server import Client
from support.malformed import VALUES
from support.messages import assert_states
from support.soak import examples, seed
from vernacular.core.errors import DataError
from vernacular.data.columns import check_columns
from vernacular.data.load import WORKFLOW, make_items
from vernacular.data.readers import read_rows
from vernacular.data.tasks import load_task

N_CASES = examples(600)  # corrupt rows
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
SHARD = parquet(*[question(i) for i in range(40)])
VALID_FILES = {"test.jsonl": jsonl(question(0))}


@pytest.fixture(scope="module")
def client(hub, tmp_path_factory):
    client = Client(hub, tmp_path_factory.mktemp("hf"))
    yield client
    client.close()


def repository_with_card(text: str) -> dict:
    """Return the files of a repository whose card has the metadata `text`."""
    return VALID_FILES | {"README.md": f"---\n{text}\n---\n# A set\n"}


def repository_with_path(path, **options) -> dict:
    """Return the files of a repository whose card gives the path of the split test of its only configuration."""
    config = {"config_name": "a", "data_files": [{"split": "test", "path": path}], **options}
    return repository_with_card(yaml.safe_dump({"configs": [config]}))


# parts of the message, in order; SET: name of the repository
INVALID_CARD = ("SET", "card", "README.md")
INVALID_CONFIGURATIONS = ("SET", "configurations", "card")
NO_DATA_FILES = ("SET", "data files", "not found", "refs/convert/parquet")


def outside_repository(path: str) -> tuple[str, ...]:
    return "SET", "outside", f"({path})"


@pytest.mark.parametrize(
    ("files", "source", "parts"),
    [
        *(
            ({f"test.{form}": POINTER}, {}, (f"SET/test.{form}:", "Git LFS"))
            for form in ("csv", "json", "jsonl", "parquet")
        ),
        ({"test.csv": " <!DOCTYPE html>\n<html>Log in</html>"}, {}, ("SET/test.csv", "expected csv", "web page")),
        (
            {"test-0.parquet": SHARD, "test-1.parquet": SHARD[: len(SHARD) // 2]},
            {},
            ("SET/test-1.parquet", "not parquet"),
        ),
        ({"test-0.parquet": SHARD, "test-1.parquet": b""}, {}, ("SET/test-1.parquet", "not parquet", "0 bytes")),
        ({"test.jsonl": "\n"}, {}, ("SET/test.jsonl", "empty")),
        ({"test.json": "[]"}, {}, ("SET:", "no rows")),
        (
            {"test.parquet": parquet(question(0)), "test.csv": "a\n1\n"},
            {},
            ("SET", '"test"', "formats", "test.csv", "test.parquet"),
        ),
        (VALID_FILES | {"validation.jsonl": "\n"}, {"few_shot": "validation"}, ("SET/validation.jsonl", "empty")),
        ({"set.py": "raise SystemExit", "README.md": ""}, {}, NO_DATA_FILES),
        ({"data.zip": b"PK\x03\x04"}, {}, NO_DATA_FILES),
        ({}, {}, NO_DATA_FILES),
        (repository_with_card("configs: [a: {"), {}, (*INVALID_CARD, "node content")),
        (repository_with_card("a:\n\t- b"), {}, (*INVALID_CARD, "'\\t'")),
        (repository_with_card("x: !!python/object/apply:os.system [id]"), {}, (*INVALID_CARD, "constructor")),
        (repository_with_card("- a"), {}, (*INVALID_CARD, "should be a dict")),
        (repository_with_card("x: " + "[" * 700), {}, (*INVALID_CARD, "recursion")),
        (repository_with_card("configs: all"), {}, (*INVALID_CONFIGURATIONS, "'all'")),
        (repository_with_card("configs: [5]"), {}, INVALID_CONFIGURATIONS),
        (repository_with_card("configs: [{data_files: x}]"), {}, (*INVALID_CONFIGURATIONS, "config_name")),
        (
            repository_with_card("configs: [{config_name: 5, data_files: test.jsonl}]"),
            {},
            (*INVALID_CONFIGURATIONS, "5", "not text"),
        ),
        (repository_with_path("/etc/passwd"), {}, outside_repository("/etc/passwd")),
        (repository_with_path(["test.jsonl", "../../x.csv"]), {}, outside_repository("../../x.csv")),
        (
            repository_with_path("https://me:s3cret@127.0.0.1/x.csv"),
            {},
            outside_repository("https://…@127.0.0.1/x.csv"),
        ),
        (repository_with_path("hf://datasets/me/other/x.csv"), {}, outside_repository("hf://datasets/me/other/x.csv")),
        (repository_with_path([5]), {}, outside_repository("5")),
        (repository_with_card("configs: [{config_name: a, data_dir: ../..}]"), {}, outside_repository("../..")),
        (
            repository_with_path("[test.jsonl"),
            {},
            ("SET", "configuration a", 'split "test"', "not found", "[test.jsonl"),
        ),
        (VALID_FILES, {"files": {"test": "/etc/passwd"}}, outside_repository("/etc/passwd")),
        (VALID_FILES, {"files": {"test": ["../x.csv"]}}, outside_repository("../x.csv")),
        (
            VALID_FILES,
            {"files": {"test": "https://127.0.0.1:9/x.csv"}},
            outside_repository("https://127.0.0.1:9/x.csv"),
        ),
        (VALID_FILES, {"files": {"tset": "test.jsonl"}}, ("SET", 'split "test"', "not found", '"tset"')),
        (VALID_FILES | {"x.xyz": "a"}, {"files": {"test": "x.xyz"}}, ("SET/x.xyz", "unknown", "extension")),
        (VALID_FILES, {"config": "gl"}, ("SET", 'configuration "gl"', "not found", "none")),
        (repository_with_path("test.jsonl"), {"config": ["a", "b*"]}, ("SET", 'configuration "b*"', "not found", "a.")),
        (VALID_FILES, {"revision": "../../x"}, ("SET", 'revision "../../x"', "not found")),
    ],
)  # fmt: skip
def test_unreadable_repository_raises_data_error_with_reason(hub, client, tmp_path, files, source, parts):
    name = f"me/set{len(hub.repositories)}"
    hub.add(name, files)
    message = client.error_message(task_file(tmp_path, "t", {"hub": name, "split": "test", **source}), "gl")
    assert_states(message, "t (gl)", *(part.replace("SET", name) for part in parts))
    assert "s3cret" not in message


def files_with_different_columns() -> dict:
    return {"a.parquet": SHARD, "b.parquet": parquet({"x": 1})}


@pytest.mark.parametrize(
    ("files", "source", "n_kept", "dropped"),
    [
        (files_with_different_columns(), {"files": {"test": "*.parquet"}}, 40, {"empty question": 1}),
        (repository_with_card("license: 2024-01-01"), {}, 1, {}),
        (VALID_FILES | {"README.md": "---\nlicense: café\n---\n".encode("latin-1")}, {}, 1, {}),
        ({"dír [x] 'q'/test.jsonl": jsonl(question(0))}, {}, 1, {}),
        ({"test.parquet": parquet(question(0, question_stem=5))}, {}, 1, {}),
        ({"test.jsonl": jsonl(question(0, choices={"A": "x", "B": "y"}), question(1))}, {}, 1, {"choices is a mapping, not text": 1}),
        ({"test.jsonl": jsonl(question(0, question_stem=None), question(1, choices=None), question(2, id=None))}, {}, 1, {"empty question": 1, "fewer than two options": 1}),
        ({"test.jsonl": jsonl(*[question(i, answerKey=key) for i, key in enumerate(("Z", "un", 7, -1, ["A", "E"], "A"))])}, {}, 1, {"answer not among the options": 5}),
    ],
)  # fmt: skip
def test_unusual_rows_and_file_names_do_not_affect_other_rows(hub, client, tmp_path, files, source, n_kept, dropped):
    name = f"me/set{len(hub.repositories)}"
    hub.add(name, files)
    _, metadata = client.load(task_file(tmp_path, "t", {"hub": name, "split": "test", **source}), "gl")
    assert (metadata["rows"]["kept"], metadata["rows"]["dropped"]) == (n_kept, dropped)


# ----- columns of built-in tasks -------------------------------------------------------------------------------------


def sample_rows() -> list[tuple[str, dict, dict, list[dict]]]:
    """Return (name, task, entry of the language, rows) of each built-in task with samples in the upstream columns."""
    samples = []
    for file in sorted((WORKFLOW / "tasks").glob("*.yaml")):
        task = load_task(file)
        for language, entry in task["languages"].items():
            files = sorted((WORKFLOW / "samples" / task["task"] / language).glob("*"))
            if files and "treebank" not in entry["source"][0] and files[0].suffix != ".conllu":
                samples.append((f"{task['task']}.{language}", task, entry, read_rows(files[0])[:2]))
    return samples


@pytest.mark.fuzz
def test_missing_or_corrupt_columns_of_built_in_tasks_are_reported():
    cases = [
        (name, task, entry, rows, column, value)
        for name, task, entry, rows in sample_rows()
        for column in rows[0]
        for value in [..., b"\xff", *VALUES]  # ...: the column is missing
    ]
    assert len({case[0] for case in cases}) > 20
    for name, task, entry, rows, column, value in random.Random(seed(2)).sample(cases, min(N_CASES, len(cases))):
        corrupt_rows = [{**row, "_config": ""} for row in rows]
        for row in corrupt_rows if value is ... else corrupt_rows[:1]:
            row.pop(column) if value is ... else row.update({column: value})
        message = ""
        try:
            check_columns(corrupt_rows, entry["columns"], name)
        except DataError as error:
            message = str(error)
        if message:
            assert f'{name}: column "' in message, (name, column, value)
            continue
        items, counts = make_items(corrupt_rows, task["item_type"], entry["columns"])
        assert counts["kept"] + sum(counts["dropped"].values()) == len(rows), (name, column, value)
        for item in items:
            assert all(0 <= index < len(item["choices"]) for index in item["gold"]), (name, column, value)
            json.dumps(item, ensure_ascii=False).encode()
