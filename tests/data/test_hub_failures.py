"""Repositories on the Hub as they may be: cut, empty, mislaid, hostile; read whole, or refused in a line or two.

And the layouts of all shipped task files, each with its columns spoilt one by one.
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

CASES = examples(600)  # spoilt rows
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
SHARD = parquet(*[question(i) for i in range(40)])
GOOD = {"test.jsonl": jsonl(question(0))}


@pytest.fixture(scope="module")
def client(hub, tmp_path_factory):
    client = Client(hub, tmp_path_factory.mktemp("hf"))
    yield client
    client.close()


def head(text: str) -> dict:
    """A repository with a card that begins so."""
    return GOOD | {"README.md": f"---\n{text}\n---\n# A set\n"}


def listed(path, **more) -> dict:
    """A repository whose card says where the split test of its only configuration is."""
    config = {"config_name": "a", "data_files": [{"split": "test", "path": path}], **more}
    return head(yaml.safe_dump({"configs": [config]}))


BROKEN = "its dataset card (README.md) cannot be read ("
UNREAD = "the configurations in its dataset card cannot be read ("
OUTSIDE = "lists a file outside of the repository ({}); use a separate source for it."
NOTHING = "readable data files not found (loading scripts are not run); list its raw files under files, or try revision: refs/convert/parquet."


@pytest.mark.parametrize(
    ("files", "source", "said"),
    [
        *((({f"test.{form}": POINTER}, {}, f"SET/test.{form}: is a Git LFS pointer, not the file;")) for form in ("csv", "json", "jsonl", "parquet")),
        ({"test.csv": " <!DOCTYPE html>\n<html>Log in</html>"}, {}, "SET/test.csv: expected csv, got a web page; check whether its URL requires a login."),
        ({"test-0.parquet": SHARD, "test-1.parquet": SHARD[: len(SHARD) // 2]}, {}, "SET/test-1.parquet: damaged or not parquet ("),
        ({"test-0.parquet": SHARD, "test-1.parquet": b""}, {}, "SET/test-1.parquet: damaged or not parquet (Parquet file size is 0 bytes)."),
        ({"test.jsonl": "\n"}, {}, "SET/test.jsonl: the file is empty."),
        ({"test.json": "[]"}, {}, "SET: contains no rows."),
        ({"test.parquet": parquet(question(0)), "test.csv": "a\n1\n"}, {}, 'SET: the split "test" has files of several formats (test.csv and test.parquet); list those of one under files.'),
        (GOOD | {"validation.jsonl": "\n"}, {"few_shot": "validation"}, "SET/validation.jsonl: the file is empty."),
        ({"set.py": "raise SystemExit", "README.md": ""}, {}, f"SET: {NOTHING}"),
        ({"data.zip": b"PK\x03\x04"}, {}, f"SET: {NOTHING}"),
        ({}, {}, f"SET: {NOTHING}"),
        (head("configs: [a: {"), {}, f"SET: {BROKEN}expected the node content, but found '<stream end>')."),
        (head("a:\n\t- b"), {}, f"SET: {BROKEN}found character '\\t' that cannot start any token)."),
        (head("x: !!python/object/apply:os.system [id]"), {}, f"SET: {BROKEN}could not determine a constructor for the tag"),
        (head("- a"), {}, f"SET: {BROKEN}repo card metadata block should be a dict)."),
        (head("x: " + "[" * 700), {}, f"SET: {BROKEN}maximum recursion depth exceeded"),
        (head("configs: all"), {}, f"SET: {UNREAD}Expected configs to be a list, but got 'all')."),
        (head("configs: [5]"), {}, f"SET: {UNREAD}"),
        (head("configs: [{data_files: x}]"), {}, f"SET: {UNREAD}Each config must include `config_name` field"),
        (head("configs: [{config_name: 5, data_files: test.jsonl}]"), {}, f"SET: {UNREAD}5 is not text; put numbers in quotes)."),
        (listed("/etc/passwd"), {}, "SET: " + OUTSIDE.format("/etc/passwd")),
        (listed(["test.jsonl", "../../x.csv"]), {}, "SET: " + OUTSIDE.format("../../x.csv")),
        (listed("https://me:s3cret@127.0.0.1/x.csv"), {}, "SET: " + OUTSIDE.format("https://…@127.0.0.1/x.csv")),
        (listed("hf://datasets/me/other/x.csv"), {}, "SET: " + OUTSIDE.format("hf://datasets/me/other/x.csv")),
        (listed([5]), {}, "SET: " + OUTSIDE.format("5")),
        (head("configs: [{config_name: a, data_dir: ../..}]"), {}, "SET: " + OUTSIDE.format("../..")),
        (listed("[test.jsonl"), {}, 'SET, configuration a: files of the split "test" not found ([test.jsonl).'),
        (GOOD, {"files": {"test": "/etc/passwd"}}, "SET: " + OUTSIDE.format("/etc/passwd")),
        (GOOD, {"files": {"test": ["../x.csv"]}}, "SET: " + OUTSIDE.format("../x.csv")),
        (GOOD, {"files": {"test": "https://127.0.0.1:9/x.csv"}}, "SET: " + OUTSIDE.format("https://127.0.0.1:9/x.csv")),
        (GOOD, {"files": {"tset": "test.jsonl"}}, 'SET: split "test" not found. Did you mean "tset"?'),
        (GOOD | {"x.xyz": "a"}, {"files": {"test": "x.xyz"}}, "SET/x.xyz: unknown file name extension;"),
        (GOOD, {"config": "gl"}, 'SET: configuration "gl" not found (its dataset card lists none).'),
        (listed("test.jsonl"), {"config": ["a", "b*"]}, 'SET: configuration "b*" not found. Allowed: a.'),
        (GOOD, {"revision": "../../x"}, 'SET: revision "../../x" not found on the Hub.'),
    ],
)  # fmt: skip
def test_a_repository_that_cannot_be_read_is_named_with_what_is_wrong(hub, client, tmp_path, files, source, said):
    name = f"me/set{len(hub.repositories)}"
    hub.add(name, files)
    complaint = client.complaint(task_file(tmp_path, "t", {"hub": name, "split": "test", **source}), "gl")
    assert complaint.startswith(f"t (gl): {said}".replace("SET", name))
    assert len(complaint.splitlines()) <= 2
    assert "s3cret" not in complaint


def without_columns() -> dict:
    return {"a.parquet": SHARD, "b.parquet": parquet({"x": 1})}


@pytest.mark.parametrize(
    ("files", "source", "kept", "dropped"),
    [
        (without_columns(), {"files": {"test": "*.parquet"}}, 40, {"empty question": 1}),
        (head("license: 2024-01-01"), {}, 1, {}),
        (GOOD | {"README.md": "---\nlicense: café\n---\n".encode("latin-1")}, {}, 1, {}),
        ({"dír [x] 'q'/test.jsonl": jsonl(question(0))}, {}, 1, {}),
        ({"test.parquet": parquet(question(0, question_stem=5))}, {}, 1, {}),
        ({"test.jsonl": jsonl(question(0, choices={"A": "x", "B": "y"}), question(1))}, {}, 1, {"choices is a mapping, not text": 1}),
        ({"test.jsonl": jsonl(question(0, question_stem=None), question(1, choices=None), question(2, id=None))}, {}, 1, {"empty question": 1, "fewer than two options": 1}),
        ({"test.jsonl": jsonl(*[question(i, answerKey=key) for i, key in enumerate(("Z", "un", 7, -1, ["A", "E"], "A"))])}, {}, 1, {"answer not among the options": 5}),
    ],
)  # fmt: skip
def test_odd_rows_and_odd_names_cost_no_other_row(hub, client, tmp_path, files, source, kept, dropped):
    name = f"me/set{len(hub.repositories)}"
    hub.add(name, files)
    _, metadata = client.load(task_file(tmp_path, "t", {"hub": name, "split": "test", **source}), "gl")
    assert (metadata["rows"]["kept"], metadata["rows"]["dropped"]) == (kept, dropped)


# ----- the shipped layouts -------------------------------------------------------------------------------------------

ODD = [
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


def layouts() -> list[tuple[str, dict, dict, list[dict]]]:
    """(name, task, language's entry, rows) of every shipped task that has samples in the upstream columns."""
    found = []
    for file in sorted((WORKFLOW / "tasks").glob("*.yaml")):
        task = load_task(file)
        for language, entry in task["languages"].items():
            samples = sorted((WORKFLOW / "samples" / task["task"] / language).glob("*"))
            if samples and "treebank" not in entry["source"][0] and samples[0].suffix != ".conllu":
                found.append((f"{task['task']}.{language}", task, entry, read_rows(samples[0])[:2]))
    return found


@pytest.mark.fuzz
def test_every_shipped_layout_with_a_column_gone_or_spoilt_is_named_or_counted():
    cases = [
        (name, task, entry, rows, column, odd)
        for name, task, entry, rows in layouts()
        for column in rows[0]
        for odd in [..., *ODD]  # ...: the column is gone
    ]
    assert len({case[0] for case in cases}) > 20
    for name, task, entry, rows, column, odd in random.Random(seed(2)).sample(cases, min(CASES, len(cases))):
        spoilt = [{**row, "_config": ""} for row in rows]
        for row in spoilt if odd is ... else spoilt[:1]:
            row.pop(column) if odd is ... else row.update({column: odd})
        said = ""
        try:
            check_columns(spoilt, entry["columns"], name)
        except DataError as error:
            said = str(error)
        if said:
            assert f'{name}: column "' in said, (name, column, odd)
            continue
        items, counts = make_items(spoilt, task["item_type"], entry["columns"])
        assert counts["kept"] + sum(counts["dropped"].values()) == len(rows), (name, column, odd)
        for item in items:
            assert all(0 <= place < len(item["choices"]) for place in item["gold"]), (name, column, odd)
            json.dumps(item, ensure_ascii=False).encode()
