"""The search of a directory for private texts: which texts, in which form, and in which files."""

import json
import os
from pathlib import Path

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vernacular.commands.publish import check_nothing_private
from vernacular.core.errors import UserError
from vernacular.core.tables import write_csv


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A directory, in an environment without keys."""
    for name in [
        name for name in os.environ if any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASS"))
    ]:
        monkeypatch.delenv(name)
    (tmp_path / "folder" / "tables").mkdir(parents=True)
    return tmp_path / "folder"


def problem(folder: Path, text: str, roots=(), sources=(), key_names=()) -> str | None:
    """Return why a directory with a file of this text is private; None if it is not."""
    (folder / "tables" / "notes.txt").write_text(f"a {text} b")
    try:
        check_nothing_private(folder, [Path(root) for root in roots], list(sources), list(key_names))
    except UserError as error:
        start, _, rest = str(error).partition(": contains ")
        return rest.partition(". Nothing is published")[0] if start == "tables/notes.txt" else str(error)
    return None


@pytest.mark.parametrize(
    ("root", "text", "found"),
    [
        ("/srv/lab/run", "/srv/lab/run/config.yaml", "the path /srv/lab/run/"),
        ("/srv/lab/run", "srv-lab-run-model", "a name made of the path /srv/lab/run/"),
        ("/srv/lab/run", "/srv/lab/runs", None),
        ("/srv/lab", "srv-lab-model", "a name made of the path /srv/lab/"),
        ("/srv", "/srv/x", "the path /srv/"),
        ("/srv", "srv-x", None),  # a word, and not a path
        ("/", "a/b", None),
    ],
)
def test_paths_below_a_root_and_names_made_of_them_are_found(folder, root, text, found):
    assert problem(folder, text, roots=["/elsewhere", root]) == found


@pytest.mark.parametrize(
    ("source", "text", "found"),
    [
        ("/data/models/x", "/data/models/x", "the path /data/models/x"),
        ("/models", "/models", None),  # also a part of addresses
        ("org/name", "org/name", None),
        ("http://node7:8000/v1", "node7:8000", "the address http://node7:8000/v1"),
        ("https://10.0.0.7/v1", "https://10.0.0.7/", "the address https://10.0.0.7/v1"),
        ("https://10.0.0.7/v1", "version 10.0.0.7", None),
        ("https://api.example.org/v1", "https://api.example.org/v1", None),
    ],
)
def test_paths_and_private_addresses_of_models_are_found(folder, source, text, found):
    assert problem(folder, text, sources=["org/other", source]) == found


@pytest.mark.parametrize(
    ("name", "key", "key_names", "found"),
    [
        ("LAB_TOKEN", "k" * 16, [], True),
        ("LAB_TOKEN", "k" * 15, [], False),  # "disabled" and the like
        ("lab_secret", "k" * 16, [], True),
        ("TOKENIZERS", "k" * 16, [], False),
        ("CAFE", "k" * 16, [], False),
        ("CAFE", "k" * 8, ["TEA", "CAFE"], True),
        ("CAFE", "k" * 7, ["TEA", "CAFE"], False),
        ("LAB_TOKEN", "k" * 8, ["LAB_TOKEN"], True),
    ],
)
def test_values_of_keys_are_found_from_a_length_on(folder, monkeypatch, name, key, key_names, found):
    monkeypatch.setenv(name, f" {key}\n")
    expected = f"the value of the environment variable {name}" if found else None
    assert problem(folder, key, key_names=key_names) == expected


def test_keys_that_are_not_searched_for_are_returned(folder, monkeypatch):
    monkeypatch.setenv("SHORT", " " * 9 + "k" * 7)
    monkeypatch.setenv("LONG", "k" * 8)
    (folder / "a.txt").write_text("none")
    assert check_nothing_private(folder, [], [], ["SHORT", "LONG", "UNSET"]) == ["SHORT", "UNSET"]


SECRET = """pass"word&<ß>/'x"""  # escaped in other ways in each format


def write_workbook(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append([f"a {SECRET}"])
    book.save(path)


def write_parquet(path: Path, column: list, **metadata) -> None:
    """Compress a text, so that the file does not contain it as it is."""
    table = pa.table({"x": column}).replace_schema_metadata(metadata or None)
    pq.write_table(table, path, compression="zstd", write_statistics=False)
    assert metadata or SECRET.encode() not in path.read_bytes()


FILLED = f"{SECRET[:8]} {SECRET[8:]} {SECRET[:8]} {SECRET[8:]} {SECRET}"  # compressed as repeated parts


FILES = {
    "note.csv": lambda path: write_csv(path, pd.DataFrame({"note": [f"a {SECRET}", "b"]})),
    "lines.jsonl": lambda path: path.write_text(json.dumps({"a": f"b {SECRET}"})),
    "text.jsonl": lambda path: path.write_text(json.dumps({"a": f"b {SECRET}"}, ensure_ascii=False), "utf-8"),
    "page.html": lambda path: path.write_text('"' + json.dumps(SECRET)[1:-1].replace("/", "\\/") + '"'),
    "book.xlsx": write_workbook,
    "text.parquet": lambda path: write_parquet(path, ["a", f"b {FILLED}"]),
    "list.parquet": lambda path: write_parquet(path, [["a"], ["b", FILLED]]),
    "metadata.parquet": lambda path: write_parquet(path, [1, 2], known=json.dumps({"source": SECRET})),
}


@pytest.mark.parametrize("name", FILES)
def test_text_is_found_in_every_format(folder, monkeypatch, name):
    monkeypatch.setenv("CAFE", SECRET)
    FILES[name](folder / "tables" / name)
    with pytest.raises(UserError, match=f"^tables/{name}: contains the value of the environment variable CAFE"):
        check_nothing_private(folder, [], [], ["CAFE"])
    monkeypatch.setenv("CAFE", "another-key")
    assert check_nothing_private(folder, [], [], ["CAFE"]) == []
