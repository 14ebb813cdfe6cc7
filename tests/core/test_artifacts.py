"""Artifacts: atomic writes, schema checks, and detection of damaged files."""

import os
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ArtifactError
from vernacular.core.metadata import ItemsMetadata, Outcome, RequestsMetadata, RowCounts
from vernacular.protocols.schema import REQUESTS

KIND = Kind("pets", pa.schema([("name", pa.string()), ("legs", pa.int32())]), key=("name",), required=("legs",))
OTHER_KIND = Kind("plants", KIND.schema, key=("name",))
ROWS = [{"name": "can", "legs": 4}, {"name": "merlo", "legs": 2}]


def test_write_and_read_round_trip(tmp_path):
    path = artifacts.write(tmp_path / "a" / "pets.parquet", KIND, ROWS, {"fingerprint": "x", "note": "ñandú 🦤"})
    assert artifacts.read(path, KIND).to_pylist() == ROWS
    assert artifacts.metadata(path) == {
        "kind": "pets", "fingerprint": "x", "note": "ñandú 🦤", "outcome": Outcome()
    }  # fmt: skip
    assert [f.name for f in path.parent.iterdir()] == ["pets.parquet"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"name": "can", "legs": 4}] * 2, "not unique"),
        ([{"name": None, "legs": 4}], "column name of a pets file has empty values"),
        ([{"name": "can", "legs": None}], "column legs of a pets file has empty values"),
        ([{"name": "can", "legs": "four"}], "do not fit the pets schema"),
        ([{"name": "can", "legs": 4, "wings": 0}], "unknown column wings"),
        ([{"name": "\ud800", "legs": 4}], "do not fit the pets schema"),
    ],
)
def test_invalid_rows_raise_and_leave_no_file(tmp_path, rows, message):
    with pytest.raises(ArtifactError, match=message):
        artifacts.write(tmp_path / "pets.parquet", KIND, rows, {})
    assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_previous_file(tmp_path):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {})

    def write_half():
        with artifacts.replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert artifacts.read(path, KIND).num_rows == 2
    assert [f.name for f in tmp_path.iterdir()] == ["pets.parquet"]


def test_damaged_files_are_detected(tmp_path):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, [{"name": f"n{i}", "legs": i} for i in range(500)], {})
    content = path.read_bytes()
    damaged = [
        content[: len(content) // 2],
        b"",
        content[:200] + bytes([content[200] ^ 0xFF]) + content[201:],
        b"not parquet",
    ]
    for damaged_content in damaged:
        path.write_bytes(damaged_content)
        with pytest.raises(ArtifactError, match=r"pets.parquet: damaged or not Parquet .* delete it to rebuild"):
            artifacts.read(path, KIND)


def test_file_of_other_kind_or_version_is_rejected(tmp_path):
    path = artifacts.write(tmp_path / "x.parquet", OTHER_KIND, ROWS, {})
    with pytest.raises(ArtifactError, match="expected 'pets', got 'plants'"):
        artifacts.read(path, KIND)
    older_kind = Kind("pets", pa.schema([("name", pa.string())]), key=())
    path = artifacts.write(tmp_path / "y.parquet", older_kind, [{"name": "can"}], {})
    with pytest.raises(ArtifactError, match="from another version"):
        artifacts.read(path, KIND)


def test_public_table_of_an_earlier_version_is_read_with_empty_columns(tmp_path):
    columns = [("name", pa.string()), ("legs", pa.int32())]
    path = artifacts.write(tmp_path / "pets.parquet", Kind("pets", pa.schema(columns), key=("name",)), ROWS, {})
    later = Kind(
        "pets", pa.schema([("owner", pa.string()), *columns]), key=("name",), required=("legs",), is_public=True
    )
    assert artifacts.read(path, later).to_pylist() == [{"owner": None, **row} for row in ROWS]
    assert artifacts.read(path, later).schema.remove_metadata() == later.schema
    assert artifacts.read(path, later, columns=["name", "owner"]).column_names == ["owner", "name"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("name", pa.string()), ("legs", pa.int32()), ("wings", pa.int32())], r"\(unknown columns wings\)"),
        ([("name", pa.string()), ("legs", pa.string())], r"\(columns of another type legs\)"),
        ([("name", pa.string()), ("feet", pa.int32())], r"\(unknown columns feet; missing columns legs\)"),
    ],
)
def test_public_table_of_another_version_is_refused_with_its_columns(tmp_path, columns, message):
    path = artifacts.write(tmp_path / "pets.parquet", Kind("pets", pa.schema(columns), key=()), [], {})
    with pytest.raises(ArtifactError, match=f"pets.parquet: a pets file from another version {message}"):
        artifacts.read(path, replace(KIND, is_public=True))


def test_missing_file_is_named_in_error(tmp_path):
    with pytest.raises(ArtifactError, match=r"nowhere\.parquet: file not found\."):
        artifacts.read(tmp_path / "nowhere.parquet", KIND)


def test_column_selection_and_dictionary_columns(tmp_path):
    kind = Kind("calls", pa.schema([("name", pa.string()), ("calls", pa.list_(pa.string()))]), key=("name",))
    rows = [{"name": f"{index}", "calls": ["miau" * 1000] * 3} for index in range(200)]
    path = artifacts.write(tmp_path / "calls.parquet", kind, rows, {"fingerprint": "x"})
    assert artifacts.read(path, kind, columns=["name"]).column_names == ["name"]
    table = artifacts.read(path, kind, dictionary_columns=("calls",))
    assert table.to_pylist() == rows
    assert table.nbytes < 20_000 < artifacts.read(path, kind).nbytes / 100
    with pytest.raises(ArtifactError, match="another version"):
        artifacts.read(path, Kind("calls", KIND.schema, key=("name",)), columns=["legs"])


def test_concurrent_writers_use_different_temporary_names(tmp_path):
    with artifacts.replacing(tmp_path / "a") as first, artifacts.replacing(tmp_path / "a") as second:
        assert first != second
        first.write_text("one")
        second.write_text("other")
    assert (tmp_path / "a").read_text() == "one", "the last writer to finish"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_file_name_of_maximum_length_is_written(tmp_path):
    path = tmp_path / ("ქ" * 85)  # 255 bytes
    with artifacts.replacing(path) as temporary:
        temporary.write_text("x")
    assert path.read_text() == "x"


def read_error(call, path) -> str:
    with pytest.raises(ArtifactError) as error:
        call()
    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).endswith("; delete it to rebuild.")
    return str(error.value)


def set_byte(path, offset: int, byte: int) -> None:
    """Set one byte in place; rewriting the file would wait for the disk."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(bytes([byte]))


MANY_ROWS = [{"name": f"vernacular-digests {n}" * 9, "legs": n} for n in range(99)]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "bits"), [(ROWS, range(8)), ([], [0]), (MANY_ROWS, [6])], ids=["two", "none", "many"])
def test_any_flipped_bit_is_detected(tmp_path, rows, bits):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, rows, {"fingerprint": "x"})
    content = path.read_bytes()
    metadata = artifacts.metadata(path)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for offset, byte in enumerate(content):
        for bit in bits:
            set_byte(path, offset, byte ^ 1 << bit)
            read_error(lambda: artifacts.read(path, KIND), path)
            if offset < footer:
                assert artifacts.metadata(path) == metadata, "metadata is in the footer"
            else:
                read_error(lambda: artifacts.metadata(path), path)
        set_byte(path, offset, byte)
    assert artifacts.read(path, KIND).to_pylist() == rows


def test_truncated_extended_or_zeroed_file_is_detected(tmp_path):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {"fingerprint": "x"})
    content = path.read_bytes()
    for offset in range(0, len(content), 13):
        damaged = [
            content[:offset],
            content[:offset] + content[offset + 1 :],
            content[:offset] + b"\0" + content[offset:],
        ]
        damaged += [
            content[:offset] + bytes(len(content) - offset),
            bytes(offset) + content[offset:] if offset else content + b"\0",
        ]
        for index, damaged_content in enumerate(damaged):
            damaged_path = tmp_path / f"{offset}-{index}.parquet"  # a new file: rewriting one would wait for the disk
            damaged_path.write_bytes(damaged_content)
            read_error(
                lambda damaged_path=damaged_path: artifacts.read(damaged_path, KIND, allow_moved=True), damaged_path
            )


def test_digest_like_text_in_rows_is_not_mistaken_for_digests(tmp_path):
    """Column statistics in the footer may contain a text that looks like digests."""
    text = (b"vernacular-digests\x18\x80\x01" + b"0" * 128).decode("latin-1")
    path = artifacts.write(tmp_path / "pets.parquet", KIND, [{"name": text, "legs": 1}], {"note": text})
    assert artifacts.read(path, KIND)["name"].to_pylist() == [text]
    assert artifacts.metadata(path)["note"] == text


def test_file_larger_than_read_and_hash_chunks(tmp_path, low_limits):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {"note": "ñ" * 100_000})
    content = path.read_bytes()
    assert len(artifacts.metadata(path)["note"]) == 100_000
    low_limits("core.artifacts", CHUNK=7)
    assert artifacts.read(path, KIND).to_pylist() == ROWS
    assert artifacts.write(path, KIND, ROWS, {"note": "ñ" * 100_000}).read_bytes() == content


def test_file_without_digests_is_rejected(tmp_path):
    path = tmp_path / "pets.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, schema=KIND.schema), path)
    for call in (lambda: artifacts.read(path, KIND), lambda: artifacts.metadata(path)):
        assert "from another version, or not a file of this workflow" in read_error(call, path)


def test_fifo_and_directory_are_rejected_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "directory.parquet").mkdir()
    for name in ("pipe.parquet", "directory.parquet"):
        assert "is not a file" in read_error(lambda name=name: artifacts.metadata(tmp_path / name), tmp_path / name)


def test_reading_and_comparing_import_no_pandas(tmp_path):
    """Its import would take a third of a second in each of a run's processes."""
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {"fingerprint": "x"})
    code = f"""
import sys
import pyarrow.parquet as pq
import vernacular.stages.collect, vernacular.stages.compare, vernacular.stages.infer, vernacular.stages.metrics
from vernacular.core import artifacts
schema = pq.read_schema({str(path)!r}).remove_metadata()
kind = artifacts.Kind({KIND.name!r}, schema, key={KIND.key!r}, required={KIND.required!r})
assert artifacts.read({str(path)!r}, kind).num_rows == {len(ROWS)}
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("n_rows", [0, 1, 4_999, 5_000, 5_001, 10_000, 10_001])
def test_dictionary_columns_are_equal_over_row_groups(tmp_path, n_rows):
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("turns", pa.list_(turn))])
    kind = Kind("turns", schema, key=("id",))
    # more than 1 MB of distinct texts per row group, where Parquet gives up its own dictionary
    turns = [None, [], [None], [{"role": "user", "content": None}], [{"role": "a", "content": "x" * 500}] * 2]
    rows = [{"id": i, "text": f"{i % 7}" * 90, "turns": turns[i % 5]} for i in range(n_rows)]
    for row in rows[3::4]:
        row["turns"] = [{"role": "user", "content": f"{row['id']} " * 80}]
    path = artifacts.write(tmp_path / "turns.parquet", kind, rows, {})
    assert artifacts.read(path, kind, dictionary_columns=("text", "turns")).to_pylist() == rows
    assert artifacts.read(path, kind, columns=["id"], dictionary_columns=("text",)).to_pylist() == [
        {"id": row["id"]} for row in rows
    ]


@pytest.mark.parametrize("size", [0, 1_000, 100_000, pytest.param(101_000_000, marks=pytest.mark.slow)])
def test_metadata_of_any_size_are_read(tmp_path, size):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {"fingerprint": "x", "notes": "y" * size})
    assert len(artifacts.metadata(path)["notes"]) == size  # pyarrow rejects 100 MB by default
    assert artifacts.read(path, KIND).to_pylist() == ROWS


@pytest.mark.parametrize("size", [50_000, 200_000])
def test_metadata_beyond_the_limit_are_not_called_damaged(tmp_path, low_limits, size):
    low_limits("core.artifacts", METADATA_LIMIT=100_000)
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {"fingerprint": "x", "notes": "y" * size})
    if size < 100_000:
        assert artifacts.read(path, KIND).to_pylist() == ROWS
        return
    for read in (artifacts.metadata, lambda path: artifacts.read(path, KIND)):
        with pytest.raises(ArtifactError, match=r"pets\.parquet: its content is intact, but pyarrow .* size limit"):
            read(path)


def test_metadata_of_a_kind_with_a_class_are_of_that_class(tmp_path):
    metadata = RequestsMetadata(
        protocol="letters",
        items=ItemsMetadata(rows=RowCounts(read=3, dropped={"no gold": 1}), outcome=Outcome(missing={"a": "b"})),
        fingerprint="x",
    )
    path = artifacts.write(tmp_path / "e.parquet", REQUESTS, [], metadata)
    assert artifacts.metadata(path, REQUESTS) == metadata
    assert artifacts.read_all(path, REQUESTS)[1].items.rows.dropped == {"no gold": 1}
    with pytest.raises(AttributeError):
        artifacts.metadata(path, REQUESTS).protocl  # noqa: B018


@pytest.mark.parametrize("content", [{"protocl": "letters"}, {}, {"protocol": "letters", "items": {"rows": 3}}])
def test_metadata_with_other_fields_are_rejected(tmp_path, content):
    path = artifacts.write(tmp_path / "e.parquet", REQUESTS, [], content)
    assert "requests file from another version" in read_error(lambda: artifacts.metadata(path, REQUESTS), path)


def test_file_without_an_outcome_is_of_another_version(tmp_path):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {"outcome": None, "unavailable": "gated"})
    for call in (lambda: artifacts.read(path, KIND), lambda: artifacts.metadata(path)):
        assert "from another version" in read_error(call, path)
    assert artifacts.read(path, KIND, allow_moved=True).num_rows == len(ROWS), "of another group, for example"
