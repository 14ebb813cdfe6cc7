"""Task files of lm-evaluation-harness (lm-eval): YAML with includes and functions, and the dataset of a task."""

import functools
import glob
import importlib.util
import re
from pathlib import Path

import yaml

from vernacular.core.errors import ConfigError, closest
from vernacular.core.fingerprint import file_fingerprint
from vernacular.core.paths import display_path
from vernacular.core.yaml import invalid, read_text

_SKIPPED = {"__pycache__", ".ipynb_checkpoints"}
_DEEPEST = 50  # maximum depth of includes


def read(name: str, folder: Path) -> tuple[dict, Path]:
    """Return (content, path) of an lm-eval task file.

    A `!function utils.f` becomes {"function": "utils.f", "file": path or None, "sha256": of that file}.

    Args:
        name: A path, absolute or relative to `folder`, or the name of a task of the installed lm_eval.

    Raises:
        ConfigError: The file or task does not exist, is not valid YAML, or is a group of tasks.
    """
    path = find(name, folder)
    content = _read(path, (), {})
    if "group" in content or isinstance(content.get("task"), list):
        raise ConfigError(f"{display_path(path)}: is a group of tasks; give one of its tasks.{_members(content)}")
    return content, path


def find(name: str, folder: Path) -> Path:
    """Return the path of the task file `name`; see `read`."""
    path = Path(name).expanduser()
    path = path if path.is_absolute() else folder / path
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
    return _by_name(name, root)


def installed() -> Path | None:
    """Return the tasks directory of the installed lm_eval, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("lm_eval")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return next((Path(place) / "tasks" for place in places if (Path(place) / "tasks").is_dir()), None)


def _by_name(name: str, root: Path) -> Path:
    """Return the file with `task: name`; files are searched as text, because there are over ten thousand of them."""
    for path in sorted(root.rglob(f"{glob.escape(name)}.yaml")):
        if name in _names(path)["task"]:
            return path
    every = {path: _names(path) for path in sorted(root.rglob("*.yaml")) if not _SKIPPED & set(path.parts)}
    for path, names in every.items():
        if name in names["task"]:
            return path
    for path in [path for path, names in every.items() if name in names["group"]]:
        content = _read(path, (), {})
        raise ConfigError(f'lm-eval task "{name}": is a group of tasks; give one of its tasks.{_members(content)}')
    members = sorted({task for names in every.values() if name in names["tag"] for task in names["task"]})
    if members:
        listed = f"Tasks: {', '.join(members[:8])}{', …' if len(members) > 8 else ''}."
        raise ConfigError(f'lm-eval task "{name}": is a tag of several tasks; give one of its tasks. {listed}')
    known = [task for names in every.values() for task in names["task"]]
    raise ConfigError(f'lm-eval task "{name}": not found in the installed lm_eval.{closest(name, known)}')


@functools.cache
def _names(path: Path) -> dict[str, list[str]]:
    """Return the one-line values of task, tag and group in a file."""
    text = path.read_text("utf-8", "replace")
    return {
        key: [value.strip().strip("'\"") for value in re.findall(rf"^(?:{key}|- {key}):[ \t]+([^\n#\[]+)", text, re.M)]
        + (re.findall(r"^ *- +([\w.-]+) *$", _block(text, key), re.M) if key == "tag" else [])
        for key in ("task", "tag", "group")
    }


def _block(text: str, key: str) -> str:
    """Return the list entries under a key, as text."""
    found = re.search(rf"^{key}:[ \t]*\n((?:[ \t]*- .*\n?)+)", text, re.M)
    return found.group(1) if found else ""


def _read(path: Path, above: tuple[Path, ...], seen: dict[Path, dict]) -> dict:
    """Return a file's content; `above` are the files that include it, `seen` the contents of all files read so far."""
    path = path.resolve()
    if path in above:
        raise ConfigError(f"{display_path(path)}: includes itself, through {display_path(above[-1])}.")
    if len(above) > _DEEPEST:
        raise ConfigError(f"{display_path(path)}: included through more than {_DEEPEST} files.")
    if path not in seen:
        seen[path] = _with_included(path, above, seen)
    return dict(seen[path])


def _with_included(path: Path, above: tuple[Path, ...], seen: dict[Path, dict]) -> dict:
    content = _load(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{display_path(path)}: is not an lm-eval task file (expected `key: value` lines).")
    included = content.pop("include", [])
    merged: dict = {}
    for name in included if isinstance(included, list) else [included]:
        if not isinstance(name, str) or not is_file(other := path.parent / name):
            raise ConfigError(f"{display_path(path)}: include: file not found: {name}.")
        found = _read(other, (*above, path), seen)
        found.pop("task_list", None)  # applies to that file only
        merged |= found
    return merged | content


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or contains a null character
        return False


def _load(path: Path):
    class Loader(yaml.SafeLoader):  # PyYAML, as in lm-eval: YAML 1.1, where `no` is false and `y` is text
        pass

    Loader.add_constructor("!function", functools.partial(_mark, folder=path.parent))
    text = read_text(path)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # ValueError: a date in month 13
        raise invalid(path, error) from None


def _mark(loader, node, *, folder: Path) -> dict:
    name = loader.construct_scalar(node)
    module = folder / (name.rpartition(".")[0].replace(".", "/") + ".py")
    found = not name.startswith(".") and is_file(module)  # .tmp.f would be /tmp.py
    return {
        "function": name,
        "file": str(module) if found else None,
        "sha256": file_fingerprint(module) if found else None,
    }


def _members(content: dict) -> str:
    tasks = content.get("task")
    if not isinstance(tasks, list):
        return ""
    names = [str(t.get("task") or t.get("group")) if isinstance(t, dict) else str(t) for t in tasks if t]
    return f" Tasks: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}."


_FORMATS = ("json", "csv", "parquet")  # builders of `datasets` that read files


def source_of(content: dict, path: Path, *, few_shot: str | None) -> dict:
    """Return the source of the rows, as in other task files; `few_shot` is the split of the few-shot examples.

    Raises:
        ConfigError: The file lacks a key, or has a key or value that is not supported.
    """
    where, options = content.get("dataset_path"), dict(content.get("dataset_kwargs") or {})
    if not where:
        raise ConfigError(f'{display_path(path)}: the key "dataset_path" is missing.')
    options.pop("trust_remote_code", None)  # loading scripts are never run
    files_by_split, revision = options.pop("data_files", None), options.pop("revision", None)
    if options:
        raise unsupported(path, f"dataset_kwargs.{next(iter(options))}")
    test = first_split(content, "test", "validation")
    if test is None:
        raise ConfigError(f'{display_path(path)}: the key "test_split" or "validation_split" is missing.')
    if where in _FORMATS:
        return _files(files_by_split, test, few_shot, where, path)
    if files_by_split is not None:
        raise unsupported(path, "dataset_kwargs.data_files", f"with dataset_path: {where}")
    if Path(where).is_absolute() or where.startswith("."):
        raise unsupported(path, f"dataset_path: {where}", "a directory; list its files in data_files")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", where):
        raise unsupported(path, f"dataset_path: {where}", "expected owner/name of a dataset on the Hub")
    given = {
        "hub": where,
        "config": content.get("dataset_name"),
        "split": test,
        "few_shot": few_shot,
        "revision": revision,
    }
    return {key: value for key, value in given.items() if value is not None}


def _files(given, test: str, few: str | None, form: str, path: Path) -> dict:
    """Return the source of `data_files`, {split: file}; a single file is the split train, as in `datasets`."""
    by_split = given if isinstance(given, dict) else {"train": given}
    found = {}
    for split in dict.fromkeys(filter(None, (test, few))):
        names = by_split.get(split)
        names = names if isinstance(names, list) else [names]
        if len(names) != 1 or not isinstance(names[0], str) or "*" in names[0]:
            raise unsupported(path, "dataset_kwargs.data_files", f"expected one file for the split {split}")
        found[split] = names[0]
    hub = "hf://datasets/"
    if all(name.startswith(hub) for name in found.values()):
        parts = {split: name.removeprefix(hub).split("/", 2) for split, name in found.items()}
        owners = {"/".join(part[:2]) for part in parts.values()}
        if len(owners) != 1 or any(len(part) != 3 for part in parts.values()):
            raise unsupported(path, "dataset_kwargs.data_files", "expected files of one repository")
        repository, _, revision = owners.pop().partition("@")
        source = {"hub": repository, "files": {split: part[2] for split, part in parts.items()}, "split": test}
        return source | ({"few_shot": few} if few else {}) | ({"revision": revision} if revision else {})
    if found[test].startswith(("http://", "https://")):
        if few not in (None, test):
            raise unsupported(path, "dataset_kwargs.data_files", "a URL for each of two splits")
        return {"url": found[test], "format": form, "split": test}
    try:
        here = {split: str((path.parent / Path(name).expanduser()).resolve()) for split, name in found.items()}
    except (RuntimeError, ValueError, OSError):  # home of an unknown user, null character, loop of symlinks
        raise unsupported(path, "dataset_kwargs.data_files", "not a valid file name on this system") from None
    return {"file": here[test], "format": form, "split": test} | (
        {"few_shot": here[few]} if few != test and few else {}
    )


def first_split(content: dict, *names: str) -> str | None:
    return next((split for name in names if (split := content.get(f"{name}_split")) is not None), None)


def unsupported(path: Path, key: str, why: str = "") -> ConfigError:
    """Return the error for a key that is not supported."""
    return ConfigError(f"{display_path(path)}: {key} is not supported" + (f" ({why})." if why else "."))
