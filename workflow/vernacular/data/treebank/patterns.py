"""Pattern files: the words to search for in a treebank, and the features of them to swap."""

import itertools
from pathlib import Path

from vernacular.core import validate, yaml
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.fields import as_list
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import WORKFLOW

_SCHEMA = WORKFLOW / "schemas" / "pattern.schema.yaml"
PATTERN_DIRECTORY = WORKFLOW / "treebank_patterns"
TAGS = PATTERN_DIRECTORY / "unimorph" / "tags.yaml"  # UniMorph tags -> UD features


def load_pattern(name: str, directory=".", *, location: str = "") -> dict:
    """Load a built-in pattern by name, or a file (`….yaml`, relative to `directory`), with all defaults.

    `swap` is a list of alternatives: feature -> value, None to remove it; `target` of a GREW request is its name.
    Raises ConfigError with file, line and key, or with the `location` of an unknown name.
    """
    path = _pattern_path(name, Path(directory), location)
    content, lines = yaml.read(path)
    validate.check(content, lines, validate.schema(_SCHEMA), path)
    if content["pattern"] != path.stem:
        expected = f'expected the file\'s name, "{path.stem}", got "{content["pattern"]}".'
        raise validate.mistake(path, lines, ("pattern",), expected)
    if "corrupt" in content:
        if extra := content.keys() - {"pattern", "phenomenon", "about", "corrupt"}:
            raise validate.mistake(path, lines, (min(extra),), "not supported with corrupt; remove it.")
        phenomenon = content.get("phenomenon", content["pattern"])
        return {"pattern": content["pattern"], "phenomenon": phenomenon, "corrupt": content["corrupt"]}
    if isinstance(content["target"], str) is not ("grew" in content):
        expected = "the name of a node of the request" if "grew" in content else "constraints, such as {upos: VERB}"
        raise validate.mistake(path, lines, ("target",), f"expected {expected}.")
    if "grew" in content and (unsupported := content.keys() & {"related", "without"}):
        advice = "not supported with grew; express it in the request."
        raise validate.mistake(path, lines, (min(unsupported),), advice)
    related_words = _name_related_words(content, path, lines)
    return {
        "pattern": content["pattern"],
        "phenomenon": content.get("phenomenon", content["pattern"]),
        "target": content["target"],
        **({"grew": content["grew"]} if "grew" in content else related_words),
        "swap": alternatives(content["swap"]),
        "ignore": content.get("ignore", []),
        "open": content.get("open", []),
        "limits": content.get("limits", {}),
    }


def builtin_patterns() -> list[str]:
    """Return the names of the built-in patterns."""
    return sorted(path.stem for path in PATTERN_DIRECTORY.glob("*.yaml"))


def alternatives(swap) -> list[dict]:
    """Return the alternatives of a swap: feature -> value (None: the feature is removed).

    >>> alternatives({"Person": [1, 2]}), alternatives([{"Gender": "Fem", "Animacy": False}])
    ([{'Person': '1'}, {'Person': '2'}], [{'Gender': 'Fem', 'Animacy': None}])
    """
    result = []
    for entry in as_list(swap):
        for combination in itertools.product(*map(as_list, entry.values())):
            result.append({k: None if v is False else str(v) for k, v in zip(entry, combination, strict=True)})
    return result


def _pattern_path(name: str, directory: Path, location: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        return path if path.is_absolute() else directory / path
    if name not in builtin_patterns():
        hint = suggest(name, builtin_patterns())
        if not location:
            raise ConfigError(f'included pattern "{name}" not found.{hint}')
        raise ConfigError(
            f'{location}: expected the name of an included pattern or a file (….yaml), got "{name}".{hint}'
        )
    return PATTERN_DIRECTORY / f"{name}.yaml"


def _name_related_words(content: dict, path, lines) -> dict:
    """Return `related` and `without` with a name for each word; raise ConfigError if `of` is not an earlier name."""
    result = {}
    names = ["target"]
    for key in ("related", "without"):
        result[key] = []
        for i, spec in enumerate(content.get(key, [])):
            reference = spec.get("of", "target")
            if reference not in names:
                reason = f'no earlier word has the name "{reference}".{suggest(reference, names)}'
                raise validate.mistake(path, lines, (key, i, "of"), reason)
            name = spec.get("name", f"{key}_{i + 1}")
            if name in names:
                raise validate.mistake(path, lines, (key, i, "name"), f'duplicate name "{name}".')
            result[key].append({**spec, "name": name, "of": reference})
            if key == "related":  # a forbidden word cannot be referred to
                names.append(name)
    return result


_EXTRA_COLUMNS = ("sentence_id", "match_id", "original_text", "prompt_text", "lemma", "features", "swapped", "deprel",
                  "distance")  # fmt: skip
_COMMON_COLUMNS = {"category": "phenomenon", "cluster": "sentence_id"}
_COMMON_COLUMNS |= {"extra": {name: f"{name}|" for name in _EXTRA_COLUMNS}}
_ID = ["pattern", "sentence_id", "match_id"]

# item_type -> default `columns` of a task file
COLUMNS = {
    "target_word": {
        "id": _ID, "context": "masked_text", "good": "form_grammatical", "bad": "form_ungrammatical*",
        **_COMMON_COLUMNS,
    },
    "pair": {"id": _ID, "good": "original_text", "bad": "ungrammatical_text*", **_COMMON_COLUMNS},
    "sentence": {"id": [*_ID, "label"], "context": "text", "label": "label", **_COMMON_COLUMNS},
}  # fmt: skip


def resolve(source: dict, directory, item_type: str, location: str) -> dict:
    """Return a treebank source with its patterns loaded, on which items depend; any other source unchanged.

    Raises ConfigError, which begins with `location`, or the pattern file.
    """
    if "treebank" not in source:
        if misplaced := [key for key in ("pattern", "forms") if key in source]:
            raise ConfigError(f"{location}: {misplaced[0]} requires the key treebank in the same source.")
        return source
    if item_type not in COLUMNS:
        raise ConfigError(f'{location}: treebanks do not support item_type "{item_type}".{suggest("", COLUMNS)}')
    if "pattern" not in source:
        raise ConfigError(f'{location}: the key "pattern" is missing.{suggest("", builtin_patterns())}')
    patterns = [load_pattern(name, directory, location=location) for name in as_list(source["pattern"])]
    if item_type == "target_word" and (corrupting := [each["pattern"] for each in patterns if "corrupt" in each]):
        raise ConfigError(
            f"{location}: {corrupting[0]} changes no form of a word; expected item_type: pair or sentence."
        )
    for key in ("treebank", "forms"):
        for entry in as_list(source.get(key, [])):
            if isinstance(entry, dict) and ("url" in entry) is ("file" in entry):
                raise ConfigError(f"{location}: each entry of {key} requires either url or file.")
    # the features of forms depend on the table of tags
    tags = {"tags": file_fingerprint(TAGS)} if "forms" in source else {}
    return {**source, **tags, "pattern": patterns, "unit": "sentence" if item_type == "sentence" else "pair"}


def local_files(source: dict, directory) -> list[Path]:
    """Return the local files that a treebank source reads."""
    files = entries(source, "treebank", Path(directory)) + entries(source, "forms", Path(directory))
    return [entry["file"] for entry in files if "file" in entry]


def is_local(source: dict) -> bool:
    """Return whether a source is a treebank of local files only."""
    files = as_list(source.get("treebank", []))
    return bool(files) and not any("url" in entry if isinstance(entry, dict) else "://" in entry for entry in files)


def source_name(source: dict) -> str:
    """Return the name of a treebank source for messages."""
    files = as_list(source["treebank"])
    return ", ".join(entry if isinstance(entry, str) else entry.get("url") or entry["file"] for entry in files)


def entries(source: dict, key: str, directory: Path) -> list[dict]:
    """Return the files under `key` of a source: {url} or {file: path}, each with sha256 (None if not given)."""
    files = []
    for value in as_list(source.get(key, [])):
        entry = dict(value) if isinstance(value, dict) else {"url" if "://" in str(value) else "file": value}
        entry.setdefault("sha256", source.get("sha256") if key == "treebank" else None)
        if "url" in entry:
            files.append(entry)
            continue
        path = Path(entry["file"]).expanduser()
        path = path if path.is_absolute() else directory / path
        matches = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
        files += [{"file": file, "sha256": entry["sha256"]} for file in matches or [path]]
    return files
