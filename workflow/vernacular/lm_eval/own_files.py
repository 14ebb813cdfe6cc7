"""Custom task files in lm-eval's format: which names they define, and whether they run Python.

lm-eval executes code when it loads a file: `!function` imports a module, `class` calls one, `hf_evaluate` and unknown
metrics run a script of the Hub, `use_prompt` loads other template libraries, and templates are not sandboxed. Without
`trust_functions: true`, a file may use none of these, and its templates run in a sandbox (`sandbox.py`). Functions of
the installed package are trusted, also if a custom file includes the package's file that names them.

Files are parsed as lm-eval parses them (PyYAML, `include`), but no function is imported.
"""

import glob
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from vernacular.core.errors import ConfigError, first_line
from vernacular.core.paths import display_path
from vernacular.lm_eval.expansion import Entry

# readers of `datasets` that are selected by a name without a slash; others connect to databases or run engines
_READERS = ("arrow", "csv", "json", "parquet", "text", "xml")
_DATASET_OPTIONS = ("data_dir", "data_files", "name", "revision", "trust_remote_code")  # the last has no effect
_RUNS_CODE = ("class", "custom_dataset", "use_prompt", "unsafe_code")  # keys whose value causes code to run
_IGNORED_DIRECTORIES = {"__pycache__", ".ipynb_checkpoints"}


class Function(str):
    """A `!function` of a YAML file; `trusted` if the file is part of the lm_eval package."""

    trusted: bool = False


@dataclass
class OwnTasks:
    """Content of directories of lm-eval task files."""

    registry: dict[str, Entry] = field(default_factory=dict)
    configs: dict[str, dict] = field(default_factory=dict)  # of each task and group, with includes
    files: dict[str, Path] = field(default_factory=dict)  # YAML file of each task and group
    sources: list[Path] = field(default_factory=list)  # every file whose content matters: YAML, Python, included


def read_directories(directories: Collection[str], package: Path) -> OwnTasks:
    """Read all `*.yaml` of directories, as `--include_path` of lm-eval does; of equal names, the last one counts.

    Args:
        package: Directory of the tasks in the installed package, whose functions are trusted.

    Raises:
        ConfigError: A directory is missing, or a file is not valid.
    """
    found, tags = OwnTasks(), {}
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise ConfigError(f"{directory}: directory of lm-eval task files not found.")
        for path in sorted(directory.glob("**/*")):
            if _IGNORED_DIRECTORIES & set(path.parts) or path.suffix not in (".yaml", ".py") or not path.is_file():
                continue
            found.sources.append(path)
            if path.suffix == ".yaml":
                _register(path, load(path, package, found.sources), found, tags)
    found.registry |= {tag: Entry("tag", members=tuple(sorted(names)), own=True) for tag, names in tags.items()}
    found.sources = list(dict.fromkeys(found.sources))
    return found


def _register(path: Path, config: dict, found: OwnTasks, tags: dict[str, set]) -> None:
    is_group = "group" in config and "class" not in config
    name = config.get("group") if is_group else config.get("task")
    if not isinstance(name, str):
        return  # a template that other files include
    found.registry[name] = Entry("group" if is_group else "task", config, own=True)
    found.configs[name], found.files[name] = config, path
    labels = config.get("tag") or []
    for tag in () if is_group else [labels] if isinstance(labels, str) else labels:
        tags.setdefault(tag, set()).add(name)


def load(path: Path, package: Path, sources: list[Path], parents: tuple[Path, ...] = ()) -> dict:
    """Return a YAML file with its includes, as `load_yaml` of lm-eval does; included files are added to `sources`."""
    path = path.expanduser().resolve()
    if path in parents:
        raise ConfigError(f"{display_path(path)}: includes itself.")
    try:
        content = yaml.load(path.read_text("utf-8"), Loader=_loader(path.is_relative_to(package.resolve())))
    except FileNotFoundError:
        raise ConfigError(f"{display_path(parents[-1] if parents else path)}: include: {path} not found.") from None
    except (yaml.YAMLError, OSError, UnicodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{display_path(path)}: not a valid task file ({first_line(error)}).") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{display_path(path)}: expected keys and values, as in a task file of lm-eval.")
    includes = content.pop("include", [])
    merged: dict = {}
    for include in includes if isinstance(includes, list) else [includes]:
        target = path.parent / str(include)
        sources.append(target)
        merged |= {
            key: value for key, value in load(target, package, sources, (*parents, path)).items() if key != "task_list"
        }
    return merged | content


def _loader(trusted: bool) -> type[yaml.SafeLoader]:
    class Loader(yaml.SafeLoader):
        pass

    def function(loader: yaml.Loader, node: yaml.Node) -> Function:
        value = Function(loader.construct_scalar(node))
        value.trusted = trusted
        return value

    Loader.add_constructor("!function", function)
    return Loader


def check_untrusted(name: str, own: OwnTasks, metrics: Collection[str]) -> None:
    """Raise ConfigError if a custom task or group needs `trust_functions: true`.

    Args:
        metrics: Names of lm-eval's own metrics; it looks up others in the `evaluate` library, which runs scripts.
    """
    config = own.configs[name]
    for key, reason in _code(config, metrics):
        raise ConfigError(
            f"{display_path(own.files[name])}: {key}: {reason}. If you have read and trust the file, "
            "set trust_functions: true in the entry of evaluations."
        )


def _code(config, metrics: Collection[str], key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for everything in a task file or group that runs code of the user, or may."""
    if isinstance(config, Function):
        if not config.trusted:
            yield key, f"!function {config} runs Python"
    elif isinstance(config, list):
        for entry in config:
            yield from _code(entry, metrics, key)
    elif isinstance(config, dict):
        yield from _code_of_task(config, metrics)
        for name, value in config.items():
            yield from _code(value, metrics, f"{key}.{name}" if key else str(name))


def _code_of_task(config: dict, metrics: Collection[str]) -> Iterator[tuple[str, str]]:
    for key in _RUNS_CODE:
        if config.get(key) and not getattr(config[key], "trusted", False):
            yield key, "runs code outside of the task file"
    path = config.get("dataset_path")
    if path is not None and "/" not in str(path) and path not in _READERS:
        yield "dataset_path", f"{path} is not a Hub ID, a directory or one of {', '.join(_READERS)}"
    for option in config.get("dataset_kwargs") or ():
        if option not in _DATASET_OPTIONS:
            yield f"dataset_kwargs.{option}", f"allowed are {', '.join(_DATASET_OPTIONS)}"
    if "process_results" in config and isinstance(config["process_results"], Function):
        return  # the metrics are only names
    for entry in config.get("metric_list") or ():
        metric = entry.get("metric") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and (entry.get("hf_evaluate") or (type(metric) is str and metric not in metrics)):
            yield "metric_list", f"the metric {metric} is a script of the evaluate library"


def data_files(config: dict) -> list[str]:
    """Return the local files that a task reads, relative to the working directory, as `datasets` finds them.

    They are those of `dataset_kwargs.data_files`, and of directories in `dataset_path` or `dataset_kwargs.data_dir`.
    """
    options = config.get("dataset_kwargs")
    options = options if isinstance(options, dict) else {}
    names = options.get("data_files")
    names = list(names.values()) if isinstance(names, dict) else _as_list(names)
    flat = [name for entry in names for name in _as_list(entry)]
    local = [name for name in flat if isinstance(name, str) and "://" not in name]
    files = {path for name in local for path in glob.glob(name, recursive=True) or [name]}
    directories = [name for name in (config.get("dataset_path"), options.get("data_dir")) if isinstance(name, str)]
    files |= {str(path) for name in directories for path in Path(name).glob("**/*") if path.is_file()}
    return sorted(files)


def missing_files(config: dict) -> list[str]:
    """Return the files that a task with a reader of local files names, and that do not exist."""
    options = config.get("dataset_kwargs")
    if config.get("dataset_path") not in _READERS or not isinstance(options, dict) or options.get("data_dir"):
        return []  # its files are in a repository, or found in a directory
    return [path for path in data_files(config) if not os.path.exists(path)]


def _as_list(value) -> list:
    return [] if value is None else value if isinstance(value, list) else [value]
