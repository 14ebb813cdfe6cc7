"""Task files of lm-evaluation-harness (lm-eval): YAML with includes and functions, and the dataset of a task."""

import functools
import glob
import importlib.util
import re
from pathlib import Path

import yaml

from vernacular.core.errors import ConfigError, suggest
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import display_path
from vernacular.core.yaml import config_error, read_text

_SKIPPED_DIRECTORIES = {"__pycache__", ".ipynb_checkpoints"}
_MAX_INCLUDE_DEPTH = 50  # maximum depth of includes


def read(name: str, directory: Path) -> tuple[dict, Path]:
    """Return (content, path) of an lm-eval task file.

    A `!function utils.f` becomes {"function": "utils.f", "file": path or None, "sha256": of that file}.

    Args:
        name: A path, absolute or relative to `directory`, or the name of a task of the installed lm_eval.

    Raises:
        ConfigError: The file or task does not exist, is not valid YAML, or is a group of tasks.
    """
    path = find(name, directory)
    content = _read(path, (), {})
    if "group" in content or isinstance(content.get("task"), list):
        raise ConfigError(f"{display_path(path)}: is a group of tasks; give one of its tasks.{_members(content)}")
    return content, path


def find(name: str, directory: Path) -> Path:
    """Return the path of the task file `name`; see `read`."""
    path = Path(name).expanduser()
    path = path if path.is_absolute() else directory / path
    if is_file(path):
        return path
    if "/" in name or name.endswith((".yaml", ".yml")):
        raise ConfigError(f"{display_path(path)}: lm-eval task file not found.")
    root = installed()
    if root is None:
        raise ConfigError(
            f'lm-eval task "{name}": lm_eval is not installed in this environment; '
            "install it, or give the path of the task's YAML file."
        )
    return _find_by_name(name, root)


def installed() -> Path | None:
    """Return the tasks directory of the installed lm_eval, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("lm_eval")
    locations = list(spec.submodule_search_locations or ()) if spec else []
    return next((Path(location) / "tasks" for location in locations if (Path(location) / "tasks").is_dir()), None)


def _find_by_name(name: str, root: Path) -> Path:
    """Return the file with `task: name`; files are searched as text, because there are over ten thousand of them."""
    for path in sorted(root.rglob(f"{glob.escape(name)}.yaml")):
        if name in _names(path)["task"]:
            return path
    names_by_path = {
        path: _names(path) for path in sorted(root.rglob("*.yaml")) if not _SKIPPED_DIRECTORIES & set(path.parts)
    }
    for path, names in names_by_path.items():
        if name in names["task"]:
            return path
    for path in [path for path, names in names_by_path.items() if name in names["group"]]:
        content = _read(path, (), {})
        raise ConfigError(f'lm-eval task "{name}": is a group of tasks; give one of its tasks.{_members(content)}')
    members = sorted({task for names in names_by_path.values() if name in names["tag"] for task in names["task"]})
    if members:
        hint = f"Tasks: {', '.join(members[:8])}{', …' if len(members) > 8 else ''}."
        raise ConfigError(f'lm-eval task "{name}": is a tag of several tasks; give one of its tasks. {hint}')
    task_names = [task for names in names_by_path.values() for task in names["task"]]
    raise ConfigError(f'lm-eval task "{name}": not found in the installed lm_eval.{suggest(name, task_names)}')


@functools.cache
def _names(path: Path) -> dict[str, list[str]]:
    """Return the one-line values of task, tag and group in a file."""
    content = path.read_text("utf-8", "replace")
    return {
        key: [
            value.strip().strip("'\"") for value in re.findall(rf"^(?:{key}|- {key}):[ \t]+([^\n#\[]+)", content, re.M)
        ]
        + (re.findall(r"^ *- +([\w.-]+) *$", _block(content, key), re.M) if key == "tag" else [])
        for key in ("task", "tag", "group")
    }


def _block(text: str, key: str) -> str:
    """Return the list entries under a key, as text."""
    match = re.search(rf"^{key}:[ \t]*\n((?:[ \t]*- .*\n?)+)", text, re.M)
    return match.group(1) if match else ""


def _read(path: Path, parents: tuple[Path, ...], cache: dict[Path, dict]) -> dict:
    """Return a file's content; `parents` are the files that include it, `cache` the contents of all files read."""
    path = path.resolve()
    if path in parents:
        raise ConfigError(f"{display_path(path)}: includes itself, through {display_path(parents[-1])}.")
    if len(parents) > _MAX_INCLUDE_DEPTH:
        raise ConfigError(f"{display_path(path)}: included through more than {_MAX_INCLUDE_DEPTH} files.")
    if path not in cache:
        cache[path] = _merge_includes(path, parents, cache)
    return dict(cache[path])


def _merge_includes(path: Path, parents: tuple[Path, ...], cache: dict[Path, dict]) -> dict:
    content = _load_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{display_path(path)}: is not an lm-eval task file (expected `key: value` lines).")
    included = content.pop("include", [])
    merged: dict = {}
    for name in included if isinstance(included, list) else [included]:
        if not isinstance(name, str) or not is_file(included_path := path.parent / name):
            raise ConfigError(f"{display_path(path)}: include: file not found: {name}.")
        included_content = _read(included_path, (*parents, path), cache)
        included_content.pop("task_list", None)  # applies to that file only
        merged |= included_content
    return merged | content


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or contains a null character
        return False


def _load_yaml(path: Path):
    class Loader(yaml.SafeLoader):  # PyYAML, as in lm-eval: YAML 1.1, where `no` is false and `y` is text
        pass

    Loader.add_constructor("!function", functools.partial(_construct_function, directory=path.parent))
    text = read_text(path)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # ValueError: a date in month 13
        raise config_error(path, error) from None


def _construct_function(loader, node, *, directory: Path) -> dict:
    name = loader.construct_scalar(node)
    module = directory / (name.rpartition(".")[0].replace(".", "/") + ".py")
    exists = not name.startswith(".") and is_file(module)  # .tmp.f would be /tmp.py
    return {
        "function": name,
        "file": str(module) if exists else None,
        "sha256": file_fingerprint(module) if exists else None,
    }


def _members(content: dict) -> str:
    tasks = content.get("task")
    if not isinstance(tasks, list):
        return ""
    names = [str(t.get("task") or t.get("group")) if isinstance(t, dict) else str(t) for t in tasks if t]
    return f" Tasks: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}."


_FORMATS = ("json", "csv", "parquet")  # builders of `datasets` that read files


def dataset_source(content: dict, path: Path, *, few_shot_split: str | None) -> dict:
    """Return the source of the rows, as in other task files; `few_shot_split` is the split of the few-shot examples.

    Raises:
        ConfigError: The file lacks a key, or has a key or value that is not supported.
    """
    dataset_path, kwargs = content.get("dataset_path"), dict(content.get("dataset_kwargs") or {})
    if not dataset_path:
        raise ConfigError(f'{display_path(path)}: the key "dataset_path" is missing.')
    kwargs.pop("trust_remote_code", None)  # loading scripts are never run
    files_by_split, revision = kwargs.pop("data_files", None), kwargs.pop("revision", None)
    if kwargs:
        raise unsupported(path, f"dataset_kwargs.{next(iter(kwargs))}")
    test_split = first_split(content, "test", "validation")
    if test_split is None:
        raise ConfigError(f'{display_path(path)}: the key "test_split" or "validation_split" is missing.')
    if dataset_path in _FORMATS:
        return _files(files_by_split, test_split, few_shot_split, dataset_path, path)
    if files_by_split is not None:
        raise unsupported(path, "dataset_kwargs.data_files", f"with dataset_path: {dataset_path}")
    if Path(dataset_path).is_absolute() or dataset_path.startswith("."):
        raise unsupported(path, f"dataset_path: {dataset_path}", "a directory; list its files in data_files")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", dataset_path):
        raise unsupported(path, f"dataset_path: {dataset_path}", "expected owner/name of a dataset on the Hub")
    source = {
        "hub": dataset_path,
        "config": content.get("dataset_name"),
        "split": test_split,
        "few_shot": few_shot_split,
        "revision": revision,
    }
    return {key: value for key, value in source.items() if value is not None}


def _files(data_files, test_split: str, few_shot_split: str | None, file_format: str, path: Path) -> dict:
    """Return the source of `data_files`, {split: file}; a single file is the split train, as in `datasets`."""
    files_by_split = data_files if isinstance(data_files, dict) else {"train": data_files}
    files = {}
    for split in dict.fromkeys(filter(None, (test_split, few_shot_split))):
        names = files_by_split.get(split)
        names = names if isinstance(names, list) else [names]
        if len(names) != 1 or not isinstance(names[0], str) or "*" in names[0]:
            raise unsupported(path, "dataset_kwargs.data_files", f"expected one file for the split {split}")
        files[split] = names[0]
    hub_prefix = "hf://datasets/"
    if all(name.startswith(hub_prefix) for name in files.values()):
        parts = {split: name.removeprefix(hub_prefix).split("/", 2) for split, name in files.items()}
        owners = {"/".join(part[:2]) for part in parts.values()}
        if len(owners) != 1 or any(len(part) != 3 for part in parts.values()):
            raise unsupported(path, "dataset_kwargs.data_files", "expected files of one repository")
        repository, _, revision = owners.pop().partition("@")
        source = {"hub": repository, "files": {split: part[2] for split, part in parts.items()}, "split": test_split}
        return (
            source
            | ({"few_shot": few_shot_split} if few_shot_split else {})
            | ({"revision": revision} if revision else {})
        )
    if files[test_split].startswith(("http://", "https://")):
        if few_shot_split not in (None, test_split):
            raise unsupported(path, "dataset_kwargs.data_files", "a URL for each of two splits")
        return {"url": files[test_split], "format": file_format, "split": test_split}
    try:
        paths = {split: str((path.parent / Path(name).expanduser()).resolve()) for split, name in files.items()}
    except (RuntimeError, ValueError, OSError):  # home of an unknown user, null character, loop of symlinks
        raise unsupported(path, "dataset_kwargs.data_files", "not a valid file name on this system") from None
    return {"file": paths[test_split], "format": file_format, "split": test_split} | (
        {"few_shot": paths[few_shot_split]} if few_shot_split != test_split and few_shot_split else {}
    )


def first_split(content: dict, *names: str) -> str | None:
    return next((split for name in names if (split := content.get(f"{name}_split")) is not None), None)


def unsupported(path: Path, key: str, reason: str = "") -> ConfigError:
    """Return the error for a key that is not supported."""
    return ConfigError(f"{display_path(path)}: {key} is not supported" + (f" ({reason})." if reason else "."))
