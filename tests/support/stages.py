"""Stages from keyword arguments; a field that a test does not state, also of a spec, is empty."""

import dataclasses
import json
import types
import typing
from pathlib import Path

from vernacular import cli
from vernacular.core.fields import from_json, to_json

_EMPTY = {str: "", Path: "", int: 0, bool: False, dict: {}, list: [], types.UnionType: None}


def text(command: str, /, **fields) -> str:
    """Return the JSON object that a stage reads from standard input."""
    return json.dumps(_filled(cli.fields_of(command), to_json(fields)))


def run(command: str, /, **fields) -> int:
    """Run a stage in this process; return its exit status."""
    return cli.main([command], fields=text(command, **fields))


def arguments(function, /, **fields):
    """Return what the function of a stage takes."""
    kind = typing.get_type_hints(function)["args"]
    return from_json(kind, json.loads(json.dumps(_filled(kind, to_json(fields)))), kind.__name__)


def _filled(kind, value):
    """Return JSON-like values with what is missing in dataclasses."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        missing = {
            field.name: _EMPTY.get(typing.get_origin(hints[field.name]) or hints[field.name], {})
            for field in dataclasses.fields(kind)
            if field.name not in value and field.default is field.default_factory is dataclasses.MISSING
        }
        return {name: _filled(hints.get(name), part) for name, part in (value | missing).items()}
    if typing.get_origin(kind) is dict and value:
        return {key: _filled(typing.get_args(kind)[1], part) for key, part in value.items()}
    return value
