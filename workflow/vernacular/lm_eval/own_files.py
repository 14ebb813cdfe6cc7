"""Custom task files in lm-eval's format: which names they define, and whether they run Python.

lm-eval executes code when it loads a file: `!function` imports a module, `class` calls one, `hf_evaluate` and unknown
metrics run a script of the Hub, `use_prompt` loads other template libraries, and templates are not sandboxed. Without
`trust_functions: true`, a file may use none of these, and its templates run in a sandbox (`sandbox.py`). Functions of
the installed package are trusted, also if a custom file includes the package's file that names them.

Files are parsed as lm-eval parses them (PyYAML, `include`), but no function is imported.
"""

import glob
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from vernacular.core.errors import ConfigError, first_line
from vernacular.core.paths import display_path
from vernacular.lm_eval.expansion import Entry

# readers of `datasets` that are selected by a name without a slash; others connect to databases or run engines
READERS = ("arrow", "csv", "json", "parquet", "text", "xml")
_DATASET_OPTIONS = ("data_dir", "data_files", "name", "revision", "trust_remote_code")  # the last has no effect
_RUNS_CODE = ("class", "custom_dataset", "use_prompt", "unsafe_code")  # keys whose value causes code to run
_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # as lm-eval: the two differ in rare cases
_IGNORED_DIRECTORIES = {"__pycache__", ".ipynb_checkpoints"}
_KINDS = {"tag": str | list, "dataset_kwargs": dict, "metric_list": list, "generation_kwargs": dict}
_NOUNS = {str | list: "name or list of names", dict: "mapping", list: "list"}


class Function(str):
    """A `!function` of a YAML file, as lm-eval's index has it; `trusted` if the file is part of the lm_eval package."""

    trusted: bool = False


@dataclass
class OwnTasks:
    """Content of directories of lm-eval task files."""

    registry: dict[str, Entry] = field(default_factory=dict)
    configs: dict[str, dict] = field(default_factory=dict)  # of each task and group, with includes
    files: dict[str, Path] = field(default_factory=dict)  # YAML file of each task and group
    functions: dict[str, list[Function]] = field(default_factory=dict)  # all in its files, also those that are replaced
    sources: list[Path] = field(default_factory=list)  # every file whose content matters: YAML, Python, included


def read_directories(directories: Collection[str], package: Path) -> OwnTasks:
    """Read all `*.yaml` of directories, as the index of lm-eval does for `--include_path`.

    Args:
        package: Directory of the tasks in the installed package, whose functions are trusted.

    Raises:
        ConfigError: A directory is missing, a file is not valid, or two files define the same name.
    """
    found, tags = OwnTasks(), {}
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise ConfigError(f"{directory}: directory of lm-eval task files not found.")
        for path in sorted([*directory.glob("**/*.yaml"), *directory.glob("**/*.py")]):
            if _IGNORED_DIRECTORIES & set(path.parts) or not path.is_file():
                continue
            found.sources.append(path)
            if path.name.endswith(".yaml"):  # a file named ".yaml" has no suffix
                _register(path, package, found, tags)
    for tag, names in tags.items():
        if tag in found.files:
            raise ConfigError(f'{display_path(found.files[tag])}: "{tag}" is also a tag of other files; rename one.')
        found.registry[tag] = Entry("tag", members=tuple(sorted(names)))
    found.sources = list(dict.fromkeys(found.sources))
    return found


def _register(path: Path, package: Path, found: OwnTasks, tags: dict[str, set]) -> None:
    functions: list[Function] = []
    config = load(path, package, found.sources, functions)
    is_group = "group" in config and "class" not in config
    name = config.get("group") if is_group else config.get("task")
    if not isinstance(name, str):
        return  # a template that other files include
    for key, kind in _KINDS.items():
        if not isinstance(config.get(key), kind | None):
            raise ConfigError(f"{display_path(path)}: {key}: expected a {_NOUNS[kind]}, got {config[key]!r}.")
    previous = found.files.get(name, path)
    if previous.resolve() != path.resolve():  # lm-eval keeps the first file of a directory, and the last directory
        raise ConfigError(f'{display_path(path)}: "{name}" is also defined in {display_path(previous)}; rename one.')
    found.registry[name] = Entry("group" if is_group else "task", config)
    found.configs[name], found.files[name], found.functions[name] = config, path, functions
    labels = config.get("tag") or []
    for tag in () if is_group else [labels] if isinstance(labels, str) else map(str, labels):
        tags.setdefault(tag, set()).add(name)


def load(
    path: Path, package: Path, sources: list[Path], functions: list[Function], seen: set[Path] | None = None
) -> dict:
    """Return a YAML file with its includes, as `load_yaml` of lm-eval does.

    Included files and the modules of functions are added to `sources`, and all functions to `functions`: lm-eval
    imports also those whose value is replaced later in the file, or by the file that includes it.
    """
    path, seen = path.expanduser().resolve(), set() if seen is None else seen
    if path in seen:
        raise ConfigError(f"{display_path(path)}: included twice.")
    seen.add(path)
    if not path.is_file():
        raise ConfigError(f"include: {display_path(path)} is not a file.")
    trusted = path.is_relative_to(package.resolve())
    try:
        data = path.read_bytes()
        for base in (yaml.SafeLoader, _Base):  # lm-eval's crashes on deep nesting, which the first rejects
            content = yaml.load(data, Loader=_loader(base, path, trusted, sources, functions))
    except (yaml.YAMLError, OSError, UnicodeError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{display_path(path)}: not a valid task file ({first_line(error)}).") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{display_path(path)}: expected keys and values, as in a task file of lm-eval.")
    includes = content.pop("include", [])
    merged: dict = {}
    for include in includes if isinstance(includes, list) else [includes]:
        sources.append(target := path.parent / str(include))
        try:
            included = load(target, package, sources, functions, seen)
        except ConfigError as error:
            raise error if display_path(path) in str(error) else ConfigError(f"{display_path(path)}: {error}") from None
        merged |= {key: value for key, value in included.items() if key != "task_list"}
    return merged | content


def _loader(base: type, path: Path, trusted: bool, sources: list[Path], functions: list[Function]) -> type:
    class Loader(base):
        pass

    def function(loader: yaml.Loader, node: yaml.Node) -> Function:
        spec = loader.construct_scalar(node)
        value = Function(path.parent / spec)
        value.trusted = trusted
        functions.append(value)
        if not trusted:
            module = path.parent / f"{spec.rpartition('.')[0].replace('.', '/')}.py"
            sources.extend(file for file in (module, *sorted(path.parent.glob("*.py"))) if file.is_file())
        return value

    Loader.add_constructor("!function", function)
    return Loader


def check_untrusted(name: str, own: OwnTasks, metrics: Collection[str]) -> None:
    """Raise ConfigError if a custom task or group needs `trust_functions: true`.

    Args:
        metrics: Names of lm-eval's own metrics; it looks up others in the `evaluate` library, which runs scripts.
    """
    config = own.configs[name]
    replaced = (("!function", f"{Path(f).name} runs Python") for f in own.functions[name] if not f.trusted)
    for key, reason in (*_code(config, metrics), *replaced):
        raise ConfigError(
            f"{display_path(own.files[name])}: {key}: {reason}. If you have read and trust the file, "
            "set trust_functions: true in the entry of evaluations."
        )


def _code(config, metrics: Collection[str], key: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for everything in a task file or group that runs code of the user, or may."""
    if isinstance(config, Function):
        if not config.trusted:
            yield key, f"!function {Path(config).name} runs Python"
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
    if path is not None and "/" not in str(path) and path not in READERS:
        yield "dataset_path", f"{path} is not a Hub ID, a directory or one of {', '.join(READERS)}"
    options = config.get("dataset_kwargs")
    for option in options if isinstance(options, dict) else ():
        if option not in _DATASET_OPTIONS:
            yield f"dataset_kwargs.{option}", f"allowed are {', '.join(_DATASET_OPTIONS)}"
    if "process_results" in config and isinstance(config["process_results"], Function):
        return  # the metrics are only names
    metrics_listed = config.get("metric_list")
    for entry in metrics_listed if isinstance(metrics_listed, list) else ():
        metric = entry.get("metric") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and (entry.get("hf_evaluate") or (type(metric) is str and metric not in metrics)):
            yield "metric_list", f"the metric {metric} is a script of the evaluate library"


def data_files(config: dict) -> list[str]:
    """Return the local files that a task reads, relative to the working directory, as `datasets` finds them.

    They are those of `dataset_kwargs.data_files`, by path or URL, and of directories in `dataset_path` or
    `dataset_kwargs.data_dir`.
    """
    options = config["dataset_kwargs"] if isinstance(config.get("dataset_kwargs"), dict) else {}
    named = config.get("dataset_path"), options.get("data_dir")
    source, data_dir = (text if isinstance(text, str) else "" for text in named)
    is_directory = source not in READERS and os.path.isdir(source)
    base, is_hub = os.path.join(source if is_directory else "", data_dir), "/" in source and not is_directory
    files = {path for name in _names(options.get("data_files")) for path in _local_files(name, base, is_hub=is_hub)}
    if base:  # its files, and those that select some of them: README.md, .huggingface.yaml
        found = glob.glob(os.path.join(glob.escape(base), "**"), recursive=True)
        files |= {path for path in (*found, os.path.join(base, ".huggingface.yaml")) if os.path.isfile(path)}
    return sorted(files)


def _names(value) -> Iterator[str]:
    """Yield the texts of `data_files`: a text, a list, a mapping from splits, or a list of {split, path}."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _names(entry.get("path") if isinstance(value, list) and isinstance(entry, dict) else entry)


def _local_files(name: str, base: str, *, is_hub: bool) -> list[str]:
    path = local_path(name)
    if path is None or (is_hub and path == name):
        return []
    path = os.path.join(base, path) if path == name else path  # that of a URL is relative to the working directory
    return glob.glob(path, recursive=True) or [path]


def local_path(name: str) -> str | None:
    """Return the local file of a path or URL; None for another computer's.

    >>> [local_path(name) for name in ("a.csv", "file:///a.csv", "zip://*.csv::a.zip", "hf://datasets/x/a.csv")]
    ['a.csv', '/a.csv', 'a.zip', None]
    """
    scheme, path = re.fullmatch(r"(?s)(?:(file|local):(?://)?|([^/]*?)://)?(.*)", name.rpartition("::")[2]).group(2, 3)
    return None if scheme is not None else path


def missing_files(config: dict) -> list[str]:
    """Return the files that a task with a reader of local files names, and that do not exist."""
    options = config.get("dataset_kwargs")
    if config.get("dataset_path") not in READERS or not isinstance(options, dict) or options.get("data_dir"):
        return []  # its files are in a repository, or found in a directory
    return [path for path in data_files(config) if not os.path.exists(path)]
