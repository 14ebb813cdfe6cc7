"""Data files as a careless or hostile person leaves them: read whole, or refused in a line that says where to look."""

import gzip
import io
import json
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.items import make_items
from vernacular.data.load import load_items
from vernacular.data.readers import read_rows
from vernacular.data.schema import ITEMS
from vernacular.data.tasks import load_task

ONE = [{"a": "1", "b": "2"}]
TWO = [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
DEEP = "[" * 2000 + "]" * 2000
MANY = 10**4 * "9"


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zipped() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(zipfile.ZipInfo("a.csv"), "a,b\n1,2\n")  # by its name alone it would hold the time
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "a,b\r1,2\r3,4\r", TWO),
        ("a.csv", "a,b\r\n1,2\n3,4\r", TWO),
        ("a.csv", "\n\na;b\n1;2\n", ONE),
        ("a.csv", "a;b\r1;2\r", ONE),
        ("a.csv", '"a,x";b\n1;2\n', [{"a,x": "1", "b": "2"}]),
        ("a.csv", "a\n1\u20282\n", [{"a": "1\u20282"}]),
        ("a.csv", "name\n1\0002\n", [{"name": "1\0002"}]),
        ("A.CSV.GZ", gzip.compress(b"a,b\n1,2\n", mtime=0), ONE),
        ("a.tsv", "a\tb\r1\t2\r3\t4\r", TWO),
        ("a.jsonl", '{"a": "1", "b": "2"}\r{"a": "3", "b": "4"}\r', TWO),
        ("a.jsonl", '{"a": "1", "b": "2"}\r\n\r\n{"a": "3", "b": "4"}', TWO),
        ("a.json", '[{"a": "\\ud83d\\ude00 \\u0000", "b": "e\u0301\u202e"}]', [{"a": "😀 \0", "b": "e\u0301\u202e"}]),
    ],
)
def test_odd_line_ends_and_marks_lose_no_row(tmp_path, name, content, rows):
    assert read_rows(write(tmp_path, name, content)) == rows


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "a.csv: expected UTF-8 text, got UTF-16 or binary data; save it as UTF-8."),
        ("a.tsv", "a\tb\n1\t2\n".encode("utf-16-le"), "a.tsv: expected UTF-8 text, got UTF-16 or binary data; save it as UTF-8."),
        ("a.csv", b"a\n1\n\xe9\n", "a.csv, line 3: not UTF-8 text (byte 4); save it as UTF-8."),
        ("a.csv", zipped(), "a.csv: expected csv, got a zip archive or workbook; unpack it, or export a sheet as CSV."),
        ("a.json", b"\xef\xbb\xbf \n", "a.json: the file is empty."),
        ("a.jsonl", "", "a.jsonl: the file is empty."),
        ("a.csv", ",\n1,2\n", "a.csv: the first line contains no column names."),
        ("a.csv", 'a,b\n"x\ny",1\n\n1,2,3\n', "a.csv, line 5: row 3: expected 2 columns as in the header, got 3; quote texts that contain the separator."),
        ("a.csv", 'a,b\n1,2\n"3,4\n5,6\n', "a.csv, line 4: misplaced quotation mark (unexpected end of data; the row begins in line 3)."),
        ("a.tsv", 'a\tb\n"x\t1\n2\n', "a.tsv, line 3: row 3: expected 2 columns as in the header, got 1; quote texts that contain the separator."),
        ("a.jsonl", '{"a": 1}\n' * 6 + '{"a": 1, "a": 2}', 'a.jsonl, line 7: not valid JSON (duplicate key "a").'),
        ("a.json", DEEP, "a.json: not valid JSON (nested too deeply)."),
        ("a.jsonl", f'{{"a": {"[" * 200}{"]" * 200}}}', "a.jsonl, line 1: nested too deeply."),
        ("a.parquet", "a,b\n1,2\n", "a.parquet: damaged or not parquet (Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.)."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path, name, content, said):
    with pytest.raises(DataError) as error:
        read_rows(write(tmp_path, name, content))
    assert str(error.value) == f"{tmp_path}/{said}"


def test_gzip_damaged_anywhere_is_refused(tmp_path):
    whole = gzip.compress("".join(f"{i * 7919},1\n" for i in range(300)).encode(), mtime=0)
    for place in range(10, len(whole), 97):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        with pytest.raises(DataError, match="damaged or not csv"):
            read_rows(write(tmp_path, "a.csv.gz", bytes(damaged)))


def test_what_is_no_file_is_told_apart(tmp_path):
    (tmp_path / "folder.parquet").mkdir()
    os.symlink(tmp_path / "loop.csv", tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for name, said in (
        ("folder.parquet", "expected a file, got a directory; give the path of a file in it."),
        ("loop.csv", "cannot be read (Too many levels of symbolic links)."),
        ("pipe.csv", "is not a regular file."),
        ("x" * 300 + ".csv", "cannot be read (File name too long)."),
    ):
        with pytest.raises(DataError) as error:
            read_rows(tmp_path / name)
        assert str(error.value) == f"{tmp_path / name}: {said}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_named(tmp_path):
    write(tmp_path, "a.csv", "a\n1\n").chmod(0)
    with pytest.raises(DataError, match=r"a.csv: cannot be read \(Permission denied\)"):
        read_rows(tmp_path / "a.csv")


def test_parquet_of_odd_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"old": ["é".encode()], "picture": [b"\xff\xfe"]}), path)
    assert read_rows(path) == [{"old": "é", "picture": b"\xff\xfe"}]
    packed = write(tmp_path, "b.parquet.gz", gzip.compress(path.read_bytes()))
    assert read_rows(packed) == read_rows(path)
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), path)
    with pytest.raises(DataError, match='duplicate column "a"'):
        read_rows(path)
    no_text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"a": no_text}), path)
    with pytest.raises(DataError, match="damaged or not parquet"):
        read_rows(path)


QUESTION = {"question": "q", "choices": "c", "gold": "g", "gold_format": "index"}
SENTENCE = {"context": "s", "label": "l"}


def become(row: dict, item_type="question", **columns):
    """The item's texts, or the reason why there is none."""
    items, counts = make_items([row], item_type, (QUESTION if item_type == "question" else SENTENCE) | columns)
    assert counts["kept"] + sum(counts["dropped"].values()) == 1
    if not items:
        assert counts["first_dropped"] == dict.fromkeys(counts["dropped"], 0)
        return next(iter(counts["dropped"]))
    return (items[0]["choices"], items[0]["gold"]) if item_type == "question" else items[0]["context"]


@pytest.mark.parametrize(
    ("choices", "found"),
    [
        ("['a' 'b, c']", (["a", "b, c"], [1])),  # as pandas writes an array
        ("['a'\n \"b's\"]", (["a", "b's"], [1])),
        ("['a' 'b', 'c']", (["ab", "c"], [1])),  # no array: Python's own rule
        ('["a", "\\ud800"]', (["a", "\ufffd"], [1])),
        ([1, True], (["1", "True"], [1])),
        ([b"\xc3\xa9", "x"], (["é", "x"], [1])),
        ([str(i) for i in range(30)], ([str(i) for i in range(30)], [1])),
        (["a\u0301", "\u00e1"], (["a\u0301", "\u00e1"], [1])),  # two spellings of one letter are two texts
        (["a", {"b": "c"}], "empty option"),
        ([["a"], ["b"]], (["a", "b"], [1])),
        ([[{"x": 1}], "b"], "choices is a mapping, not text"),
        (DEEP, "fewer than two options"),
        (f"[{MANY}]", "fewer than two options"),
        ("['a', 'b'", "fewer than two options"),
        ("{'a': 'b'}", "choices is a mapping, not text"),
        (["a"], "fewer than two options"),
        (["a", " a "], "duplicated options"),
        (["a", float("nan")], "empty option"),
        (None, "fewer than two options"),
    ],
)
def test_options_of_any_kind_are_options_or_a_reason(choices, found):
    assert become({"q": "?", "c": choices, "g": 1}) == found


@pytest.mark.parametrize(
    ("kind", "gold", "found"),
    [
        ("index", "1.0", [1]),
        ("index", "-1.0", []),
        ("number", "2.00", [1]),
        ("number", "٢", [1]),
        ("number", MANY, None),
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
def test_answers_of_any_kind_are_answers_or_a_reason(kind, gold, found):
    item = become({"q": "?", "c": ["a", "b."], "g": gold}, gold_format=kind)
    assert item == ("answer not among the options" if found is None else (["a", "b."], found))


def test_answer_that_fits_two_options_but_for_their_points_is_none():
    row = {"q": "?", "c": ["si.", "si!"], "g": "si"}
    assert become(row, gold_format="text") == "answer not among the options"


@pytest.mark.parametrize(
    ("changed", "found"),
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
def test_sentences_of_any_kind_are_sentences_or_a_reason(changed, found):
    assert become({"s": "x", "l": 1} | changed, "sentence", category="k|") == found


def test_upstream_ids_that_look_like_ours_stay_unique():
    rows = [{"s": s, "l": 1, "id": id} for id, s in (("x", "a"), ("x", "a"), ("x~2", "b"), ("x~2~", "c"), ("y", "d"))]
    items, counts = make_items(rows, "sentence", SENTENCE | {"id": "id"})
    assert [item["item_id"] for item in items] == ["x", "x~2~~", "x~2", "x~2~", "y"]
    assert counts["duplicates"] == 1


def task(folder, source, columns="{context: s, label: l}"):
    (folder / "t.yaml").write_text(
        "task: t\ntitle: T\ncitation: C\nprotocols: [acceptability]\nitem_type: sentence\n"
        f"columns: {columns}\nlanguages:\n  gl: {{source: {json.dumps(source)}}}\n"
    )
    return load_task(folder / "t.yaml")


def test_half_of_a_split_is_not_chosen_in_silence(tmp_path):
    folder = tmp_path / "data" / "t" / "gl"
    folder.mkdir(parents=True)
    write(folder, "test.csv", "s,l\na,1\n")
    write(folder, "test.jsonl", '{"s": "b", "l": 0}')
    with pytest.raises(DataError, match=r"test.csv and test.jsonl are both the split test"):
        load_items(task(tmp_path, {"file": "x.csv"}), "gl", source=tmp_path / "data")


def test_solved_examples_that_are_none_stop_the_set_and_a_bad_one_is_told(tmp_path):
    write(tmp_path, "a.csv", "s,l\na,1\n")
    write(tmp_path, "bad.csv", "z,l\na,1\n")
    with pytest.raises(DataError, match=r"t \(gl\): no few-shot example can be used: empty sentence \(1\)\."):
        load_items(task(tmp_path, {"file": "a.csv", "few_shot": "bad.csv"}), "gl")
    write(tmp_path, "some.csv", "s,l\nb,1\n,1\n")
    _, metadata = load_items(task(tmp_path, {"file": "a.csv", "few_shot": "some.csv"}), "gl")
    assert metadata["warnings"] == ["t (gl): 1 few-shot example dropped (empty sentence). The first is row 2 of 2."]


def test_folder_of_nobody_is_said_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigError, match=r"line 8: languages.gl.source: .* is not a valid file name on this system"):
        task(tmp_path, {"file": "~nobody-at-all/x.csv"})


def test_item_of_a_megabyte_and_of_two_hundred_columns_are_kept(tmp_path):
    text = "palabra " * 130_000
    header = ",".join(["s", "l", *(f"c{i}" for i in range(200))])
    write(tmp_path, "big.csv", f"{header}\n{text},1{',x' * 200}\n")
    items, metadata = load_items(task(tmp_path, {"file": "big.csv"}), "gl")
    artifacts.write(tmp_path / "items.parquet", ITEMS, items, metadata)
    assert items[0]["context"] == text.strip()


WORDS = "1\tO\to\tDET\t_\t_\t2\tdet\t_\t_\n2\tcan\tcan\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WORDS.replace("2\tcan", "1\tcan"), ", sentence 1 (it ends before line 4): duplicate ID 1."),
        (WORDS.replace("1\tO", f"{MANY}\tO"), ", sentence 1 (it ends before line 4): not CoNLL-U ("),
        (gzip.compress(WORDS.encode(), mtime=0)[:10] + b"\xff" * 30, ": cannot be read ("),
    ],
)
def test_damaged_treebank_is_named_by_its_sentence(tmp_path, content, said):
    from vernacular.data.treebank.sentences import read_sentences

    path = write(tmp_path, "t.conllu", content)
    with pytest.raises(DataError) as error:
        list(read_sentences(path))
    assert str(error.value).startswith(f"{path}{said}")
