"""Frozen dataclasses as JSON: the fields of a stage, and the parts of the config on which results depend.

Reading is strict: a key that is unknown or missing, or a value of another type, is an error that names it. Defaults are
not written, so that a field that is added with a default changes no key.
"""

import dataclasses
import functools
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vernacular.core.errors import UserError, suggest


class Part(NamedTuple):
    """A number and the number of all: `2of4`."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}of{self.count}"


ONLY = Part(1, 1)


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class Fields:
    """Base of frozen dataclasses whose fields are given by name."""

    def __init_subclass__(cls):
        dataclass(frozen=True, kw_only=True)(cls)


class Stage(Fields):
    """Fields of every stage, which it reads from standard input as one JSON object."""

    log: Path | None = None  # file for messages and warnings, which are otherwise printed
    threads: int = 1  # CPU cores
    attempt: Part = ONLY  # 1of3; the last attempt writes why results are missing and exits with status 0
    restarted: bool = False  # whether a process of this attempt died
    failure: str | None = None  # why the stage failed: it then tries nothing but writes files that state this reason


def to_json(value):
    """Return a dataclass as JSON-like values, also inside lists and dicts.

    >>> to_json({"shard": Part(2, 4), "out": Path("a")})
    {'shard': '2of4', 'out': 'a'}
    """
    if dataclasses.is_dataclass(value):
        written = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: to_json(part) for name, part in written.items() if part != _default(type(value), name)}
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, Path | Part):
        return str(value)
    return [to_json(part) for part in value] if isinstance(value, list) else value


def from_json(kind, value, where: str):
    """Return `value` as `kind`: a dataclass, str, int, float, bool, Path, Part, object, dict, list, or `… | None`.

    >>> from_json(dict[str, list[int] | None], {"a": [1], "b": None}, "example")
    {'a': [1], 'b': None}

    Raises:
        UserError: A key is unknown or missing, or a value has another type. `where` and its keys are named.
    """
    arguments, origin = typing.get_args(kind), typing.get_origin(kind) or kind
    if origin is types.UnionType:
        return None if value is None else from_json(arguments[0], value, where)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _dataclass(kind, value, where)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is Part and isinstance(value, str) and (match := re.fullmatch(r"(\d+)of(\d+)", value)):
        return Part(int(match[1]), int(match[2]))
    if kind is not object and type(value) is not origin and (kind, type(value)) != (float, int):
        raise UserError(f"{where}: expected {getattr(kind, '__name__', kind)}, got {value!r:.80}.")
    if origin is dict and arguments:
        return {key: from_json(arguments[1], part, f"{where}: {key}") for key, part in value.items()}
    if origin is list and arguments:
        return [from_json(arguments[0], part, f"{where}[{i}]") for i, part in enumerate(value)]
    return value


def _dataclass(kind: type, value: dict, where: str):
    names = [field.name for field in dataclasses.fields(kind)]
    for name in value:
        if name not in names:
            raise UserError(f'{where}: unknown field "{name}".{suggest(name, names)}')
    for name in names:
        if name not in value and _default(kind, name) is dataclasses.MISSING:
            raise UserError(f'{where}: the field "{name}" is missing.')
    return kind(**{name: from_json(_hints(kind)[name], part, f"{where}: {name}") for name, part in value.items()})


@functools.cache
def _hints(kind: type) -> dict:
    return typing.get_type_hints(kind)


def _default(kind: type, name: str):
    field = kind.__dataclass_fields__[name]
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def as_list(value) -> list:
    """Return a value that may be given alone or in a list as a list.

    >>> as_list("gl"), as_list(["gl", "pt"])
    (['gl'], ['gl', 'pt'])
    """
    return value if isinstance(value, list) else [value]
