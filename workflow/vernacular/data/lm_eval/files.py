"""One YAML file of lm-evaluation-harness, its `include:` resolved and its `!function` tags left as marks.

What `lm_eval/tasks/_yaml_loader.py` does, but that no module is imported: a function is only named here.
"""

import functools
import importlib.util
import re
from pathlib import Path

import yaml

from vernacular.errors import ConfigError, closest
from vernacular.fingerprint import file_fingerprint
from vernacular.yamlfile import shown

_SKIPPED = {"__pycache__", ".ipynb_checkpoints"}


def read(name: str, folder: Path) -> tuple[dict, Path]:
    """(content, path) of a task file of theirs; `name` is a path, from `folder`, or the name of an installed task.

    A `!function utils.f` becomes {"function": "utils.f", "file": path or None, "sha256": of that file}. Raises
    ConfigError where there is no such file or task, where it is not YAML, or where it lists several tasks.
    """
    path = find(name, folder)
    content = _read(path, ())
    if "group" in content or isinstance(content.get("task"), list):
        raise ConfigError(f"{shown(path)}: is a group of tasks, not one; name one of them.{_members(content)}")
    return content, path


def find(name: str, folder: Path) -> Path:
    """The file that `name` means."""
    path = Path(name).expanduser()
    path = path if path.is_absolute() else folder / path
    if path.is_file():
        return path
    if "/" in name or name.endswith((".yaml", ".yml")):
        raise ConfigError(f"{shown(path)}: there is no such task file of lm-eval.")
    root = installed()
    if root is None:
        raise ConfigError(
            f'lm-eval task "{name}": lm_eval is not installed beside this workflow; '
            "install it, or give the path of the task's YAML file."
        )
    return _by_name(name, root)


def installed() -> Path | None:
    """The folder of tasks of the installed lm_eval; None without one. It is looked up and not imported."""
    spec = importlib.util.find_spec("lm_eval")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return next((Path(place) / "tasks" for place in places if (Path(place) / "tasks").is_dir()), None)


def _by_name(name: str, root: Path) -> Path:
    """The file in which `task: name` stands; files are told by their text, as there are over ten thousand of them."""
    for path in sorted(root.rglob(f"{name}.yaml")):
        if name in _names(path)["task"]:
            return path
    every = {path: _names(path) for path in sorted(root.rglob("*.yaml")) if not _SKIPPED & set(path.parts)}
    for path, names in every.items():
        if name in names["task"]:
            return path
    for path in [path for path, names in every.items() if name in names["group"]]:
        content = _read(path, ())
        raise ConfigError(f'lm-eval task "{name}": is a group of tasks, not one; name one of them.{_members(content)}')
    members = sorted({task for names in every.values() if name in names["tag"] for task in names["task"]})
    if members:
        listed = f"It holds {', '.join(members[:8])}{', …' if len(members) > 8 else ''}."
        raise ConfigError(f'lm-eval task "{name}": is a tag of several tasks; name one of them. {listed}')
    known = [task for names in every.values() for task in names["task"]]
    raise ConfigError(f'lm-eval task "{name}": the installed lm_eval has no such task.{closest(name, known)}')


@functools.cache
def _names(path: Path) -> dict[str, list[str]]:
    """The one-line values of task, tag and group in a file."""
    text = path.read_text("utf-8", "replace")
    return {
        key: [value.strip().strip("'\"") for value in re.findall(rf"^(?:{key}|- {key}):[ \t]+([^\n#\[]+)", text, re.M)]
        + (re.findall(r"^ *- +([\w.-]+) *$", _block(text, key), re.M) if key == "tag" else [])
        for key in ("task", "tag", "group")
    }


def _block(text: str, key: str) -> str:
    """The indented lines under a key."""
    found = re.search(rf"^{key}:[ \t]*\n((?:[ \t]*- .*\n?)+)", text, re.M)
    return found.group(1) if found else ""


def _read(path: Path, above: tuple[Path, ...]) -> dict:
    path = path.resolve()
    if path in above:
        raise ConfigError(f"{shown(path)}: includes itself, by way of {shown(above[-1])}.")
    content = _parsed(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{shown(path)}: not a task file of lm-eval (expected `key: value` lines).")
    if "include" not in content:
        return content
    included = content.pop("include")
    merged: dict = {}
    for name in included if isinstance(included, list) else [included]:
        other = path.parent / str(name)
        if not other.is_file():
            raise ConfigError(f"{shown(path)}: include: there is no file {shown(other)}.")
        found = _read(other, (*above, path))
        found.pop("task_list", None)  # lists the tasks of that file alone
        merged |= found
    return merged | content


def _parsed(path: Path):
    class Loader(yaml.SafeLoader):  # YAML 1.1, as they read it: there `no` is false
        pass

    Loader.add_constructor("!function", functools.partial(_mark, folder=path.parent))
    try:
        return yaml.load(path.read_text("utf-8"), Loader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown(path)}: not UTF-8 text (byte {error.start}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{shown(path)}, line {mark.line + 1}" if mark else shown(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{where}: not valid YAML ({problem}).") from None


def _mark(loader, node, *, folder: Path) -> dict:
    name = loader.construct_scalar(node)
    module = folder / (name.rpartition(".")[0].replace(".", "/") + ".py")
    found = module.is_file()
    return {
        "function": name,
        "file": str(module) if found else None,
        "sha256": file_fingerprint(module) if found else None,
    }


def _members(content: dict) -> str:
    tasks = content.get("task")
    names = [t if isinstance(t, str) else str(t.get("task") or t.get("group")) for t in tasks or () if t]
    return f" It holds {', '.join(names[:8])}{', …' if len(names) > 8 else ''}." if isinstance(tasks, list) else ""
