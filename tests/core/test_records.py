"""Records: whole, of the model they are named after, or refused by name."""

import pytest
from vernacular.core.errors import ArtifactError
from vernacular.core.records import failures, read_record, write_asked, write_record

RECORD = {"name": "ñandú", "folder": "/models/1", "max_length": None, "bytes": 10**12, "scale": 0.1, "chat": False}


def test_what_is_written_is_read_back(tmp_path):
    write_record(tmp_path / "ñandú.json", RECORD)
    assert read_record(tmp_path / "ñandú.json") == RECORD
    write_asked(tmp_path / "asked.json", {"a": {"e": "computed"}}, {"b": {"e": "no memory"}})
    assert failures(tmp_path / "asked.json") == {"a": {}, "b": {"e": "no memory"}}


def test_a_change_of_any_bit_is_noticed(tmp_path):
    write_record(tmp_path / "ñandú.json", RECORD)
    write_asked(tmp_path / "asked.json", {"a": {"e": "computed"}}, {"b": {"e": "no memory"}})
    for path, read in ((tmp_path / "ñandú.json", read_record), (tmp_path / "asked.json", failures)):
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            with open(path, "r+b") as file:  # in place: to write it anew would wait for the disk
                file.write(content)
            with pytest.raises(ArtifactError) as error:
                read(path)
            assert str(error.value) == f"{path}: damaged, or of another version; delete it to rebuild."
        path.write_bytes(whole[:-2])
        with pytest.raises(ArtifactError, match="damaged, or of another version; delete it to rebuild"):
            read(path)


def test_a_record_of_another_model_and_one_that_is_missing_are_named(tmp_path):
    write_record(tmp_path / "ñandú.json", RECORD)
    (tmp_path / "ñandú.json").rename(tmp_path / "other.json")
    with pytest.raises(
        ArtifactError,
        match=r'other\.json: expected the record of "other", got that of "ñandú"; delete it to rebuild\.$',
    ):
        read_record(tmp_path / "other.json")
    with pytest.raises(ArtifactError, match=r"nowhere\.json: file not found\."):
        read_record(tmp_path / "nowhere.json")
