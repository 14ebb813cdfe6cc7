"""Artifacts: whole or not at all, of the kind they say, and never read as good when they are not."""

import pyarrow as pa
import pytest
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ArtifactError

KIND = Kind("pets", pa.schema([("name", pa.string()), ("legs", pa.int32())]), key=("name",), required=("legs",))
OTHER = Kind("plants", KIND.schema, key=("name",))
ROWS = [{"name": "can", "legs": 4}, {"name": "merlo", "legs": 2}]


def test_what_is_written_is_read_back(tmp_path):
    path = artifacts.write(tmp_path / "a" / "pets.parquet", KIND, ROWS, {"fingerprint": "x", "note": "ñandú 🦤"})
    assert artifacts.read(path, KIND).to_pylist() == ROWS
    assert artifacts.metadata(path) == {"kind": "pets", "fingerprint": "x", "note": "ñandú 🦤"}
    assert [f.name for f in path.parent.iterdir()] == ["pets.parquet"]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{"name": "can", "legs": 4}] * 2, "not unique"),
        ([{"name": None, "legs": 4}], "column name of a pets file has empty values"),
        ([{"name": "can", "legs": None}], "column legs of a pets file has empty values"),
        ([{"name": "can", "legs": "four"}], "do not fit the pets schema"),
        ([{"name": "can", "legs": 4, "wings": 0}], "unknown column wings"),
        ([{"name": "\ud800", "legs": 4}], "do not fit the pets schema"),
    ],
)
def test_rows_that_break_the_contract_are_refused_and_leave_no_file(tmp_path, rows, complaint):
    with pytest.raises(ArtifactError, match=complaint):
        artifacts.write(tmp_path / "pets.parquet", KIND, rows, {})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_file_that_was_there(tmp_path):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, ROWS, {})

    def write_half():
        with artifacts.replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert artifacts.read(path, KIND).num_rows == 2
    assert [f.name for f in tmp_path.iterdir()] == ["pets.parquet"]


def test_every_way_to_damage_a_file_is_noticed(tmp_path):
    path = artifacts.write(tmp_path / "pets.parquet", KIND, [{"name": f"n{i}", "legs": i} for i in range(500)], {})
    whole = path.read_bytes()
    damaged = [whole[: len(whole) // 2], b"", whole[:200] + bytes([whole[200] ^ 0xFF]) + whole[201:], b"not parquet"]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"pets.parquet: damaged or not Parquet .* delete it to rebuild"):
            artifacts.read(path, KIND)


def test_a_file_of_another_kind_or_version_is_refused(tmp_path):
    path = artifacts.write(tmp_path / "x.parquet", OTHER, ROWS, {})
    with pytest.raises(ArtifactError, match="holds 'plants', expected 'pets'"):
        artifacts.read(path, KIND)
    older = Kind("pets", pa.schema([("name", pa.string())]), key=())
    path = artifacts.write(tmp_path / "y.parquet", older, [{"name": "can"}], {})
    with pytest.raises(ArtifactError, match="from another version"):
        artifacts.read(path, KIND)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"nowhere.parquet: there is no such file"):
        artifacts.read(tmp_path / "nowhere.parquet", KIND)


def test_columns_are_read_alone_and_repeated_texts_held_once(tmp_path):
    kind = Kind("calls", pa.schema([("name", pa.string()), ("calls", pa.list_(pa.string()))]), key=("name",))
    rows = [{"name": f"{number}", "calls": ["miau" * 1000] * 3} for number in range(200)]
    path = artifacts.write(tmp_path / "calls.parquet", kind, rows, {"fingerprint": "x"})
    assert artifacts.read(path, kind, columns=["name"]).column_names == ["name"]
    found = artifacts.read(path, kind, repeated=("calls.list.element",))
    assert found.to_pylist() == rows
    assert found.nbytes < 20_000 < artifacts.read(path, kind).nbytes / 100
    with pytest.raises(ArtifactError, match="another version"):
        artifacts.read(path, Kind("calls", KIND.schema, key=("name",)), columns=["legs"])


def test_two_writers_of_one_file_in_one_process_do_not_share_a_temporary_name(tmp_path):
    with artifacts.replacing(tmp_path / "a") as one, artifacts.replacing(tmp_path / "a") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one", "the last to end"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_name_as_long_as_names_may_be_is_written(tmp_path):
    path = tmp_path / ("ქ" * 85)  # 255 bytes
    with artifacts.replacing(path) as temporary:
        temporary.write_text("x")
    assert path.read_text() == "x"
