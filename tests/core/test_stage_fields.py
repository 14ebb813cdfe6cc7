"""Dataclasses as JSON: what is written is read again, and all else is an error that names the key."""

import json
from dataclasses import field
from pathlib import Path

import pytest
from vernacular import cli
from vernacular.core.errors import UserError
from vernacular.core.fields import ONLY, Fields, Part, Stage, from_json, to_json


class Entry(Fields):
    name: str
    limit: int | None


class Example(Stage):
    entries: dict[str, Entry]
    out: Path
    shares: list[float] = field(default_factory=list)
    shard: Part = ONLY


COMPLETE = {"entries": {"a": {"name": "A", "limit": None}}, "out": "x/y", "shares": [1, 0.5], "shard": "2of4"}


def test_fields_are_typed_and_written_as_they_were_read():
    example = from_json(Example, COMPLETE, "example")
    assert (example.entries["a"].name, example.out, example.shard.count) == ("A", Path("x/y"), 4)
    assert json.loads(json.dumps(to_json(example))) == COMPLETE


def test_a_stage_without_a_log_prints(tmp_path, capsys):
    (tmp_path / "notes.csv").write_text("kind,models,evaluations,note\n")
    fields = {"log": None, "notes": str(tmp_path / "notes.csv"), "out": str(tmp_path / "complete.txt")}
    assert cli.main(["finish"], fields=json.dumps(fields)) == 0
    assert "no results are missing" in capsys.readouterr().out


def test_defaults_are_not_written():
    example = from_json(Example, {"entries": {}, "out": "x", "shares": [], "shard": "1of1", "threads": 1}, "example")
    assert to_json(example) == {"entries": {}, "out": "x"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entrys": {}}, 'example: unknown field "entrys". Did you mean "entries"?'),
        ({"entries": None}, 'example: the field "entries" is missing.'),
        ({"entries": {"a": {"name": "A"}}}, 'example: entries: a: the field "limit" is missing.'),
        ({"entries": {"a": {"name": 1, "limit": 1}}}, "example: entries: a: name: expected str, got 1."),
        ({"entries": {"a": {"name": "A", "limit": True}}}, "example: entries: a: limit: expected int, got True."),
        ({"entries": []}, "example: entries: expected dict, got []."),
        ({"shares": [1, "2"]}, "example: shares[1]: expected float, got '2'."),
        ({"shard": "2 of 4"}, "example: shard: expected Part, got '2 of 4'."),
        ({"out": 1}, "example: out: expected Path, got 1."),
        ({"threads": "two"}, "example: threads: expected int, got 'two'."),
    ],
)
def test_a_key_or_value_that_does_not_fit_is_named(change, message):
    value = {key: part for key, part in (COMPLETE | change).items() if part is not None}
    with pytest.raises(UserError) as raised:
        from_json(Example, value, "example")
    assert str(raised.value).startswith(message)
