"""What a task file may say under `source: {treebank: …}`; light, because every reading of a config comes by here."""

from pathlib import Path

from vernacular.core.errors import ConfigError, closest
from vernacular.core.fingerprint import file_fingerprint
from vernacular.data.treebank.pattern import load_pattern, ready_patterns
from vernacular.data.treebank.unimorph import TAGS

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

# prompt -> columns of a task file that names none
COLUMNS = {
    "target_word": {
        "id": _ID, "context": "masked_text", "good": "form_grammatical", "bad": "form_ungrammatical*", **_COMMON,
    },
    "pair": {"id": _ID, "good": "original_text", "bad": "ungrammatical_text*", **_COMMON},
    "sentence": {"id": [*_ID, "label"], "context": "text", "label": "label", **_COMMON},
}  # fmt: skip


def resolve(source: dict, folder, prompt: str, where: str) -> dict:
    """The source with its patterns read, so that their mistakes show before anything runs and their content counts.

    `each` says whether a row is a pair or one of its sentences. Any other source comes back as it is. Raises
    ConfigError, which begins with `where`.
    """
    if "treebank" not in source:
        if odd := [key for key in ("pattern", "forms") if key in source]:
            raise ConfigError(f"{where}: {odd[0]} belongs to a treebank, and this source names none.")
        return source
    if prompt not in COLUMNS:
        raise ConfigError(f'{where}: a treebank makes no items of prompt "{prompt}".{closest("", COLUMNS)}')
    if "pattern" not in source:
        raise ConfigError(f'{where}: the key "pattern" is missing.{closest("", ready_patterns())}')
    named = source["pattern"] if isinstance(source["pattern"], list) else [source["pattern"]]
    patterns = [load_pattern(name, folder, where=where) for name in named]
    for key in ("treebank", "forms"):
        for entry in _listed(source.get(key, [])):
            if isinstance(entry, dict) and ("url" in entry) is ("file" in entry):
                raise ConfigError(f"{where}: an entry of {key} has either url or file.")
    # the table of tags decides what a list of forms gives
    tags = {"tags": file_fingerprint(TAGS)} if "forms" in source else {}
    return {**source, **tags, "pattern": patterns, "each": "sentence" if prompt == "sentence" else "pair"}


def local_files(source: dict, folder) -> list[Path]:
    """The files on this disk that a treebank source reads."""
    named = entries(source, "treebank", Path(folder)) + entries(source, "forms", Path(folder))
    return [entry["file"] for entry in named if "file" in entry]


def is_local(source: dict) -> bool:
    """Is it a treebank, all on this disk?"""
    named = _listed(source.get("treebank", []))
    return bool(named) and not any("url" in entry if isinstance(entry, dict) else "://" in entry for entry in named)


def called(source: dict) -> str:
    """What to call the source in a complaint."""
    named = _listed(source["treebank"])
    return ", ".join(entry if isinstance(entry, str) else entry.get("url") or entry["file"] for entry in named)


def _listed(value) -> list:
    return value if isinstance(value, list) else [value]


def entries(source: dict, key: str, folder: Path) -> list[dict]:
    """The files that a source names under `key`: {url} or {file: path}, each with sha256 (None where not stated)."""
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
