"""Truncated, empty, misplaced and malicious Hub repositories: read completely, or rejected with a short DataError.

Also the columns of all built-in tasks, each missing or corrupt in turn.
"""

import json
import random

import pytest
import yaml
from support.hub_files import jsonl, parquet, question, task_file
from support.hub_server import Client
from support.soak import examples, seed
from vernacular.core.errors import DataError
from vernacular.data.columns import check_columns
from vernacular.data.items import make_items
from vernacular.data.load import WORKFLOW
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


INVALID_CARD = "its dataset card (README.md) cannot be read ("
INVALID_CONFIGURATIONS = "the configurations in its dataset card cannot be read ("
OUTSIDE_REPOSITORY = "lists a file outside of the repository ({}); use a separate source for it."
NO_DATA_FILES = "readable data files not found (loading scripts are not run); list its raw files under files, or try revision: refs/convert/parquet."


@pytest.mark.parametrize(
    ("files", "source", "expected"),
    [
        *((({f"test.{form}": POINTER}, {}, f"SET/test.{form}: is a Git LFS pointer, not the file;")) for form in ("csv", "json", "jsonl", "parquet")),
        ({"test.csv": " <!DOCTYPE html>\n<html>Log in</html>"}, {}, "SET/test.csv: expected csv, got a web page; check whether its URL requires a login."),
        ({"test-0.parquet": SHARD, "test-1.parquet": SHARD[: len(SHARD) // 2]}, {}, "SET/test-1.parquet: damaged or not parquet ("),
        ({"test-0.parquet": SHARD, "test-1.parquet": b""}, {}, "SET/test-1.parquet: damaged or not parquet (Parquet file size is 0 bytes)."),
        ({"test.jsonl": "\n"}, {}, "SET/test.jsonl: the file is empty."),
        ({"test.json": "[]"}, {}, "SET: contains no rows."),
        ({"test.parquet": parquet(question(0)), "test.csv": "a\n1\n"}, {}, 'SET: the split "test" has files of several formats (test.csv and test.parquet); list those of one under files.'),
        (VALID_FILES | {"validation.jsonl": "\n"}, {"few_shot": "validation"}, "SET/validation.jsonl: the file is empty."),
        ({"set.py": "raise SystemExit", "README.md": ""}, {}, f"SET: {NO_DATA_FILES}"),
        ({"data.zip": b"PK\x03\x04"}, {}, f"SET: {NO_DATA_FILES}"),
        ({}, {}, f"SET: {NO_DATA_FILES}"),
        (repository_with_card("configs: [a: {"), {}, f"SET: {INVALID_CARD}expected the node content, but found '<stream end>')."),
        (repository_with_card("a:\n\t- b"), {}, f"SET: {INVALID_CARD}found character '\\t' that cannot start any token)."),
        (repository_with_card("x: !!python/object/apply:os.system [id]"), {}, f"SET: {INVALID_CARD}could not determine a constructor for the tag"),
        (repository_with_card("- a"), {}, f"SET: {INVALID_CARD}repo card metadata block should be a dict)."),
        (repository_with_card("x: " + "[" * 700), {}, f"SET: {INVALID_CARD}maximum recursion depth exceeded"),
        (repository_with_card("configs: all"), {}, f"SET: {INVALID_CONFIGURATIONS}Expected configs to be a list, but got 'all')."),
        (repository_with_card("configs: [5]"), {}, f"SET: {INVALID_CONFIGURATIONS}"),
        (repository_with_card("configs: [{data_files: x}]"), {}, f"SET: {INVALID_CONFIGURATIONS}Each config must include `config_name` field"),
        (repository_with_card("configs: [{config_name: 5, data_files: test.jsonl}]"), {}, f"SET: {INVALID_CONFIGURATIONS}5 is not text; put numbers in quotes)."),
        (repository_with_path("/etc/passwd"), {}, "SET: " + OUTSIDE_REPOSITORY.format("/etc/passwd")),
        (repository_with_path(["test.jsonl", "../../x.csv"]), {}, "SET: " + OUTSIDE_REPOSITORY.format("../../x.csv")),
        (repository_with_path("https://me:s3cret@127.0.0.1/x.csv"), {}, "SET: " + OUTSIDE_REPOSITORY.format("https://…@127.0.0.1/x.csv")),
        (repository_with_path("hf://datasets/me/other/x.csv"), {}, "SET: " + OUTSIDE_REPOSITORY.format("hf://datasets/me/other/x.csv")),
        (repository_with_path([5]), {}, "SET: " + OUTSIDE_REPOSITORY.format("5")),
        (repository_with_card("configs: [{config_name: a, data_dir: ../..}]"), {}, "SET: " + OUTSIDE_REPOSITORY.format("../..")),
        (repository_with_path("[test.jsonl"), {}, 'SET, configuration a: files of the split "test" not found ([test.jsonl).'),
        (VALID_FILES, {"files": {"test": "/etc/passwd"}}, "SET: " + OUTSIDE_REPOSITORY.format("/etc/passwd")),
        (VALID_FILES, {"files": {"test": ["../x.csv"]}}, "SET: " + OUTSIDE_REPOSITORY.format("../x.csv")),
        (VALID_FILES, {"files": {"test": "https://127.0.0.1:9/x.csv"}}, "SET: " + OUTSIDE_REPOSITORY.format("https://127.0.0.1:9/x.csv")),
        (VALID_FILES, {"files": {"tset": "test.jsonl"}}, 'SET: split "test" not found. Did you mean "tset"?'),
        (VALID_FILES | {"x.xyz": "a"}, {"files": {"test": "x.xyz"}}, "SET/x.xyz: unknown file name extension;"),
        (VALID_FILES, {"config": "gl"}, 'SET: configuration "gl" not found (its dataset card lists none).'),
        (repository_with_path("test.jsonl"), {"config": ["a", "b*"]}, 'SET: configuration "b*" not found. Allowed: a.'),
        (VALID_FILES, {"revision": "../../x"}, 'SET: revision "../../x" not found on the Hub.'),
    ],
)  # fmt: skip
def test_unreadable_repository_raises_data_error_with_reason(hub, client, tmp_path, files, source, expected):
    name = f"me/set{len(hub.repositories)}"
    hub.add(name, files)
    message = client.error_message(task_file(tmp_path, "t", {"hub": name, "split": "test", **source}), "gl")
    assert message.startswith(f"t (gl): {expected}".replace("SET", name))
    assert len(message.splitlines()) <= 2
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

UNUSUAL_VALUES = [
    None,
    "",
    " ",
    5,
    -1,
    1.5,
    float("nan"),
    True,
    [],
    {},
    ["x"],
    [None],
    {"text": ["x"]},
    {"a": 1},
    "Z",
    "x" * 300,
    b"\xff",
]


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
        for value in [..., *UNUSUAL_VALUES]  # ...: the column is missing
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
