"""Malformed and malicious data files: read completely, or rejected with an error that gives the location."""

import gzip
import io
import json
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.messages import assert_states
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.load import load_items, make_items
from vernacular.data.readers import read_rows
from vernacular.data.schema import ITEMS
from vernacular.data.tasks import load_task

ONE_ROW = [{"a": "1", "b": "2"}]
TWO_ROWS = [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
DEEP_LIST = "[" * 100_000 + "]" * 100_000  # beyond the recursion limit of every Python
LONG_NUMBER = 10**4 * "9"


def write(directory, name, content):
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zip_archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        # without ZipInfo, the archive would contain the current time
        file.writestr(zipfile.ZipInfo("a.csv"), "a,b\n1,2\n")
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "a,b\r1,2\r3,4\r", TWO_ROWS),
        ("a.csv", "a,b\r\n1,2\n3,4\r", TWO_ROWS),
        ("a.csv", "\n\na;b\n1;2\n", ONE_ROW),
        ("a.csv", "a;b\r1;2\r", ONE_ROW),
        ("a.csv", '"a,x";b\n1;2\n', [{"a,x": "1", "b": "2"}]),
        ("a.csv", "a\n1\u20282\n", [{"a": "1\u20282"}]),
        ("a.csv", "name\n1\0002\n", [{"name": "1\0002"}]),
        ("A.CSV.GZ", gzip.compress(b"a,b\n1,2\n", mtime=0), ONE_ROW),
        ("a.tsv", "a\tb\r1\t2\r3\t4\r", TWO_ROWS),
        ("a.jsonl", '{"a": "1", "b": "2"}\r{"a": "3", "b": "4"}\r', TWO_ROWS),
        ("a.jsonl", '{"a": "1", "b": "2"}\r\n\r\n{"a": "3", "b": "4"}', TWO_ROWS),
        ("a.json", '[{"a": "\\ud83d\\ude00 \\u0000", "b": "e\u0301\u202e"}]', [{"a": "😀 \0", "b": "e\u0301\u202e"}]),
    ],
)
def test_unusual_line_endings_and_delimiters_are_read(tmp_path, name, content, rows):
    assert read_rows(write(tmp_path, name, content)) == rows


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), ("a.csv", "UTF-8", "UTF-16")),
        ("a.tsv", "a\tb\n1\t2\n".encode("utf-16-le"), ("a.tsv", "UTF-8", "UTF-16")),
        ("a.csv", b"a\n1\n\xe9\n", ("a.csv, line 3", "UTF-8", "byte 4")),
        ("a.csv", zip_archive(), ("a.csv", "expected csv", "zip", "as CSV")),
        ("a.json", b"\xef\xbb\xbf \n", ("a.json", "empty")),
        ("a.jsonl", "", ("a.jsonl", "empty")),
        ("a.csv", ",\n1,2\n", ("a.csv", "first line", "column names")),
        ("a.csv", 'a,b\n"x\ny",1\n\n1,2,3\n', ("a.csv, line 5", "row 3", "expected 2", "got 3")),
        ("a.csv", 'a,b\n1,2\n"3,4\n5,6\n', ("a.csv, line 4", "quotation mark", "row", "line 3")),
        ("a.tsv", 'a\tb\n"x\t1\n2\n', ("a.tsv, line 3", "row 3", "expected 2", "got 1")),
        ("a.jsonl", '{"a": 1}\n' * 6 + '{"a": 1, "a": 2}', ("a.jsonl, line 7", "JSON", "duplicate", '"a"')),
        ("a.json", DEEP_LIST, ("a.json", "JSON", "nested")),
        ("a.jsonl", f'{{"a": {"[" * 200}{"]" * 200}}}', ("a.jsonl, line 1", "nested")),
        ("a.parquet", "a,b\n1,2\n", ("a.parquet", "not parquet", "magic bytes")),
    ],
)
def test_unreadable_file_raises_data_error_with_line(tmp_path, name, content, parts):
    with pytest.raises(DataError) as raised:
        read_rows(write(tmp_path, name, content))
    location, *reason = parts
    assert_states(raised.value, f"{tmp_path}/{location}:", *reason)


def test_damaged_gzip_raises_data_error(tmp_path):
    data = gzip.compress("".join(f"{i * 7919},1\n" for i in range(300)).encode(), mtime=0)
    for index in range(10, len(data), 97):
        damaged = bytearray(data)
        damaged[index] ^= 0x55
        with pytest.raises(DataError) as raised:
            read_rows(write(tmp_path, "a.csv.gz", bytes(damaged)))
        assert_states(raised.value, f"{tmp_path}/a.csv.gz", "damaged", "csv")


def test_path_that_is_not_a_readable_file_raises_data_error(tmp_path):
    (tmp_path / "directory.parquet").mkdir()
    os.symlink(tmp_path / "loop.csv", tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for name, reason in (
        ("directory.parquet", "got a directory"),
        ("loop.csv", "symbolic links"),
        ("pipe.csv", "regular file"),
        ("x" * 300 + ".csv", "name too long"),
    ):
        with pytest.raises(DataError) as raised:
            read_rows(tmp_path / name)
        assert_states(raised.value, f"{tmp_path / name}:", reason)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_raises_data_error(tmp_path):
    write(tmp_path, "a.csv", "a\n1\n").chmod(0)
    with pytest.raises(DataError) as raised:
        read_rows(tmp_path / "a.csv")
    assert_states(raised.value, f"{tmp_path}/a.csv", "Permission denied")


def test_parquet_with_unusual_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"old": ["é".encode()], "picture": [b"\xff\xfe"]}), path)
    assert read_rows(path) == [{"old": "é", "picture": b"\xff\xfe"}]
    gzipped_path = write(tmp_path, "b.parquet.gz", gzip.compress(path.read_bytes()))
    assert read_rows(gzipped_path) == read_rows(path)
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), path)
    with pytest.raises(DataError) as raised:
        read_rows(path)
    assert_states(raised.value, str(path), "duplicate", '"a"')
    invalid_text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"a": invalid_text}), path)
    with pytest.raises(DataError) as raised:
        read_rows(path)
    assert_states(raised.value, str(path), "damaged", "parquet")


QUESTION = {"question": "q", "choices": "c", "gold": "g", "gold_format": "index"}
SENTENCE = {"context": "s", "label": "l"}


def convert(row: dict, item_type="question", **columns):
    """Return the texts of the item, or the reason why the row is dropped."""
    items, counts = make_items([row], item_type, (QUESTION if item_type == "question" else SENTENCE) | columns)
    assert counts["kept"] + sum(counts["dropped"].values()) == 1
    if not items:
        [first] = counts["first_dropped"].values()
        assert first.startswith("row 0 (counted from 0): ")
        return next(iter(counts["dropped"]))
    return (items[0]["choices"], items[0]["gold"]) if item_type == "question" else items[0]["context"]


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ("['a' 'b, c']", (["a", "b, c"], [1])),  # as pandas writes an array
        ("['a'\n \"b's\"]", (["a", "b's"], [1])),
        ("['a' 'b', 'c']", (["ab", "c"], [1])),  # not an array: Python concatenates adjacent strings
        ('["a", "\\ud800"]', (["a", "\ufffd"], [1])),
        ([1, True], (["1", "True"], [1])),
        ([b"\xc3\xa9", "x"], (["é", "x"], [1])),
        ([str(i) for i in range(30)], ([str(i) for i in range(30)], [1])),
        (["a\u0301", "\u00e1"], "options that look the same"),
        (["a\u200b", "a"], "options that look the same"),
        # Persian: other letters
        (["\u06cc\u200c\u062e", "\u06cc\u062e"], (["\u06cc\u200c\u062e", "\u06cc\u062e"], [1])),
        (["a", {"b": "c"}], "empty option"),
        ([["a"], ["b"]], (["a", "b"], [1])),
        ([[{"x": 1}], "b"], "choices is a mapping, not text"),
        (DEEP_LIST, "fewer than two options"),
        (f"[{LONG_NUMBER}]", "fewer than two options"),
        ("['a', 'b'", "fewer than two options"),
        ("{'a': 'b'}", "choices is a mapping, not text"),
        (["a"], "fewer than two options"),
        (["a", " a "], "duplicated options"),
        (["a", float("nan")], "empty option"),
        (None, "fewer than two options"),
    ],
)
def test_option_values_are_converted_or_dropped(choices, expected):
    assert convert({"q": "?", "c": choices, "g": 1}) == expected


@pytest.mark.parametrize(
    ("gold_format", "gold", "expected"),
    [
        ("index", "1.0", [1]),
        ("index", "-1.0", []),
        ("number", "2.00", [1]),
        ("number", "٢", [1]),
        ("number", LONG_NUMBER, None),
        ("index", "--1", None),
        ("index", 1.5, None),
        ("index", float("inf"), None),
        ("index", True, None),
        ("letter", {"x": 1}, None),
        ("labels", [False, True], [1]),
        ("labels", None, []),
        ("labels", [0, None], None),
        ("text", "…", None),
        ("text", "b!", [1]),
    ],
)
def test_gold_values_are_converted_or_dropped(gold_format, gold, expected):
    item = convert({"q": "?", "c": ["a", "b."], "g": gold}, gold_format=gold_format)
    assert item == ("answer not among the options" if expected is None else (["a", "b."], expected))


def test_gold_text_matching_two_options_is_dropped():
    row = {"q": "?", "c": ["si.", "si!"], "g": "si"}
    assert convert(row, gold_format="text") == "answer not among the options"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"s": {"stem": "x"}}, "context is a mapping, not text"),
        ({"s": [{"a": 1}]}, "context is a mapping, not text"),
        ({"k": {"a": 1}}, "category is a mapping, not text"),
        ({"s": ["a", None, "b"]}, "a b"),
        ({"s": float("nan")}, "empty sentence"),
        ({"s": "\u2028"}, "empty sentence"),
        ({"s": "=1+1"}, "=1+1"),
        ({"s": "{{ x }} {context}"}, "{{ x }} {context}"),
        ({"s": "\ud83d half \udc00"}, "\ufffd half \ufffd"),
        ({"l": "1.0"}, "x"),
        ({"l": "yes"}, "label is neither 1 nor 0"),
    ],
)
def test_sentence_values_are_converted_or_dropped(changes, expected):
    assert convert({"s": "x", "l": 1} | changes, "sentence", category="k|") == expected


def test_upstream_ids_that_resemble_generated_ids_stay_unique():
    rows = [
        {"s": text, "l": 1, "id": row_id}
        for row_id, text in (("x", "a"), ("x", "a"), ("x~2", "b"), ("x~2~", "c"), ("y", "d"))
    ]
    items, counts = make_items(rows, "sentence", SENTENCE | {"id": "id"})
    assert [item["item_id"] for item in items] == ["x", "x~2~~", "x~2", "x~2~", "y"]
    assert counts["duplicates"] == 1


def write_task(directory, source, columns="{context: s, label: l}"):
    (directory / "t.yaml").write_text(
        "task: t\ntitle: T\ncitation: C\nprotocols: [acceptability]\nitem_type: sentence\n"
        f"columns: {columns}\nlanguages:\n  gl: {{source: {json.dumps(source)}}}\n"
    )
    return load_task(directory / "t.yaml")


def test_two_files_of_one_split_raise_data_error(tmp_path):
    directory = tmp_path / "data" / "t" / "gl"
    directory.mkdir(parents=True)
    write(directory, "test.csv", "s,l\na,1\n")
    write(directory, "test.jsonl", '{"s": "b", "l": 0}')
    with pytest.raises(DataError) as raised:
        load_items(write_task(tmp_path, {"file": "x.csv"}), "gl", source=tmp_path / "data")
    assert_states(raised.value, str(directory), "test.csv", "test.jsonl", "split test")


def test_invalid_few_shot_examples_are_reported(tmp_path):
    write(tmp_path, "a.csv", "s,l\na,1\n")
    write(tmp_path, "bad.csv", "z,l\na,1\n")
    with pytest.raises(DataError) as raised:
        load_items(write_task(tmp_path, {"file": "a.csv", "few_shot": "bad.csv"}), "gl")
    assert_states(raised.value, "t (gl)", "few-shot", "empty sentence (1)")
    write(tmp_path, "some.csv", "s,l\nb,1\n,1\n")
    _, metadata = load_items(write_task(tmp_path, {"file": "a.csv", "few_shot": "some.csv"}), "gl")
    [warning] = metadata["warnings"]
    assert_states(warning, "t (gl)", "1 few-shot example", "empty sentence", "some.csv, line 3")


def test_home_directory_of_unknown_user_raises_config_error(tmp_path):
    with pytest.raises(ConfigError) as raised:
        write_task(tmp_path, {"file": "~nobody-at-all/x.csv"})
    assert_states(raised.value, "t.yaml, line 8", "languages.gl.source", "~nobody-at-all/x.csv", "file name")


def test_long_text_and_many_columns_are_read(tmp_path):
    text = "palabra " * 130_000
    header = ",".join(["s", "l", *(f"c{i}" for i in range(200))])
    write(tmp_path, "big.csv", f"{header}\n{text},1{',x' * 200}\n")
    items, metadata = load_items(write_task(tmp_path, {"file": "big.csv"}), "gl")
    artifacts.write(tmp_path / "items.parquet", ITEMS, items, metadata)
    assert items[0]["context"] == text.strip()


CONLLU = "1\tO\to\tDET\t_\t_\t2\tdet\t_\t_\n2\tcan\tcan\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (CONLLU.replace("2\tcan", "1\tcan"), ("sentence 1", "lines 1 to 2", "duplicate", "ID 1")),
        (CONLLU.replace("1\tO", f"{LONG_NUMBER}\tO"), ("sentence 1", "lines 1 to 2", "CoNLL-U")),
        (gzip.compress(CONLLU.encode(), mtime=0)[:10] + b"\xff" * 30, ("damaged or not CoNLL-U",)),
    ],
)
def test_damaged_treebank_raises_data_error_with_sentence(tmp_path, content, parts):
    from vernacular.data.treebank.sentences import read_sentences

    path = write(tmp_path, "t.conllu", content)
    with pytest.raises(DataError) as raised:
        list(read_sentences(path))
    assert_states(raised.value, str(path), *parts)
