"""Command `lm-eval-index`: list the tasks of the lm_eval that is installed next to the running interpreter.

The index has names, files, groups, tags, and why a task cannot be run. It is made when the environment is created
(`make lm-eval`), because reading all task files takes a minute, and is read whenever the workflow is planned.
"""

import compileall
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode

from vernacular.core.artifacts import write_text
from vernacular.core.errors import format_count, named
from vernacular.core.fingerprint import version_of
from vernacular.lm_eval.catalog import FORMAT, index_path, package_digests, versions
from vernacular.lm_eval.expansion import DEFAULT_TYPE

_SPACY = re.compile(r"\[E050\] Can't find model '([\w-]+)'")  # a model that is not installed
_FIELDS = ("output_type", "num_fewshot", "dataset_path")  # the last: it may be a local directory


def index() -> dict:
    """Return the index, as JSON: see `catalog.Catalog`."""
    import lm_eval.tasks
    from lm_eval.api import metrics as _  # noqa: F401 (registers the metrics)
    from lm_eval.api.registry import METRIC_REGISTRY
    from lm_eval.tasks._index import Kind

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    directory = Path(lm_eval.tasks.__file__).parent
    functions = _Functions(directory)
    tasks, groups, tags = {}, {}, {}
    for name, entry in sorted(lm_eval.tasks.TaskManager().task_index.items()):
        if entry.kind is Kind.TAG:
            tags[name] = sorted(entry.tags)
            continue
        file = entry.yaml_path.relative_to(directory).as_posix()
        if entry.kind is Kind.GROUP:
            groups[name] = {"file": file, "config": _plain(entry.cfg)}
        else:
            fields = {key: entry.cfg[key] for key in _FIELDS if entry.cfg.get(key) is not None}
            tasks[name] = {"file": file, "config": fields, "reason": reason(entry.cfg, functions)}
    return {
        "format": FORMAT,
        "versions": versions(sys.path),
        "python": ".".join(map(str, sys.version_info[:2])),
        "path": [_in_environment(Path(entry)) for entry in sys.path if entry],
        "directory": _in_environment(directory),
        "listing": package_digests(directory)[0],
        "metrics": sorted(METRIC_REGISTRY.keys()),
        "tasks": tasks,
        "groups": groups,
        "tags": tags,
    }


def reason(config: dict, functions: "_Functions") -> str | None:
    """Return why a task cannot be run; None if it can, provided that its data are available."""
    from vernacular.lm_eval.loading import unsupported

    if config.get("doc_to_image") or config.get("doc_to_audio"):
        return "needs images" if config.get("doc_to_image") else "needs audio"
    if config.get("unsafe_code"):
        return "executes code that the model generates"
    generates = config.get("output_type", DEFAULT_TYPE) == "generate_until" and "class" not in config
    if generates and (names := unsupported(config.get("generation_kwargs") or {})):
        return f"generation argument not supported: {', '.join(names)}"
    if "class" in config and "/unitxt/" in config["class"]:
        return "needs the library unitxt, which downloads and runs code"
    return next((problem for name in _function_names(config) if (problem := functions.problem(name))), None)


class _Functions:
    """Functions named in task files; each module is imported once."""

    def __init__(self, directory: Path):
        self.prefix = str(directory)
        self.problems: dict[str, str | None] = {}

    def problem(self, name: str) -> str | None:
        """Return why the function cannot be imported; None if it can. `name`: /path/to/module.function."""
        from lm_eval.tasks._yaml_loader import _import_fun_from_str, _import_func_in_yml

        if not name.startswith(self.prefix) or "." not in name.rsplit("/", 1)[-1]:
            return None
        if name not in self.problems:
            directory, qualified = name.rsplit("/", 1)
            try:
                if Path(directory, qualified.rpartition(".")[0].replace(".", "/") + ".py").exists():
                    _import_fun_from_str(f"{directory}/{qualified}")
                else:
                    _import_func_in_yml(qualified, Path(directory))
                self.problems[name] = _missing_data(Path(directory))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (any module of any author)
                self.problems[name] = None if _is_download(error) else _import_problem(error)
        return self.problems[name]


def _missing_data(directory: Path) -> str | None:
    """Return which data of nltk a task's modules look for and do not have; they read it when the model has run."""
    for file in sorted(directory.glob("*.py")):
        for name in re.findall(r"""nltk\.data\.find\(["']([\w/]+)["']\)""", file.read_text("utf-8")):
            import nltk

            try:
                nltk.data.find(name)
            except LookupError:
                name, command = name.rpartition("/")[2], "python -m nltk.downloader"
                return f"needs the data {name} of nltk ({command} {name}, in the environment of lm-eval)"
    return None


def _is_download(error: BaseException) -> bool:
    """Return whether a module tried to download something, which a run tries again."""
    return (isinstance(error, OSError) and not _SPACY.search(str(error))) or "Hub" in str(error)


def _import_problem(error: BaseException) -> str:
    if match := _SPACY.search(str(error)):
        command = f"python -m spacy download {match[1]}"
        return f"needs the model {match[1]} of spaCy ({command}, in the environment of lm-eval)"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            library = cause.name.partition(".")[0]
            if cause.name != library and (version := version_of(library)):
                return f"needs {cause.name}, which {library} {version} lacks"
            return f"needs the library {library}"
        cause = cause.__cause__ or cause.__context__
    return f"its Python file cannot be imported ({named(error)})"


def _function_names(config) -> Iterator[str]:
    if isinstance(config, str):
        yield config
    elif isinstance(config, dict | list):
        for value in config.values() if isinstance(config, dict) else config:
            yield from _function_names(value)


def _in_environment(path: Path) -> str:
    """Return a path relative to the environment, which can be copied, if it is part of it."""
    return str(path.relative_to(sys.prefix) if path.is_relative_to(sys.prefix) else path)


def _plain(value):
    """Return a value of a YAML file as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def lm_eval_index(args) -> str:
    """Write the index next to the environment's `bin`; it is read whenever the workflow is planned."""
    # Python recognizes stale bytecode by the time of the source, which an edit can keep, unless it has a hash of it
    hashed = PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(Path(find_spec("lm_eval").origin).parent, quiet=2, force=True, invalidation_mode=hashed)
    content = index()
    path = index_path(Path(sys.prefix) / "bin" / "python")
    write_text(path, json.dumps(content, ensure_ascii=False))
    reasons = Counter(task["reason"] for task in content["tasks"].values() if task["reason"])
    for reason, count in reasons.most_common():
        print(f"  {format_count(count, 'task')}: {reason}")
    n_runnable = len(content["tasks"]) - sum(reasons.values())
    return f"lm-eval-index: {path}: {n_runnable} of {format_count(len(content['tasks']), 'task')} can be run"
