"""Validation of YAML files against their schemas; every violation is reported in one or two lines.

`x-renamed` in a schema maps earlier names of keys and values to the current ones, for the hint of an error message, and
`x-elsewhere` maps keys to where they belong; `x-example` is a valid value, for a value of another type.
In addition to the schema, texts may not contain what must not get into the results: passwords, tokens, control
characters. Mistakes are recorded (`Problems`), so that all of them are reported at once.
"""

import contextlib
import copy
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator

import jsonschema

from vernacular.core import names
from vernacular.core.errors import SECRETS, ConfigError, format_count, suggest
from vernacular.core.names import escaped
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
_FORBIDDEN_TEXT = [(pattern, message) for pattern, _, message in SECRETS]
_FORBIDDEN_TEXT.append((_UNPRINTABLE, "contains an unprintable character."))


@functools.cache
def schema(path) -> dict:
    """Return a JSON Schema of this package; cached, because many files are checked against it."""
    return read(path)[0]


def with_values(schema: dict, keys: tuple[str, ...], values) -> dict:
    """Return `schema` with the subschema at `keys` restricted to `values`, which the code defines, not the file."""
    first, *rest = keys
    inner = with_values(schema[first], tuple(rest), values) if rest else schema[first] | {"enum": list(values)}
    return schema | {first: inner}


def fill_defaults(value, schema: dict) -> None:
    """Add the defaults of the schema to a value, in place; raise ValidationError of jsonschema if it violates it."""
    _Filler(schema).validate(value)


def check(value, lines: dict[tuple, int], schema: dict, path) -> None:
    """Raise ConfigError for all violations: file, line, key, found value and allowed values of each."""
    problems = Problems()
    for message in violations(value, lines, schema, path).values():
        problems.add(message)
    problems.raise_all()


def violations(value, lines: dict[tuple, int], schema: dict, path) -> dict[tuple, str]:
    """Return {path of the key: message} of all violations, in the order of the file.

    A missing key is not reported beside an unknown one, often the same mistake; nothing else beside forbidden texts,
    such as passwords, which messages could quote.
    """
    if found := dict(_forbidden_texts(value, lines, path)):
        return found
    errors = list(_Validator(schema).iter_errors(value))
    unknown = {tuple(e.absolute_path) for e in errors if e.validator == "additionalProperties"}
    for error in errors:
        if error.validator == "required" and tuple(error.absolute_path) in unknown:
            continue
        if error.context:
            error = jsonschema.exceptions.best_match([error])
        for key_path, text in _describe(error):
            found.setdefault(key_path, f"{error_location(path, lines, key_path)}: {text}")
    return dict(sorted(found.items(), key=lambda entry: _line(lines, entry[0]) or 0))


def without(value, key_paths: Iterable[tuple]):
    """Return a copy of a value without the keys and list elements at some paths; those that do not exist do not count.

    >>> without({"a": {"b": 1, "c": [1, 2, 3]}}, [("a", "b"), ("a", "c", 0), ("a", "c", 2), ("a", "d")])
    {'a': {'c': [2]}}
    """
    value = copy.deepcopy(value)
    for *parents, key in sorted(key_paths, key=lambda path: [str(part).rjust(9) for part in path], reverse=True):
        inner = value
        for parent in parents:
            inner = inner[parent]
        if isinstance(inner, list) or key in inner:
            del inner[key]
    return value


def first_violation(value, schema: dict) -> str | None:
    """Return the first violation of a schema in a file of others, "key: expected X, got Y."; None if there is none."""
    error = next(_Validator(schema).iter_errors(value), None)
    if error is None:
        return None
    key_path, text = next(_describe(error))
    return f"{_dotted(key_path)}: {text}" if key_path else text


def _describe(error) -> Iterator[tuple[tuple, str]]:
    """Yield (path of the key, what is wrong with it) of a violation; several for several unknown keys."""
    key_path = tuple(error.absolute_path)
    actual = f"got {_format_value(error.instance)}."
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        for key in error.instance:
            if key not in known:
                yield (*key_path, key), f"unknown key.{_suggest(error.schema, key, known)}"
    elif error.validator == "required":
        missing = [f'"{key}"' for key in error.validator_value if key not in error.instance]
        yield (
            key_path,
            f"the key{'s' * (len(missing) > 1)} {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing.",
        )
    elif error.validator == "type":
        types = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
        example = f", such as {error.schema['x-example']}" if "x-example" in error.schema else ""
        yield key_path, f"expected {' or '.join(_TYPES[t] for t in types)}{example}, {actual}"
    elif error.validator in ("enum", "const"):
        allowed = error.validator_value if error.validator == "enum" else [error.validator_value]
        hint = _suggest(error.schema, error.instance, [_as_text(a) for a in allowed])
        yield key_path, f"unknown value {_format_value(error.instance)}.{hint}"
    elif "propertyNames" in error.absolute_schema_path:
        reason = error.message if error.validator == "format" else error.schema.get("x-error", _truncate(error.message))
        yield (*key_path, error.instance), f"invalid name; {reason}."
    elif error.validator == "format":
        yield key_path, f"{error.message}, {actual}"
    elif error.validator in ("pattern", "not") and "x-error" in error.schema:
        found = "." if error.schema.get("x-secret") else f", {actual}"  # a key in the place of its name is not shown
        yield key_path, error.schema["x-error"] + found
    elif error.validator in _BOUNDS:
        bound, unit = _BOUNDS[error.validator]
        unit = {" list entries": " list entry"}.get(unit, unit[:-1]) if error.validator_value == 1 else unit
        yield key_path, f"expected {bound} {error.validator_value}{unit}, {actual}"
    else:
        yield key_path, _truncate(error.message, 200)


def _suggest(schema: dict, name, allowed) -> str:
    """Return a hint for an unknown key or value: the current name of an earlier one, its place, or the closest."""
    if place := schema.get("x-elsewhere", {}).get(str(name)):
        return f" Did you mean {place}?"
    return suggest(schema.get("x-renamed", {}).get(str(name), name), allowed)


def error_location(path, lines: dict[tuple, int], key_path: tuple) -> str:
    """Return the location that begins an error message: `config.yaml, line 7: models.mine.dtype`."""
    line = _line(lines, key_path)
    return display_path(path) + (f", line {line}" if line else "") + (f": {_dotted(key_path)}" if key_path else "")


def mistake(path, lines: dict[tuple, int], key_path: tuple, message: str) -> ConfigError:
    """Return the error about a key of a file, which begins with its location."""
    return ConfigError(f"{error_location(path, lines, key_path)}: {message}")


def _dotted(key_path: tuple) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{_truncate(_escape(p))}" for p in key_path).lstrip(".")


def _forbidden_texts(value, lines: dict[tuple, int], path, key_path: tuple = ()) -> Iterator[tuple[tuple, str]]:
    """Yield what no key allows, regardless of the schema: unprintable text, secrets, NaN and infinity."""
    location = error_location(path, lines, key_path)
    if isinstance(value, dict):
        for key, inner in value.items():
            if _UNPRINTABLE.search(key) or "\n" in key:
                inner_location = error_location(path, lines, (*key_path, key))
                yield (*key_path, key), f"{inner_location}: the key contains an unprintable character."
                continue
            # config and task files are copied into the results; the message must not show a secret either
            if message := _forbidden_text(key):
                yield key_path, f"{location}: {message}"
            else:
                yield from _forbidden_texts(inner, lines, path, (*key_path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _forbidden_texts(inner, lines, path, (*key_path, i))
    elif isinstance(value, float) and not math.isfinite(value):
        yield key_path, f"{location}: expected a finite number, got {_format_value(value)}."
    elif isinstance(value, str) and (message := _forbidden_text(value)):
        yield key_path, f"{location}: {message}"


def _forbidden_text(text: str) -> str | None:
    return next((message for pattern, message in _FORBIDDEN_TEXT if pattern.search(text)), None)


def _pattern(validator, pattern: str, value, schema):
    """Match a pattern that ends in $ up to the end of the text: Python's $ also matches before a final line break."""
    match = re.fullmatch if pattern.endswith("$") else re.search
    if isinstance(value, str) and not match(pattern, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _format(validator, name: str, value, schema):
    """Check the tag of a language where names from outside are checked, instead of by a pattern in each schema."""
    problem = names.language_problem(value) if name == "language" and isinstance(value, str) else None
    if problem:
        yield jsonschema.ValidationError(problem.partition(": ")[2])


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"pattern": _pattern, "format": _format},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer",
        lambda _, value: isinstance(value, int) and not isinstance(value, bool),  # JSON Schema accepts 5.0
    ),
)


def _properties(validator, properties: dict, instance, schema):
    """Set missing keys to their defaults, then check all keys; from the questions and answers of jsonschema."""
    if isinstance(instance, dict):
        for key, subschema in properties.items():
            if "default" in subschema:
                instance.setdefault(key, copy.deepcopy(subschema["default"]))
    yield from jsonschema.Draft202012Validator.VALIDATORS["properties"](validator, properties, instance, schema)


_Filler = jsonschema.validators.extend(_Validator, {"properties": _properties})


def _line(lines: dict, key_path: tuple) -> int | None:
    """Return the line of a key, or of the innermost key around it that has one."""
    return next((lines[key_path[:n]] for n in range(len(key_path), 0, -1) if key_path[:n] in lines), None)


def _as_text(value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _format_value(value) -> str:
    return _truncate(escaped(json.dumps(value, ensure_ascii=False, default=str)))


def _escape(text: str) -> str:
    """Return `text` on one line, escaped as in JSON."""
    return escaped(json.dumps(text, ensure_ascii=False)[1:-1])


def _truncate(text: str, max_length: int = 60) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


_MAX_SHOWN = 20  # messages; one mistake in a long list can cause hundreds


class Problems:
    """Messages of one or two lines each, in the order in which they were found, without repetitions."""

    def __init__(self):
        self._messages: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[str]:
        return iter(self._messages)

    def add(self, message: str) -> None:
        self._messages.setdefault(message)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Add the ConfigError that ends the block, if any, and continue after it."""
        try:
            yield
        except ConfigError as error:
            self.add(str(error))

    def raise_all(self) -> None:
        """Raise ConfigError with all messages, one after the other; return if there are none."""
        if not self._messages:
            return
        messages = list(self._messages)
        if n_hidden := len(messages[_MAX_SHOWN:]):
            messages[_MAX_SHOWN:] = [f"and {format_count(n_hidden, 'more mistake')}"]
        raise ConfigError("\n".join(messages))
