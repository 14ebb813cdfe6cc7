"""Readers of data files: no type inference, no lost rows, errors for damaged files."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import assert_states
from vernacular.core.errors import DataError
from vernacular.data import readers
from vernacular.data.readers import located_rows, read_rows


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


COLUMNS = {"good": ["a", "b"], "bad": ["c", "d"]}
COLUMN_ROWS = [{"good": "a", "bad": "c"}, {"good": "b", "bad": "d"}]


@pytest.mark.parametrize(
    "value",
    [
        COLUMNS,  # json.dump(dataset.to_dict()), to_json(orient="list")
        {"good": {"0": "a", "1": "b"}, "bad": {"0": "c", "1": "d"}},  # to_json()
        {"0": {"good": "a", "bad": "c"}, "1": {"good": "b", "bad": "d"}},  # orient="index"
        {"columns": ["good", "bad"], "index": [0, 1], "data": [["a", "c"], ["b", "d"]]},  # orient="split"
        {"schema": {"fields": [{"name": "good"}]}, "data": COLUMN_ROWS},  # orient="table"
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("indent", [None, 1])
def test_json_of_columns_has_one_row_per_value(tmp_path, value, name, indent):
    if name == "a.jsonl" and indent is None and value is not COLUMNS:
        pytest.skip("one line of a JSONL file is a row, unless all its values are lists")
    assert read_rows(write(tmp_path, name, json.dumps(value, indent=indent))) == COLUMN_ROWS


def test_json_columns_of_lists_and_objects_and_a_single_row(tmp_path):
    columns = {"question": ["?", "!"], "choices": [{"text": ["a"], "label": ["A"]}, {"text": ["b"], "label": ["A"]}]}
    rows = read_rows(write(tmp_path, "a.json", json.dumps(columns)))
    assert rows[1] == {"question": "!", "choices": {"text": ["b"], "label": ["A"]}}
    row = {"question": "?", "choices": ["a", "b"]}
    assert read_rows(write(tmp_path, "b.json", json.dumps(row))) == [row]
    assert read_rows(write(tmp_path, "c.jsonl", json.dumps([row, row]))) == [row, row]
    assert read_rows(write(tmp_path, "d.jsonl", 2 * '{"text": ["a", "b"]}\n')) == [{"text": ["a", "b"]}] * 2


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ({"good": ["a", "b"], "bad": ["c"]}, ("equal length", '"good" has 2', '"bad" has 1', "records")),
        ({"train": [{"a": 1}], "test": [{"a": 2}]}, ("one list of rows", '"train" and "test"', "file of its own")),
        ({"r1": {"good": "a"}, "r2": {"good": "b"}}, ("list of rows", "object of objects", "records")),
        ("text", ("list of rows", "got str")),
    ],
)
def test_json_that_can_be_read_in_several_ways_is_rejected(tmp_path, value, parts):
    with pytest.raises(DataError) as raised:
        read_rows(write(tmp_path, "a.json", json.dumps(value)))
    assert_states(raised.value, "a.json", *parts)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sep=;\na;b\n1,5;2\n"),
        ("a.csv", '\ufeff"sep=;"\r\na;b\r\n1,5;2\r\n'),
        ("a.csv", "SEP=|\na|b\n1,5|2\n"),
        ("a.csv", "sep=\t\na\tb\n1,5\t2\n"),
        ("a.tsv", "sep=\t\na\tb\n1,5\t2\n"),
    ],
)
def test_separator_line_of_excel_is_no_row_but_a_line(tmp_path, name, content):
    [(location, row)] = located_rows(write(tmp_path, name, content))
    assert row == {"a": "1,5", "b": "2"}
    assert location.endswith("line 3")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('text\n"Un.\nDous."\nTres.\n', ["Un.\nDous.", "Tres."]),
        ('text\r\n"Un ""e""\r\n\r\nDous."\r\n', ['Un "e"\r\n\r\nDous.']),
        ('"text"\n"Un"\n"Dous"\n', ["Un", "Dous"]),  # all fields quoted
        ('text\n"Vai," dixo.\n"Non.\n', ['"Vai," dixo.', '"Non.']),  # quotation marks of the text
        ('text\n"Vai."\no 3" e\n', ['"Vai."', 'o 3" e']),
    ],
)
def test_tsv_of_one_column_with_line_breaks_or_quotation_marks(tmp_path, content, texts):
    assert [row["text"] for row in read_rows(write(tmp_path, "a.tsv", content))] == texts


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
        ("a.xlsx", b"PK", ("got a workbook", "export it as CSV")),
        ("a.txt", b"PK", ("unknown", "format: csv, tsv")),
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


@pytest.mark.parametrize(("excess", "message"), [(0, None), (1, "has 21 bytes; expected at most 20")])
def test_file_above_the_limit_of_size_is_refused(tmp_path, low_limits, excess, message):
    low_limits("data.readers", MAX_BYTES=20)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"word\n" + b"a" * (15 + excess))
    if message is None:
        assert readers.read_rows(path) == [{"word": "a" * 15}]
    else:
        with pytest.raises(DataError, match=message):
            readers.read_rows(path)


def test_file_above_the_limit_of_size_when_unpacked_is_refused(tmp_path, low_limits):
    low_limits("data.readers", MAX_BYTES=900)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"word\n" + b"a" * 896))
    with pytest.raises(DataError, match="more than 900 bytes when unpacked"):
        readers.read_rows(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("repeated", [["boa", " mala"], ['"boa"', "MALA"]])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_header_in_the_middle_of_a_table_is_an_error_with_its_line(tmp_path, name, mark, repeated):
    """As in files that were joined, also those that begin with a byte-order mark."""
    separator = "," if name == "a.csv" else "\t"
    lines = [["boa", "mala"], ["Chove.", "Choven."], [mark + repeated[0], repeated[1]], ["Neva.", "Nevan."]]
    path = write(tmp_path, name, mark + "".join(separator.join(line) + "\n" for line in lines))
    with pytest.raises(DataError) as raised:
        read_rows(path)
    assert_states(raised.value, f"{name}, line 3", "repeats the header")
    with pytest.raises(DataError) as raised:
        read_rows(path, header=["boa", "mala"])
    assert_states(raised.value, f"{name}, line 1", "repeats the header")


@pytest.mark.parametrize(
    "marker", ["-DOCSTART-\tO\n", "-DOCSTART- -X- O O\n", "-DOCSTART-\n", "--DOCSTART--\t_\n", "-docstart- O\n"]
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_document_marker_of_conll_is_a_row_of_its_own(tmp_path, marker, end):
    path = write(tmp_path, "a.iob", f"{marker}{end}Ana\tB-PER\nvén\tO\n{end}{marker}{end}Paris\tB-LOC\n")
    tokens = [row["token"] for row in read_rows(path, "iob")]
    word = marker.split()[0]
    assert tokens == [[word], ["Ana", "vén"], [word], ["Paris"]]
