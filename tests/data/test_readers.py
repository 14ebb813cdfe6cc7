"""Readers of data files: no type inference, no lost rows, errors for damaged files."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import assert_states
from vernacular.core.errors import DataError
from vernacular.data.readers import read_rows


def write(tmp_path, name: str, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_csv_does_not_convert_null_or_number_texts(tmp_path):
    path = write(tmp_path, "a.csv", 'a,b,c\nNA,null,\n01,1e5,"x, ""y""\nz"\n')
    assert read_rows(path) == [{"a": "NA", "b": "null", "c": ""}, {"a": "01", "b": "1e5", "c": 'x, "y"\nz'}]


def test_csv_with_semicolons_and_byte_order_mark(tmp_path):
    assert read_rows(write(tmp_path, "a.csv", "\ufeffsé;label\r\n1,5 €;0\r\n")) == [{"sé": "1,5 €", "label": "0"}]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ('"Non," dixo.', '"Non," dixo.'),
        ('"Vai."', '"Vai."'),
        ('o "3', 'o "3'),
        ('"dixo ""non"" e foi"', 'dixo "non" e foi'),
    ],
)
def test_tsv_quotes_are_text_unless_doubled(tmp_path, field, expected):
    assert read_rows(write(tmp_path, "a.tsv", f"s\tl\n{field}\t1\nx\t0\n")) == [
        {"s": expected, "l": "1"},
        {"s": "x", "l": "0"},
    ]


def test_tsv_with_a_quoted_line_break_is_one_row(tmp_path):
    assert read_rows(write(tmp_path, "a.tsv", 's\tl\n"a\nb"\t1\n')) == [{"s": "a\nb", "l": "1"}]


def test_json_list_object_with_one_list_and_lines(tmp_path):
    rows = [{"a": 1}, {"a": "\u2028"}]
    assert read_rows(write(tmp_path, "a.json", '[{"a": 1}, {"a": "\\u2028"}]')) == rows
    assert read_rows(write(tmp_path, "b.json", '{"version": "1", "data": [{"a": 1}, {"a": "\\u2028"}]}')) == rows
    assert read_rows(write(tmp_path, "c.json", '{"a": 1}\n{"a": "\u2028"}\n')) == rows
    assert read_rows(write(tmp_path, "d.jsonl", '{"a": 1}\r\n\n{"a": "\u2028"}')) == rows
    assert read_rows(write(tmp_path, "e.jsonl.gz", gzip.compress(b'{"a": 1}'))) == rows[:1]


def test_parquet_types_are_kept(tmp_path):
    rows = [{"choices": {"text": ["a"], "label": ["A"]}, "label": 1, "none": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet") == rows


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.csv", "a,b\n1,2,3\n", ("row 2", "expected 2", "got 3")),
        ("a.csv", 'a,b\n1,"x\n2,y\n', ("line 3", "quotation mark")),
        ("a.csv", "", ("empty",)),
        ("a.csv", "a,a\n1,2\n", ("duplicate", '"a"')),
        ("a.csv", b"a\n\xe9\n", ("line 2", "not UTF-8")),
        ("a.jsonl", '{"a": 1}\n{"a": \n', ("line 2", "JSON")),
        ("a.jsonl", "[1]\n", ("line 1", "row", "got list")),
        ("a.json", "[1, 2]", ("row 0", "row", "got int")),
        ("a.json", "{", ("JSON",)),
        ("a.parquet", b"PAR1 cut short", ("damaged", "parquet")),
        ("a.csv.gz", b"\x1f\x8b cut short", ("damaged", "csv")),
        ("a.xlsx", b"PK", ("unknown", "format: csv, tsv")),
    ],
)
def test_damaged_file_raises_one_line_error(tmp_path, name, content, parts):
    with pytest.raises(DataError) as raised:
        read_rows(write(tmp_path, name, content))
    assert_states(raised.value, f"{tmp_path}/{name}", *parts)
    assert len(str(raised.value).splitlines()) == 1


def test_missing_file_raises_data_error(tmp_path):
    with pytest.raises(DataError) as raised:
        read_rows(tmp_path / "gone.csv")
    assert_states(raised.value, f"{tmp_path}/gone.csv", "not found")


@given(
    st.lists(st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1), min_size=1)
)
def test_unquoted_tsv_round_trip(tmp_path_factory, texts):
    texts = [text for text in texts if not (text[0] == text[-1] == '"' and '""' in text[1:-1])]
    path = tmp_path_factory.mktemp("tsv") / "a.tsv"
    path.write_text("n\ts\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts)), "utf-8", newline="")
    assert [row["s"] for row in read_rows(path)] == texts
