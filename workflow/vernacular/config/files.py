"""Reading of config files: each is checked against the schema, and later files take precedence."""

import copy
import os
from dataclasses import dataclass, field
from pathlib import Path

from vernacular.core import validate, yaml
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.validate import Problems
from vernacular.protocols.registry import OWN, PROTOCOLS

_SCHEMA = WORKFLOW / "schemas" / "config.schema.yaml"
_INDEPENDENT = ("models", "evaluations", "external_results")  # their entries are checked if others are invalid


@dataclass
class Files:
    """The merged content of config files, where each key is from, and all mistakes found in them."""

    values: dict = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    _sources: dict = field(default_factory=dict)  # top-level key -> (last file that sets it, its line numbers)
    paths: list = field(default_factory=list)  # of the files
    _last: Path | str = ""  # the last file, for values that no file sets
    _invalid: set = field(default_factory=set)  # paths of keys that violate the schema

    def report(self, key_path: tuple, message: str) -> None:
        """Add a mistake, with the file and line of its key."""
        path, lines = self._sources.get(key_path[0], (self._last, {}))
        self.problems.add(f"{validate.error_location(path, lines, key_path)}: {message}")

    def is_valid(self, *key_path) -> bool:
        """Return whether neither the key nor any key inside it violates the schema."""
        return not any(path[: len(key_path)] == key_path for path in self._invalid)

    def add(self, value: dict, lines: dict, schema: dict, path) -> None:
        schema = {**schema, "required": []}
        found = validate.violations(value, lines, schema, path)
        for message in found.values():
            self.problems.add(message)
        # without the keys that violate the schema, what else is wrong with their entries is found, too
        inner = [
            each
            for each in found
            if len(each) > (2 if each[:1] in {(key,) for key in _INDEPENDENT} else 1) and _IDENTITY.isdisjoint(each)
        ]
        value = validate.without(value, inner)
        self._invalid |= validate.violations(value, lines, schema, path).keys() if inner else found.keys()
        if isinstance(value, dict):
            self.values |= value
            self._sources |= dict.fromkeys(value, (path, lines))

    def valid(self, key: str):
        """Return a value, of an invalid list or mapping of independent entries the valid ones; None without any."""
        value = self.values[key]
        if self.is_valid(key):
            return value
        if key not in _INDEPENDENT or (key,) in self._invalid:
            return None
        if isinstance(value, dict):
            return {name: inner for name, inner in value.items() if self.is_valid(key, name)} or None
        return [inner for i, inner in enumerate(value) if self.is_valid(key, i)] or None

    def with_defaults(self) -> dict:
        """Return the valid values with the defaults of the schema; of a list or mapping, the valid entries."""
        valid = {}
        for key in self.values:
            if (value := self.valid(key)) is not None:
                valid[key] = copy.deepcopy(value)  # the defaults are not what the user wrote
        has_models = "models" in valid
        valid.setdefault("models", {"none": {}})  # so that the evaluations are checked if no model is valid
        validate.fill_defaults(valid, validate.schema(_SCHEMA))
        return valid if has_models else {**valid, "models": {}}


_IDENTITY = {"source", "base", "adapter", "series", "task", "lm_eval"}  # keys without which an entry is another one
_SOURCES = ("source", "adapter", "tokenizer", "reference", "series")  # keys of a model


def _with_existing_paths(value):
    """Return the content of a config file with "./" before sources that exist on this disk, but look like Hub IDs."""
    models = value.get("models") if isinstance(value, dict) else None
    similarity = value.get("similarity") if isinstance(value, dict) else None
    encoders = similarity.get("encoders") if isinstance(similarity, dict) else None

    def fix(source):
        is_relative = isinstance(source, str) and not source.startswith((".", "/", "~")) and source.strip()
        return f"./{source}" if is_relative and "\0" not in source and os.path.exists(source) else source

    def fixed(entries):
        return {
            name: {key: fix(entry[key]) if key in _SOURCES else entry[key] for key in entry}
            if isinstance(entry, dict)
            else fix(entry)
            for name, entry in entries.items()
        }

    if isinstance(models, dict):
        value = {**value, "models": fixed(models)}
    if isinstance(encoders, dict):
        value = {**value, "similarity": {**similarity, "encoders": fixed(encoders)}}
    return value


def read(paths: list[Path], overrides: dict | None, origin: str) -> Files:
    """Read config files, then `overrides` from `origin`: `--config`, or the module that they configure.

    Raises ConfigError if a file cannot be read, or nothing can be checked further.
    """
    schema = validate.with_values(validate.schema(_SCHEMA), ("$defs", "protocol"), sorted(OWN))
    styles = dict.fromkeys(style for protocol in PROTOCOLS.values() for style in protocol.styles)
    schema = validate.with_values(schema, ("$defs", "style"), styles)
    files = Files(paths=list(paths), _last="" if paths else origin)
    for path in paths:
        value, lines = yaml.read(path)
        if value is None:
            files.problems.add(
                f'{display_path(path)}: expected the keys "models" and "evaluations", got an empty file.'
            )
            files.problems.raise_all()
        files.add(_with_existing_paths(value), lines, schema, path)
        files._last = path
    files.add(_with_existing_paths(overrides or {}), {}, schema, origin)
    if all(files.is_valid(key) for key in files.values):
        required = {"type": "object", "required": schema["required"]}
        names = ", ".join(map(display_path, paths)) or origin
        for message in validate.violations(files.values, {}, required, names).values():
            files.problems.add(message)
    if any(key not in files.values for key in schema["required"]) or files.valid("evaluations") is None:
        files.problems.raise_all()
    return files
