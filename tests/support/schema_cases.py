"""Every key of a schema, wrong in every way: the cases come from the schema itself, so that a new key is covered."""

import copy
from collections.abc import Iterator

# What a careless hand, a merge conflict or a hostile file puts in a value's place.
ODD = [
    None, True, False, 0, -1, 1, 0.5, 5.0, 10**30, -(10**30), float("nan"), float("inf"), float("-inf"),
    "", " ", "no", "x", "5", "nan", "-rf", "..", "../../x", "/", "~nobody/x", "a/b", "a b", "a\nb", "a\n", "\t", "\0", "\x1b[31m",
    "\u202etxt", "né", "ne\u0301", "🙂", "\ud800", "{x}", "{{x}}", "{input}", "$(id)", "'; id", "%s", "*", "[", "x" * 300, "x" * 200_000,
    "https://me:s3cret@127.0.0.1/x", "hf_" + "s3cret" * 6, [], [[]], [None], ["x"], ["a", {"b": 1}], [1, 1], [float("nan")],
    {}, {"x": 1}, {"": ""}, {"a\nb": 1}, {"\0": None}, {"x" * 300: {}}, [["x"] * 3] * 3, {"a": {"a": {"a": []}}},
]  # fmt: skip


def resolved(schema: dict, root: dict) -> dict:
    """A schema with its $ref (one of `#/…`) put in, its own keys first."""
    while "$ref" in schema:
        found = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def keys(schema: dict, root: dict, value, at: tuple = ()) -> Iterator[tuple[tuple, dict]]:
    """(path, schema) of every key and entry that the schema knows, along what `value` has and what it lacks."""
    schema = resolved(schema, root)
    yield at, schema
    if value is None or isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            yield from keys(inner, root, value.get(key) if isinstance(value, dict) else None, (*at, key))
    others = schema.get("additionalProperties")
    if isinstance(others, dict) and isinstance(value, dict):
        for key in value:
            if key not in schema.get("properties", {}):
                yield from keys(others, root, value[key], (*at, key))
    if isinstance(value, list) and "items" in schema:
        for i, entry in enumerate(value):
            yield from keys(schema["items"], root, entry, (*at, i))


def put(value, at: tuple, new):
    """A copy of `value` with `new` at a path; None where the path leads nowhere."""
    if not at:
        return new
    copied = copy.deepcopy(value)
    inner = copied
    for step in at[:-1]:
        if isinstance(inner, dict) and step not in inner:
            inner[step] = {}
        inner = inner[step]
    inner[at[-1]] = new
    return copied


def mappings(value, at: tuple = ()) -> Iterator[tuple[tuple, dict]]:
    """(path, mapping) of every mapping in `value`."""
    if isinstance(value, dict):
        yield at, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from mappings(inner, (*at, key))
