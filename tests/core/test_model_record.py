"""Records of models: written and read back, and rejected if they have other fields."""

import dataclasses

import pytest
from support.messages import assert_states
from vernacular.core.errors import ArtifactError
from vernacular.core.model_record import (
    AdapterRecord,
    Forms,
    Listing,
    ModelRecord,
    ServerRecord,
    previous_model,
    read_model,
    read_record,
    write_model,
    write_record,
)

LISTING = Listing("/models/m", {"config.json": {"sha256": "a", "size": 1}})
SERVED = ServerRecord("org/m", {"owned_by": "vllm"}, forms=Forms(generation="ids", spans="echo"), fields={"n": 1})
RECORDS = [
    ModelRecord(name="m", kind="causal", contents=LISTING, source_contents=LISTING, parameters=0),
    ModelRecord(name="m", adapter=AdapterRecord("./a", "/a", None, "LORA", None, False, True, LISTING)),
    ModelRecord(name="m", server=SERVED, subject=["org/m", None, "t"]),
    ModelRecord(name="m", unavailable="there is no such repository."),
]


@pytest.mark.parametrize("record", RECORDS)
def test_written_record_is_read_back(record, tmp_path):
    write_model(tmp_path / "m.json", record | {"dtype": "float32", "libraries": ["peft 1"]})
    assert read_model(tmp_path / "m.json") == record, "settings belong to a run"
    assert None not in read_record(tmp_path / "m.json").values()
    assert previous_model(tmp_path / "m.json") is None
    write_model(tmp_path / "m.json", record, keep=True)
    (tmp_path / "m.json").unlink()
    assert previous_model(tmp_path / "m.json") == record


@pytest.mark.parametrize(
    "change",
    [
        {"fingreprint": "a"},
        {"dtype": "float32"},
        {"contents": {"root": "/", "files": {}, "pickles": True}},
        {"server": {"model": "m", "reported": {}, "forms": {"text": True}}},
    ],
)
def test_unknown_field_states_that_the_record_is_of_another_version(change, tmp_path):
    write_record(tmp_path / "m.json", {"name": "m"} | change)
    with pytest.raises(ArtifactError) as raised:
        read_model(tmp_path / "m.json")
    [name] = {*change, "pickles", "text"} & {*str(raised.value).replace(")", " ").split()}
    assert_states(raised.value, "m.json: written by another version", f"unknown field: {name}", "writes it again")


@pytest.mark.parametrize("change", [{"contents": {"files": {}}}, {"adapter": []}, {"server": {"model": "m"}}])
def test_missing_field_states_that_the_record_is_of_another_version(change, tmp_path):
    write_record(tmp_path / "m.json", {"name": "m"} | change)
    with pytest.raises(ArtifactError, match=r"m\.json: written by another version"):
        read_model(tmp_path / "m.json")


def test_mistyped_field_is_an_error():
    with pytest.raises(AttributeError):
        _ = RECORDS[0].fingreprint
    with pytest.raises(TypeError):
        _ = RECORDS[0] | {"fingreprint": "a"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECORDS[0].name = "other"
