"""Where the rows of one of their tasks are: `dataset_path` and what goes with it, as a source of ours."""

import re
from pathlib import Path

from vernacular.core.errors import ConfigError
from vernacular.core.validate import shown

_FORMATS = ("json", "csv", "parquet")  # builders of `datasets` that read files


def source_of(content: dict, path: Path, *, few_shot: str | None) -> dict:
    """Where the rows are, as a source of ours; `few_shot` is the split that solved examples come from."""
    where, options = content.get("dataset_path"), dict(content.get("dataset_kwargs") or {})
    if not where:
        raise ConfigError(f'{shown(path)}: the key "dataset_path" is missing.')
    options.pop("trust_remote_code", None)  # loading scripts are never run
    files_by_split, revision = options.pop("data_files", None), options.pop("revision", None)
    if options:
        raise unsupported(path, f"dataset_kwargs.{next(iter(options))}")
    test = first_split(content, "test", "validation")
    if test is None:
        raise ConfigError(f'{shown(path)}: has neither "test_split" nor "validation_split" to evaluate.')
    if where in _FORMATS:
        return _files(files_by_split, test, few_shot, where, path)
    if files_by_split is not None:
        raise unsupported(path, "dataset_kwargs.data_files", f"beside dataset_path: {where}")
    if Path(where).is_absolute() or where.startswith("."):
        raise unsupported(path, f"dataset_path: {where}", "a folder; name its files with data_files")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", where):
        raise unsupported(path, f"dataset_path: {where}", "a data set on the Hub is written owner/name")
    given = {
        "hub": where,
        "config": content.get("dataset_name"),
        "split": test,
        "few_shot": few_shot,
        "revision": revision,
    }
    return {key: value for key, value in given.items() if value is not None}


def _files(given, test: str, few: str | None, form: str, path: Path) -> dict:
    """`data_files` by split; a name alone is the split train, as `datasets` has it."""
    by_split = given if isinstance(given, dict) else {"train": given}
    found = {}
    for split in dict.fromkeys(filter(None, (test, few))):
        names = by_split.get(split)
        names = names if isinstance(names, list) else [names]
        if len(names) != 1 or not isinstance(names[0], str) or "*" in names[0]:
            raise unsupported(path, "dataset_kwargs.data_files", f"one file is needed for the split {split}")
        found[split] = names[0]
    hub = "hf://datasets/"
    if all(name.startswith(hub) for name in found.values()):
        parts = {split: name.removeprefix(hub).split("/", 2) for split, name in found.items()}
        owners = {"/".join(part[:2]) for part in parts.values()}
        if len(owners) != 1 or any(len(part) != 3 for part in parts.values()):
            raise unsupported(path, "dataset_kwargs.data_files", "files of one repository are needed")
        repository, _, revision = owners.pop().partition("@")
        source = {"hub": repository, "files": {split: part[2] for split, part in parts.items()}, "split": test}
        return source | ({"few_shot": few} if few else {}) | ({"revision": revision} if revision else {})
    if found[test].startswith(("http://", "https://")):
        if few not in (None, test):
            raise unsupported(path, "dataset_kwargs.data_files", "a web address for each of two splits")
        return {"url": found[test], "format": form, "split": test}
    try:
        here = {split: str((path.parent / Path(name).expanduser()).resolve()) for split, name in found.items()}
    except (RuntimeError, ValueError, OSError):  # the home of nobody, a null character, a loop of links
        raise unsupported(path, "dataset_kwargs.data_files", "no name of a file here") from None
    return {"file": here[test], "format": form, "split": test} | (
        {"few_shot": here[few]} if few != test and few else {}
    )


def first_split(content: dict, *names: str) -> str | None:
    return next((split for name in names if (split := content.get(f"{name}_split")) is not None), None)


def unsupported(path: Path, key: str, why: str = "") -> ConfigError:
    """The complaint about a key that cannot be done."""
    return ConfigError(f"{shown(path)}: {key} is not supported" + (f" ({why})." if why else "."))
