"""Tasks and groups of one unit, built by lm-eval with the settings of an evaluation. Runs in lm-eval's environment.

Generation arguments become fields of a request; arguments without an equivalent are named. The defaults are those of
lm-eval's `hf` model (normalize_gen_kwargs in lm_eval/models/utils.py, 0.4.13) and, for sampling, of `generate` in
transformers.
"""

import contextlib
import functools
import logging
import os
import random
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import datasets
import lm_eval.tasks
import numpy as np
from lm_eval.api.group import Group
from lm_eval.api.registry import METRIC_REGISTRY
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind, TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from vernacular.core.errors import ConfigError, DataError, UserError, first_line
from vernacular.core.fingerprint import content_hash, fingerprint
from vernacular.lm_eval.catalog import LIBRARIES, Catalog, load_catalog, local_rows, prompt_units, versions
from vernacular.lm_eval.expansion import Load, Unit, units
from vernacular.lm_eval.own_files import READERS, check_untrusted, local_path

_TOKEN_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # in lm-eval's priority
_DECODING = ("top_k", "top_p", "repetition_penalty")
_SUPPORTED = {"until", "do_sample", "temperature", "num_beams", *_TOKEN_LIMITS, *_DECODING}
_DEFAULT_TOKENS = 256
_RANGES = {
    **dict.fromkeys(_TOKEN_LIMITS, (int, 1, 1_000_000)),
    "top_k": (int, 0, 1_000_000),
    "temperature": (float, 0, 1000),
    "top_p": (float, 0, 1),
    "repetition_penalty": (float, 0.001, 1000),
}
_DEFAULT_TOP_K = 50  # of transformers, when it samples
_OWN = ("min_p", "think_max_toks")  # of an evaluation, which lm-eval's hf model passes on, or does not have
GREEDY = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": None, "seed": None}


def unsupported(arguments: dict) -> list[str]:
    """Return the arguments that the generation engine does not have.

    >>> unsupported({"until": ["\\n"], "num_beams": 1}), unsupported({"num_beams": 10, "penalty_alpha": 0.6})
    ([], ['num_beams', 'penalty_alpha'])
    """
    names = {name for name in arguments if name not in _SUPPORTED}
    names |= {"num_beams"} if arguments.get("num_beams", 1) != 1 else set()
    return sorted(names)


def own_kwargs(gen_kwargs: dict) -> dict:
    """Return the arguments of an evaluation that only its requests have."""
    return {name: value for name, value in gen_kwargs.items() if name in _OWN}


def check(arguments: dict) -> None:
    """Raise DataError unless all arguments are supported, and numbers in the range that they can have.

    >>> check({"until": None, "max_gen_toks": 0.5})
    Traceback (most recent call last):
    vernacular.core.errors.DataError: generation_kwargs.max_gen_toks: expected an integer from 1 to 1000000, got 0.5.
    """
    if names := unsupported(arguments):
        raise DataError(f"generation argument not supported: {', '.join(names)}.")
    for name, (kind, low, high) in _RANGES.items():
        value = arguments.get(name)
        if value is not None and not (type(value) in (int, kind) and low <= value <= high):
            noun = "an integer" if kind is int else "a number"
            raise DataError(f"generation_kwargs.{name}: expected {noun} from {low} to {high}, got {value!r:.100}.")
    until = arguments.get("until") or []
    if not isinstance(until, str | list | tuple) or not all(isinstance(stop, str) for stop in until):
        raise DataError(f"generation_kwargs.until: expected a text or a list of texts, got {until!r:.100}.")
    if type(arguments.get("do_sample")) not in (bool, type(None)):
        raise DataError(f"generation_kwargs.do_sample: expected true or false, got {arguments['do_sample']!r:.100}.")


def request_fields(arguments: dict, seed: int) -> dict:
    """Return `stop`, `max_new_tokens` and `decoding` of a request; `seed` distinguishes repeated samples.

    >>> request_fields({"until": "\\n", "max_gen_toks": 8, "do_sample": False, "temperature": 0.8}, 0)
    {'stop': ['\\n'], 'max_new_tokens': 8, 'decoding': None}
    """
    limit = next((arguments[name] for name in _TOKEN_LIMITS if arguments.get(name) is not None), _DEFAULT_TOKENS)
    return {"stop": stop_strings(arguments), "max_new_tokens": limit, "decoding": _decoding(arguments, seed)}


def stop_strings(arguments: dict) -> list[str]:
    until = arguments.get("until") or []
    return [stop for stop in ([until] if isinstance(until, str) else until) if stop]


def before_stop(text: str, arguments: dict) -> str:
    """Return a text up to its first stop string, as `postprocess_generated_text` of lm-eval."""
    for stop in stop_strings(arguments):
        text = text.split(stop)[0]
    return text


def answer(row: dict) -> str | None:
    """Return the generated text of a row of GENERATIONS without reasoning; after it, lm-eval removes whitespace."""
    text = row["raw_output"]
    return text if text is None or row["think_state"] is None else text.lstrip()


def is_sampled(arguments: dict) -> bool:
    """Return whether tokens are drawn at random; without `do_sample`, a temperature above 0 decides."""
    do_sample = arguments.get("do_sample")
    return float(arguments.get("temperature") or 0.0) > 0 if do_sample is None else bool(do_sample)


def _decoding(arguments: dict, seed: int) -> dict | None:
    decoding = {name: arguments.get(name) for name in _DECODING}
    if not is_sampled(arguments):
        penalty = decoding["repetition_penalty"]
        return GREEDY | {"repetition_penalty": penalty} if penalty else None
    decoding["top_k"] = _DEFAULT_TOP_K if decoding["top_k"] is None else decoding["top_k"]
    return {"temperature": float(arguments.get("temperature") or 1.0), **decoding, "seed": seed}


SEED = 1234  # lm-eval's default of the seed for few-shot examples, and of numpy's; seed 0 of Vernacular
_PYTHON_SEED = 0  # of the module `random`


@dataclass(frozen=True)
class LoadedUnit:
    """A unit as lm-eval evaluates it: its tasks by name, and its groups, as `TaskManager.load` returns them."""

    name: str
    is_group: bool
    tasks: dict[str, Task]
    groups: dict[str, Group]


def load_unit(spec) -> LoadedUnit:
    """Build the unit of an evaluation: its data are read, and the few-shot settings applied.

    Args:
        spec: entry, unit, num_fewshot (None: as the task file says), seed, directories, trust_functions, and the state
            in which the run was planned: versions, package and files.

    Raises:
        DataError: A task cannot be built, for example because its dataset is unavailable, a custom file needs
            `trust_functions: true`, or something has changed since the run was planned.
    """
    try:
        return _Loader(tuple(spec.directories)).load(spec)
    except ConfigError as error:
        raise DataError(str(error)) from None


@functools.cache
class _Loader:
    """Builder of units, from the package's tasks and from directories with custom files: one for each of them."""

    def __init__(self, directories: tuple[str, ...]):
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        # the results of `map` and `filter` are stored by the names of functions, also if their code has changed
        datasets.disable_caching()
        self.catalog: Catalog = load_catalog(str(Path(sys.prefix) / "bin" / "python"), directories)
        self.factory = TaskFactory(meta={})
        self.own = TaskIndex.build(map(Path, directories))  # of the package, it would take half a minute
        self.registry = _entries(self.catalog) | {name: self.own.get(name) for name in self.catalog.own.files}

    def load(self, spec) -> LoadedUnit:
        """Build a unit; see `load_unit`."""
        unit = self._unit(spec)
        self._check_unchanged(spec, unit)
        self._check_own(spec)
        random.seed(_PYTHON_SEED)
        np.random.seed(SEED)
        with _caches(_planned(spec), has_own=bool(spec.files), has_rows=bool(local_rows(unit))):
            unit = self._unit(spec, lambda name: load_yaml(self.registry[name].yaml_path, resolve_func=True))
            try:
                built = self._build(unit)
            except UserError:
                raise
            except Exception as error:
                raise DataError(f"{_failed_task(error) or unit.name}: {_loading_error(error)}") from error
            loaded = TaskManager(include_defaults=False).load(built if isinstance(built, list) else [built])
            for name, task in loaded["tasks"].items():
                _check_rows(name, task, spec.files)
        self._check_unchanged(spec, unit)
        for name, task in loaded["tasks"].items():
            _check_metrics(name, task)
            _set_shots(task, spec.num_fewshot)
            task.set_fewshot_seed(seed=SEED + spec.seed)
            # the other arguments of the evaluation update the task's, as by `--gen_kwargs`
            given = {name: value for name, value in spec.options.get("gen_kwargs", {}).items() if name not in _OWN}
            if given and task.OUTPUT_TYPE == "generate_until":
                task.set_config(key="generation_kwargs", value=given, update=True)
        return LoadedUnit(unit.name, unit.is_group, loaded["tasks"], loaded.get("groups", {}))

    def _unit(self, spec, load: Load | None = None) -> Unit:
        if spec.prompt is None:
            found = units(spec.entry, self.catalog.registry, load)
        else:
            found = [entry.unit for entry in prompt_units(spec.entry, self.catalog.registry, load)]
        return next(unit for unit in found if unit.name == spec.unit)

    def _check_unchanged(self, spec, unit: Unit) -> None:
        """Raise DataError unless libraries, task files, modules and rows are those of the key."""
        index, directory = self.catalog.index, Path(lm_eval.tasks.__file__).parent
        content_hash.cache_clear()
        planned = _planned(spec)
        current = self.catalog.files(spec.entry, unit) | versions(sys.path)
        current |= {"the code of lm_eval": index["package"], "python": spec.versions["python"]}
        names = planned.keys() | current.keys() - LIBRARIES
        changed = [name for name in names if planned.get(name) != current.get(name)]
        if not directory.samefile(index["directory"]):
            changed.append(str(directory))
        if changed:
            raise DataError(f"{unit.name}: {min(changed)} changed since the run was planned. Run the workflow again.")

    def _check_own(self, spec) -> None:
        """Raise if a custom file needs trust, or is not the one that lm-eval's own index has under its name."""
        own = self.catalog.own
        for name in self.catalog.own_names(spec.entry):
            entry = self.own.get(name)
            is_same = entry is not None and entry.yaml_path.resolve() == own.files[name].resolve()
            if not is_same or repr(entry.cfg) != repr(own.configs[name]):
                raise DataError(f"{own.files[name]}: lm_eval does not read this file as the definition of {name}.")
            if not spec.trust_functions:
                check_untrusted(name, own, METRIC_REGISTRY.keys())

    def _build(self, unit: Unit) -> Task | Group:
        if unit.config is None:
            return self.factory.build(self.registry[unit.name], overrides=unit.overrides, registry=self.registry)
        if unit.is_group:
            return self.factory._build_group(unit.name, unit.config, unit.overrides, self.registry)
        return ConfigurableTask(config={"metadata": {}, **unit.config})


def _entries(catalog: Catalog) -> dict[str, Entry]:
    """Return the package's tasks and groups, and all tags, as lm-eval has them."""
    directory = Path(catalog.index["directory"])
    entries = {
        name: Entry(name, kind, directory / entry["file"])
        for kind, table in ((Kind.GROUP, catalog.index["groups"]), (Kind.TASK, catalog.index["tasks"]))
        for name, entry in table.items()
    }
    tags = {name: entry.members for name, entry in catalog.registry.items() if entry.kind == "tag"}
    return entries | {name: Entry(name, Kind.TAG, None, tags=set(members)) for name, members in tags.items()}


def _planned(spec) -> dict[str, str | None]:
    """Return the state of files and libraries in which the run was planned, by name."""
    return spec.files | spec.versions | {"the code of lm_eval": spec.package}


@contextlib.contextmanager
def _caches(state: dict[str, str | None], *, has_own: bool, has_rows: bool):
    """Let Python and `datasets` store what they derive from custom files and from local rows by content.

    Both recognize a file by its path and time, which an edit can keep, and archives are extracted once per path.
    """
    config, prefix = datasets.config, sys.pycache_prefix
    previous = config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH
    directory = Path(previous[0], "by_content", fingerprint(state)[:16])
    try:
        if has_own:
            sys.pycache_prefix = str(directory / "bytecode")
        if has_rows:  # otherwise, the dataset is that of the Hub, and can be in the cache only
            config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH = directory, directory / "downloads"
        yield
    finally:
        sys.pycache_prefix, (config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH) = prefix, previous


def _check_rows(name: str, task: Task, files: dict[str, str | None]) -> None:
    """Raise DataError if `datasets` reads a local file that the key does not contain."""
    path, options = task.get_config("dataset_path"), task.get_config("dataset_kwargs") or {}
    if callable(task.get_config("custom_dataset")) or not path or not (path in READERS or os.path.isdir(path)):
        return  # a function can read any file; the Hub is not on this disk
    builder = datasets.load_dataset_builder(path, task.get_config("dataset_name"), **options)
    names = [file for split in (builder.config.data_files or {}).values() for file in split]
    known = {os.path.realpath(file) for file in files}
    for local in filter(None, map(local_path, names)):
        if os.path.realpath(local) not in known:
            raise DataError(f"{name}: {local} is not among its data_files; name it there, because its content counts.")


def _set_shots(task: Task, shots: int | None) -> None:
    """Set the number of few-shot examples as `simple_evaluate` of lm-eval: 0 in the task file is kept."""
    own = task.get_config("num_fewshot")
    if own is None or (shots is not None and own != 0):
        task.set_config(key="num_fewshot", value=shots or 0)


def _check_metrics(name: str, task: Task) -> None:
    if getattr(task, "MULTIMODAL", False):
        raise DataError(f"{name}: needs images or audio, which no model of Vernacular reads.")
    if getattr(task, "UNSAFE_CODE", False):
        raise DataError(f"{name}: executes code that the model generates, which is not supported.")
    if callable(task.get_config("process_results")) or task.OUTPUT_TYPE != "generate_until":
        return  # the metrics are only names
    missing = [metric for metric, function in getattr(task, "_metric_fn_list", {}).items() if function is None]
    if missing:
        raise DataError(f"{name}: the metric {missing[0]} of the library evaluate is unavailable (it is downloaded).")


def _failed_task(error: BaseException) -> str | None:
    """Return the name of the task, of those in a group, whose construction raised an error; None if it is unknown."""
    tasks = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    configs = [getattr(task, "_config", None) for task in tasks if isinstance(task, ConfigurableTask)]
    return next((config.task for config in configs if config is not None), None)


def _loading_error(error: BaseException) -> str:
    message = first_line(error)
    if isinstance(error, ImportError) and getattr(error, "name", None):
        return f"needs the library {error.name}; install it in the environment of lm_eval."
    noun = "its dataset is unavailable" if isinstance(error, OSError) else "it cannot be built"
    return f"{noun} ({type(error).__name__}: {message})"
