"""Invalid values for every key of a schema; the cases are derived from the schema, so that new keys are covered."""

import copy
from collections.abc import Iterator


def resolved(schema: dict, root: dict) -> dict:
    """Return the schema with its $ref (one of `#/…`) resolved; its own keys take precedence."""
    while "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def schema_keys(schema: dict, root: dict, value, path: tuple = ()) -> Iterator[tuple[tuple, dict]]:
    """Yield (path, schema) of every key and entry that the schema defines, present in `value` or not."""
    schema = resolved(schema, root)
    yield path, schema
    if value is None or isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            yield from schema_keys(inner, root, value.get(key) if isinstance(value, dict) else None, (*path, key))
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict) and isinstance(value, dict):
        for key in value:
            if key not in schema.get("properties", {}):
                yield from schema_keys(additional, root, value[key], (*path, key))
    if isinstance(value, list) and "items" in schema:
        for i, entry in enumerate(value):
            yield from schema_keys(schema["items"], root, entry, (*path, i))


def replace_at(value, path: tuple, new):
    """Return a copy of `value` with `new` at `path`."""
    if not path:
        return new
    copied = copy.deepcopy(value)
    inner = copied
    for step in path[:-1]:
        if isinstance(inner, dict) and step not in inner:
            inner[step] = {}
        inner = inner[step]
    inner[path[-1]] = new
    return copied


def mappings(value, path: tuple = ()) -> Iterator[tuple[tuple, dict]]:
    """Yield (path, mapping) of every mapping in `value`."""
    if isinstance(value, dict):
        yield path, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from mappings(inner, (*path, key))
