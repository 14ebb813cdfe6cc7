"""Tasks and groups of one unit, built by lm-eval with the settings of an evaluation. Runs in lm-eval's environment."""

import functools
import logging
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind, TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from vernacular.core.errors import ConfigError, DataError, UserError, first_line
from vernacular.lm_eval.catalog import Catalog, load_catalog
from vernacular.lm_eval.expansion import Unit, units
from vernacular.lm_eval.own_files import check_untrusted
from vernacular.lm_eval.prompts import prompt_units

SEED = 1234  # lm-eval's default of the seed for few-shot examples, and of numpy's; seed 0 of Vernacular
_PYTHON_SEED = 0  # of the module `random`
_LOADING_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    AssertionError,
)


@dataclass(frozen=True)
class LoadedUnit:
    """A unit as lm-eval evaluates it: its tasks by name, and its groups, as `TaskManager.load` returns them."""

    name: str
    is_group: bool
    tasks: dict[str, Task]
    groups: dict[str, Group]


@functools.cache
def loader(directories: tuple[str, ...]) -> "Loader":
    """Return the builder of units of some directories, one per process."""
    return Loader(directories)


class Loader:
    """Builder of units, from the package's tasks and from directories with custom files."""

    def __init__(self, directories: tuple[str, ...] = ()):
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        self.catalog: Catalog = load_catalog(str(Path(sys.prefix) / "bin" / "python"), directories)
        self.factory = TaskFactory(meta={})
        # the index is built from ours: lm-eval would read all task files, which takes half a minute
        self.registry = _package_entries(self.catalog.index) | TaskIndex.build(map(Path, directories))

    def load(self, spec: dict) -> LoadedUnit:
        """Build the unit of an evaluation: its data are read, and the few-shot settings applied.

        Args:
            spec: entry, unit, num_fewshot (None: as the task file says), seed, own and trust_functions.

        Raises:
            DataError: A task cannot be built, for example because its dataset is unavailable, or a custom file
                needs `trust_functions: true`.
        """
        try:
            unit = self._unit(spec)
        except ConfigError as error:
            raise DataError(str(error)) from None
        random.seed(_PYTHON_SEED)
        np.random.seed(SEED)
        try:
            built = self._build(unit)
        except UserError:
            raise
        except _LOADING_ERRORS as error:
            raise DataError(f"{unit.name}: {_loading_error(error)}") from error
        loaded = TaskManager(include_defaults=False).load(built if isinstance(built, list) else [built])
        for name, task in loaded["tasks"].items():
            _check_metrics(name, task)
            _set_shots(task, spec["num_fewshot"])
            task.set_fewshot_seed(seed=SEED + spec["seed"])
        return LoadedUnit(unit.name, unit.is_group, loaded["tasks"], loaded.get("groups", {}))

    def _unit(self, spec: dict) -> Unit:
        if not spec["trust_functions"]:
            for name in spec["own"]:
                check_untrusted(name, self.catalog.own, self.catalog.index["metrics"])
        expand = _units_of_prompts if "prompt" in spec else units
        found = expand(spec["entry"], self.catalog.registry, self._read_group)
        return next(unit for unit in found if unit.name == spec["unit"])

    def _read_group(self, name: str) -> dict:
        return load_yaml(self.registry[name].yaml_path, resolve_func=True)

    def _build(self, unit: Unit) -> Task | Group:
        if unit.config is None:
            return self.factory.build(self.registry[unit.name], overrides=unit.overrides, registry=self.registry)
        if unit.is_group:
            return self.factory._build_group(unit.name, unit.config, unit.overrides, self.registry)
        return ConfigurableTask(config={"metadata": {}, **unit.config})


def _units_of_prompts(name: str, registry: dict, load) -> list[Unit]:
    return [entry.unit for entry in prompt_units(name, registry, load)]


def _package_entries(index: dict) -> dict[str, Entry]:
    directory = Path(index["directory"])
    entries = {
        name: Entry(name, kind, directory / entry["file"])
        for kind, table in ((Kind.GROUP, index["groups"]), (Kind.TASK, index["tasks"]))
        for name, entry in table.items()
    }
    return entries | {name: Entry(name, Kind.TAG, None, tags=set(names)) for name, names in index["tags"].items()}


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


def _loading_error(error: BaseException) -> str:
    message = first_line(error)
    if isinstance(error, ImportError) and getattr(error, "name", None):
        return f"needs the library {error.name}; install it in the environment of lm_eval."
    noun = "its dataset is unavailable" if isinstance(error, OSError) else "it cannot be built"
    return f"{noun} ({type(error).__name__}: {message})"
