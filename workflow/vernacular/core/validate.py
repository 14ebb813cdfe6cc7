"""Validation of YAML files against their schemas; the first violation is reported in one or two lines.

`x-renamed` in a schema maps earlier names of keys and values to the current ones, for the hint of an error message.
In addition to the schema, texts may not contain what must not get into the results: passwords, tokens, control
characters.
"""

import functools
import json
import math
import re

import jsonschema

from vernacular.core.errors import SECRETS, ConfigError, closest
from vernacular.core.paths import display_path
from vernacular.core.yaml import read

_TYPES = {
    "object": "a mapping (key: value)",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_BOUNDS = {
    "minimum": ("at least", ""),
    "maximum": ("at most", ""),
    "exclusiveMinimum": ("more than", ""),
    "minItems": ("at least", " list entries"),
    "minProperties": ("at least", " keys"),
    "minLength": ("at least", " characters"),
    "maxLength": ("at most", " characters"),
}
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")  # control characters, lone surrogates
_NO_TEXT = [
    *((pattern, sentence) for pattern, _, sentence in SECRETS),
    (_UNPRINTABLE, "contains an unprintable character."),
]


@functools.cache
def schema(path) -> dict:
    """Return a JSON Schema of this package; cached, because many files are checked against it."""
    return read(path)[0]


def with_values(schema: dict, keys: tuple[str, ...], values) -> dict:
    """Return `schema` with the subschema at `keys` restricted to `values`, which the code defines, not the file."""
    first, *rest = keys
    inner = with_values(schema[first], tuple(rest), values) if rest else schema[first] | {"enum": list(values)}
    return schema | {first: inner}


def check(value, lines: dict[tuple, int], schema: dict, path) -> None:
    """Raise ConfigError for the most informative violation: file, line, key, found value and allowed values."""
    _check_texts(value, lines, path)
    errors = list(_Validator(schema).iter_errors(value))
    if not errors:
        return
    # the shallowest error explains the others; among equals, the first in the file
    error = min(errors, key=lambda e: (len(e.absolute_path), _line(lines, e) or 0))
    if error.context:
        error = jsonschema.exceptions.best_match([error])
    at = tuple(error.absolute_path)
    where = place(path, lines, at)
    got = f"got {_short(error.instance)}."
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        key = next(k for k in error.instance if k not in known)
        hint = closest(error.schema.get("x-renamed", {}).get(key, key), known)
        raise ConfigError(f"{place(path, lines, (*at, key))}: unknown key.{hint}")
    if error.validator == "required":
        key = next(k for k in error.validator_value if k not in error.instance)
        raise ConfigError(f'{where}: the key "{key}" is missing.')
    if error.validator == "type":
        types = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
        raise ConfigError(f"{where}: expected {' or '.join(_TYPES[t] for t in types)}, {got}")
    if error.validator in ("enum", "const"):
        allowed = error.validator_value if error.validator == "enum" else [error.validator_value]
        renamed = error.schema.get("x-renamed", {}).get(str(error.instance), error.instance)
        hint = closest(renamed, [_plain(a) for a in allowed])
        raise ConfigError(f"{where}: unknown value {_short(error.instance)}.{hint}")
    if "propertyNames" in error.absolute_schema_path:
        name = place(path, lines, (*at, error.instance))
        raise ConfigError(f"{name}: invalid name; {error.schema.get('x-error', _clipped(error.message))}.")
    if error.validator in ("pattern", "not") and "x-error" in error.schema:
        raise ConfigError(f"{where}: {error.schema['x-error']}, {got}")
    if error.validator in _BOUNDS:
        bound, unit = _BOUNDS[error.validator]
        unit = {" list entries": " list entry"}.get(unit, unit[:-1]) if error.validator_value == 1 else unit
        raise ConfigError(f"{where}: expected {bound} {error.validator_value}{unit}, {got}")
    raise ConfigError(f"{where}: {_clipped(error.message, 200)}")


def place(path, lines: dict[tuple, int], at: tuple) -> str:
    """Return the location that begins an error message: `config.yaml, line 7: models.mine.dtype`."""
    dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{_clipped(_escaped(p))}" for p in at).lstrip(".")
    line = next((lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in lines), None)
    return display_path(path) + (f", line {line}" if line else "") + (f": {dotted}" if dotted else "")


def _check_texts(value, lines: dict[tuple, int], path, at: tuple = ()) -> None:
    """Reject values that no key allows, regardless of the schema: unprintable text, secrets, NaN and infinity."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if _UNPRINTABLE.search(key) or "\n" in key:
                raise ConfigError(f"{place(path, lines, (*at, key))}: the key contains an unprintable character.")
            _check_text(key, lines, path, at)
            _check_texts(inner, lines, path, (*at, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _check_texts(inner, lines, path, (*at, i))
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place(path, lines, at)}: expected a finite number, got {_short(value)}.")
    elif isinstance(value, str):
        _check_text(value, lines, path, at)


def _check_text(text: str, lines: dict[tuple, int], path, at: tuple) -> None:
    # config and task files are copied into the results; the message must not show a secret either
    for pattern, sentence in _NO_TEXT:
        if pattern.search(text):
            raise ConfigError(f"{place(path, lines, at)}: {sentence}")


def _is_whole(checker, value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # JSON Schema accepts 5.0 as an integer


def _pattern(validator, pattern: str, value, schema):
    """Match a pattern that ends in $ up to the end of the text: Python's $ also matches before a final line break."""
    match = re.fullmatch if pattern.endswith("$") else re.search
    if isinstance(value, str) and not match(pattern, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"pattern": _pattern},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole),
)


def _line(lines: dict, error) -> int | None:
    return lines.get(tuple(error.absolute_path))


def _plain(value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _short(value) -> str:
    return _clipped(json.dumps(value, ensure_ascii=False, default=str))


def _escaped(text: str) -> str:
    """Return `text` on one line, escaped as in JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _clipped(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
