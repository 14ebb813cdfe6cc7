"""Read a YAML file a person wrote, and say in one or two lines what is wrong with it.

YAML 1.2 booleans only, so that `no` stays the Norwegian language; a key given twice is an error; every value remembers
its line.
"""

import json
import os
import re
from pathlib import Path

import jsonschema
import yaml

from vernacular.errors import ConfigError, closest

_TYPES = {
    "object": "a mapping (key: value)",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 booleans, duplicate keys refused, and the line of each value kept in `lines`."""

    def __init__(self, stream):
        super().__init__(stream)
        self.nodes = {}

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own way to set them)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF")


def shown(path) -> str:
    """A path as a person would type it from where they stand."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def read(path) -> tuple[object, dict[tuple, int]]:
    """The file's content, and the line (from 1) of every key and list entry by its path, such as ("models", "x").

    Raises ConfigError naming file and line for a file that is missing, not UTF-8, or not YAML.
    """
    path = shown(path)
    try:
        text = Path(path).read_text("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigError(f"{path}: there is no such file.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[tuple, int] = {}
        if node is None:
            return None, lines
        _note_lines(node, (), lines, path, set())
        return loader.construct_document(node), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        hint = " Indent with spaces, not tabs." if "\\t" in str(problem) else ""
        raise ConfigError(f"{where}: not valid YAML ({problem}).{hint}") from None
    except (ValueError, RecursionError) as error:  # an impossible date, say
        raise ConfigError(f"{path}: not valid YAML ({error}).") from None


def check(value, lines: dict[tuple, int], schema: dict, path) -> None:
    """Raise ConfigError with the most telling violation: file, line, key, what was found, what is allowed."""
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(value))
    if not errors:
        return
    # the shallowest error first: it is the one that explains the others; then the order of the file
    error = min(errors, key=lambda e: (len(e.absolute_path), _line(lines, e) or 0))
    if error.context:
        error = jsonschema.exceptions.best_match([error])
    at = tuple(error.absolute_path)
    where = place(path, lines, at)
    found = f"found {_short(error.instance)}"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        key = next(k for k in error.instance if k not in known)
        raise ConfigError(f"{place(path, lines, (*at, key))}: unknown key.{closest(key, known)}")
    if error.validator == "required":
        key = next(k for k in error.validator_value if k not in error.instance)
        raise ConfigError(f'{where}: the key "{key}" is missing.')
    if error.validator == "type":
        types = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
        raise ConfigError(f"{where}: {found}, expected {' or '.join(_TYPES[t] for t in types)}.")
    if error.validator in ("enum", "const"):
        allowed = error.validator_value if error.validator == "enum" else [error.validator_value]
        raise ConfigError(f"{where}: {found}.{closest(error.instance, [_plain(a) for a in allowed])}")
    if "propertyNames" in error.absolute_schema_path:
        name = place(path, lines, (*at, error.instance))
        raise ConfigError(f"{name}: cannot be a name here; {error.schema.get('x-error', error.message)}")
    if error.validator == "pattern" and "x-error" in error.schema:
        raise ConfigError(f"{where}: {found}; {error.schema['x-error']}")
    bounds = {
        "minimum": "at least",
        "maximum": "at most",
        "minItems": "entries: at least",
        "minProperties": "entries: at least",
    }
    if error.validator in bounds:
        raise ConfigError(f"{where}: {found}, expected {bounds[error.validator]} {error.validator_value}.")
    raise ConfigError(f"{where}: {error.schema.get('x-error') or error.message[:200]}")


def place(path, lines: dict[tuple, int], at: tuple) -> str:
    """`config.yaml, line 7: models.mine.dtype`, as every complaint begins."""
    dotted = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in at).lstrip(".")
    line = next((lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in lines), None)
    return shown(path) + (f", line {line}" if line else "") + (f": {dotted}" if dotted else "")


def _note_lines(node, at: tuple, lines: dict, path, open_nodes: set) -> None:
    if id(node) in open_nodes:
        raise ConfigError(f"{path}, line {node.start_mark.line + 1}: an anchor that contains itself.")
    open_nodes = open_nodes | {id(node)}
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else str(key.value)
            if name in seen and name != "<<":
                raise ConfigError(f'{place(path, lines, at)}, line {key.start_mark.line + 1}: "{name}" is given twice.')
            seen.add(name)
            lines[(*at, name)] = key.start_mark.line + 1
            _note_lines(value, (*at, name), lines, path, open_nodes)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            lines[(*at, i)] = value.start_mark.line + 1
            _note_lines(value, (*at, i), lines, path, open_nodes)


def _line(lines: dict, error) -> int | None:
    return lines.get(tuple(error.absolute_path))


def _plain(value) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _short(value) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
