"""Records: round trip, and detection of damaged, misplaced and missing files."""

import pytest
from vernacular.core.errors import ArtifactError
from vernacular.core.metadata import Outcome, unavailable
from vernacular.core.model_record import read_record, read_status, write_record, write_status

RECORD = {"name": "ñandú", "directory": "/models/1", "max_length": None, "bytes": 10**12, "scale": 0.1, "chat": False}
STATUS = {"a": {"e": Outcome(reason="computed")}, "b": {"e": unavailable("no memory")}}


def test_write_and_read_round_trip(tmp_path):
    write_record(tmp_path / "ñandú.json", RECORD)
    assert read_record(tmp_path / "ñandú.json") == RECORD
    write_status(tmp_path / "status.json", STATUS)
    assert read_status(tmp_path / "status.json") == STATUS


def test_any_flipped_bit_is_detected(tmp_path):
    write_record(tmp_path / "ñandú.json", RECORD)
    write_status(tmp_path / "status.json", STATUS)
    for path, read in ((tmp_path / "ñandú.json", read_record), (tmp_path / "status.json", read_status)):
        original = path.read_bytes()
        for bit in range(8 * len(original)):
            content = bytearray(original)
            content[bit // 8] ^= 1 << bit % 8
            with open(path, "r+b") as file:  # in place: rewriting it would wait for the disk
                file.write(content)
            with pytest.raises(ArtifactError) as error:
                read(path)
            assert str(error.value) == f"{path}: damaged, or of another version; delete it to rebuild."
        path.write_bytes(original[:-2])
        with pytest.raises(ArtifactError, match="damaged, or of another version; delete it to rebuild"):
            read(path)


def test_record_of_other_model_and_missing_record_are_rejected(tmp_path):
    write_record(tmp_path / "ñandú.json", RECORD)
    (tmp_path / "ñandú.json").rename(tmp_path / "other.json")
    with pytest.raises(
        ArtifactError,
        match=r'other\.json: expected the record of "other", got that of "ñandú"; delete it to rebuild\.$',
    ):
        read_record(tmp_path / "other.json")
    with pytest.raises(ArtifactError, match=r"nowhere\.json: file not found\."):
        read_record(tmp_path / "nowhere.json")
