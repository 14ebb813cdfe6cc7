"""Pattern files: the words to search for in a treebank, and the features of them to swap."""

import itertools
from pathlib import Path

from vernacular.core import validate, yaml
from vernacular.core.errors import ConfigError, closest
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import WORKFLOW

_SCHEMA = WORKFLOW / "schemas" / "pattern.schema.yaml"
READY = WORKFLOW / "treebank_patterns"
TAGS = READY / "unimorph" / "tags.yaml"  # UniMorph tags -> UD features


def load_pattern(name: str, folder=".", *, where: str = "") -> dict:
    """Load a built-in pattern by name, or a pattern file (`….yaml`, relative to `folder`), with all defaults.

    Keys: pattern (its name), phenomenon, target, related, without, swap (list of alternatives: feature -> value, None
    to remove it), ignore, open, limits; or, instead of related and without, grew, with the target's name as target.

    Raises:
        ConfigError: The pattern is invalid, with file, line and key; or its name is unknown, with `where` as location.
    """
    path = _path(name, Path(folder), where)
    content, lines = yaml.read(path)
    validate.check(content, lines, validate.schema(_SCHEMA), path)
    if content["pattern"] != path.stem:
        at = validate.place(path, lines, ("pattern",))
        raise ConfigError(f'{at}: expected the file\'s name, "{path.stem}", got "{content["pattern"]}".')
    if isinstance(content["target"], str) is not ("grew" in content):
        at = validate.place(path, lines, ("target",))
        wanted = "the name of a node of the request" if "grew" in content else "constraints, such as {upos: VERB}"
        raise ConfigError(f"{at}: expected {wanted}.")
    if "grew" in content and (extra := content.keys() & {"related", "without"}):
        at = validate.place(path, lines, (min(extra),))
        raise ConfigError(f"{at}: not supported with grew; express it in the request.")
    named = _named(content, path, lines)
    return {
        "pattern": content["pattern"],
        "phenomenon": content.get("phenomenon", content["pattern"]),
        "target": content["target"],
        **({"grew": content["grew"]} if "grew" in content else named),
        "swap": alternatives(content["swap"]),
        "ignore": content.get("ignore", []),
        "open": content.get("open", []),
        "limits": content.get("limits", {}),
    }


def ready_patterns() -> list[str]:
    """Return the names of the built-in patterns."""
    return sorted(path.stem for path in READY.glob("*.yaml"))


def alternatives(swap) -> list[dict]:
    """Return the alternatives of a swap: feature -> value (None: the feature is removed).

    >>> alternatives({"Person": [1, 2]}), alternatives([{"Gender": "Fem", "Animacy": False}])
    ([{'Person': '1'}, {'Person': '2'}], [{'Gender': 'Fem', 'Animacy': None}])
    """
    found = []
    for entry in swap if isinstance(swap, list) else [swap]:
        values = [value if isinstance(value, list) else [value] for value in entry.values()]
        for combination in itertools.product(*values):
            found.append({k: None if v is False else str(v) for k, v in zip(entry, combination, strict=True)})
    return found


def _path(name: str, folder: Path, where: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        return path if path.is_absolute() else folder / path
    if name not in ready_patterns():
        hint = closest(name, ready_patterns())
        if not where:
            raise ConfigError(f'included pattern "{name}" not found.{hint}')
        raise ConfigError(f'{where}: expected the name of an included pattern or a file (….yaml), got "{name}".{hint}')
    return READY / f"{name}.yaml"


def _named(content: dict, path, lines) -> dict:
    """Return `related` and `without` with a name for each word; raise ConfigError if `of` is not an earlier name."""
    result = {}
    names = ["target"]
    for key in ("related", "without"):
        result[key] = []
        for i, spec in enumerate(content.get(key, [])):
            of = spec.get("of", "target")
            if of not in names:
                at = validate.place(path, lines, (key, i, "of"))
                raise ConfigError(f'{at}: no earlier word has the name "{of}".{closest(of, names)}')
            name = spec.get("name", f"{key}_{i + 1}")
            if name in names:
                at = validate.place(path, lines, (key, i, "name"))
                raise ConfigError(f'{at}: duplicate name "{name}".')
            result[key].append({**spec, "name": name, "of": of})
            if key == "related":  # a forbidden word cannot be referred to
                names.append(name)
    return result


_KEPT = (
    "sentence_id",
    "match_id",
    "original_text",
    "prompt_text",
    "lemma",
    "features",
    "swapped",
    "deprel",
    "distance",
)
_COMMON = {
    "category": "phenomenon",
    "cluster": "sentence_id",
    "extra": {name: f"{name}|" for name in _KEPT},
}
_ID = ["pattern", "sentence_id", "match_id"]

# item_type -> default `columns` of a task file
COLUMNS = {
    "target_word": {
        "id": _ID, "context": "masked_text", "good": "form_grammatical", "bad": "form_ungrammatical*", **_COMMON,
    },
    "pair": {"id": _ID, "good": "original_text", "bad": "ungrammatical_text*", **_COMMON},
    "sentence": {"id": [*_ID, "label"], "context": "text", "label": "label", **_COMMON},
}  # fmt: skip


def resolve(source: dict, folder, item_type: str, where: str) -> dict:
    """Return a treebank source with its patterns loaded; any other source unchanged.

    Errors in patterns are thus reported before anything runs, and the items depend on the patterns' content. `each`
    states whether a row is a pair or one of its sentences.

    Raises:
        ConfigError: The source or a pattern is invalid; the message begins with `where`, or the pattern file.
    """
    if "treebank" not in source:
        if odd := [key for key in ("pattern", "forms") if key in source]:
            raise ConfigError(f"{where}: {odd[0]} requires the key treebank in the same source.")
        return source
    if item_type not in COLUMNS:
        raise ConfigError(f'{where}: treebanks do not support item_type "{item_type}".{closest("", COLUMNS)}')
    if "pattern" not in source:
        raise ConfigError(f'{where}: the key "pattern" is missing.{closest("", ready_patterns())}')
    named = source["pattern"] if isinstance(source["pattern"], list) else [source["pattern"]]
    patterns = [load_pattern(name, folder, where=where) for name in named]
    for key in ("treebank", "forms"):
        for entry in _listed(source.get(key, [])):
            if isinstance(entry, dict) and ("url" in entry) is ("file" in entry):
                raise ConfigError(f"{where}: each entry of {key} requires either url or file.")
    # the features of forms depend on the table of tags
    tags = {"tags": file_fingerprint(TAGS)} if "forms" in source else {}
    return {**source, **tags, "pattern": patterns, "each": "sentence" if item_type == "sentence" else "pair"}


def local_files(source: dict, folder) -> list[Path]:
    """Return the local files that a treebank source reads."""
    named = entries(source, "treebank", Path(folder)) + entries(source, "forms", Path(folder))
    return [entry["file"] for entry in named if "file" in entry]


def is_local(source: dict) -> bool:
    """Return whether a source is a treebank of local files only."""
    named = _listed(source.get("treebank", []))
    return bool(named) and not any("url" in entry if isinstance(entry, dict) else "://" in entry for entry in named)


def called(source: dict) -> str:
    """Return the name of a treebank source for messages."""
    named = _listed(source["treebank"])
    return ", ".join(entry if isinstance(entry, str) else entry.get("url") or entry["file"] for entry in named)


def _listed(value) -> list:
    return value if isinstance(value, list) else [value]


def entries(source: dict, key: str, folder: Path) -> list[dict]:
    """Return the files under `key` of a source: {url} or {file: path}, each with sha256 (None if not given)."""
    named = []
    for value in _listed(source.get(key, [])):
        entry = dict(value) if isinstance(value, dict) else {"url" if "://" in str(value) else "file": value}
        entry.setdefault("sha256", source.get("sha256") if key == "treebank" else None)
        if "url" in entry:
            named.append(entry)
            continue
        path = Path(entry["file"]).expanduser()
        path = path if path.is_absolute() else folder / path
        found = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
        named += [{"file": each, "sha256": entry["sha256"]} for each in found or [path]]
    return named
