"""The tasks that lm_eval offers, without importing it: the index of its environment, and custom files.

Tasks that ask the same in several wordings have names that differ in a number: `afriqa_yor_prompt_1` … `_5`. AfroBench
and IrokoBench end such names in `_prompt_1`, Evalita-LLM in `_prompt-1`, NorEval in `_p0`. Here, the name without the
number is the task, and its prompts are `p1`, `p2`, ….
"""

import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from vernacular.core.errors import ConfigError, suggest
from vernacular.core.fingerprint import content_hash
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.lm_eval.expansion import Entry, Load, Unit, involved, units
from vernacular.lm_eval.own_files import OwnTasks, check_untrusted, data_files, read_directories
from vernacular.types import DEFAULT_PROMPT

FORMAT = 2  # of the index; raised when its content changes
PYTHON = WORKFLOW.parent / ".lm-eval" / "bin" / "python"  # `make lm-eval`
_INDEX = "vernacular_index.json"  # in the environment's root
# libraries whose version can change a prompt or a metric
LIBRARIES = ("lm_eval", "datasets", "evaluate", "jinja2", "numpy", "rouge-score", "sacrebleu", "scikit-learn")
_NUMBERED = re.compile(r"(?P<task>.+?)[_-](?:prompt[_-]?|p)(?P<number>\d+)")


class PromptUnit(NamedTuple):
    """A unit as one prompt of a task; one without a number is the only prompt of the task of its name."""

    task: str
    prompt: str
    position: int  # among the prompts of the task
    unit: Unit


def split_name(name: str) -> tuple[str, str]:
    """Return (task, prompt) of a name.

    >>> split_name("afriqa_yor_prompt_2"), split_name("norbelebele_p0"), split_name("galcola")
    (('afriqa_yor', 'p2'), ('norbelebele', 'p0'), ('galcola', 'default'))
    """
    found = _NUMBERED.fullmatch(name)
    return (found["task"], f"p{int(found['number'])}") if found else (name, DEFAULT_PROMPT)


def prompt_names(task: str, registry: Mapping[str, Entry]) -> list[str]:
    """Return the names of the tasks that are the prompts of `task`, by number; [] if there are none."""
    numbered = re.compile(re.escape(task) + r"[_-](?:prompt[_-]?|p)\d+")
    names = [name for name, entry in registry.items() if entry.kind == "task" and numbered.fullmatch(name)]
    return sorted(names, key=_rank)


def prompt_units(name: str, registry: Mapping[str, Entry], load: Load | None = None) -> list[PromptUnit]:
    """Return the prompts of all tasks that a name stands for: of one task, or of each in a group or tag.

    Groups are expanded to their tasks, also those that combine them: a mean over prompts is one of the same items.
    [] for an unknown name.

    Raises:
        ValueError: As `units`.
    """
    numbered = prompt_names(name, registry)
    if numbered and (name not in registry or registry[name].kind == "task"):
        found = [unit for member in numbered for unit in units(member, registry, load)]
    else:
        found = units(name, registry, load, combine=False) if name in registry else []
    by_task: dict[str, list[Unit]] = {}
    for unit in found:
        by_task.setdefault(split_name(unit.name)[0], []).append(unit)
    return [
        PromptUnit(*split_name(unit.name), position, unit)
        for members in by_task.values()
        for position, unit in enumerate(sorted(members, key=lambda unit: _rank(unit.name)))
    ]


def _rank(name: str) -> int:
    found = _NUMBERED.fullmatch(name)
    return int(found["number"]) if found else -1


@dataclass(frozen=True)
class Catalog:
    """All names that lm_eval knows, with the interpreter of its environment."""

    python: Path
    index: dict
    registry: dict[str, Entry]
    own: OwnTasks = field(default_factory=OwnTasks)

    def units(self, name: str, *, trust_functions: bool) -> list[Unit]:
        """Return the units of a task, group or tag.

        Raises ConfigError if the name is unknown, its groups are malformed, or a custom file needs trust.
        """
        if name not in self.registry and prompt_names(name, self.registry):
            raise ConfigError(f'"{name}" has several prompts in lm_eval; set prompts: all, one name, or a list.')
        return self._expanded(units, name, trust_functions)

    def prompt_units(self, name: str, *, trust_functions: bool) -> list[PromptUnit]:
        """Return the prompts of each task that a name stands for; raises as `units`."""
        return self._expanded(prompt_units, name, trust_functions)

    def _expanded(self, expand: Callable, name: str, trust_functions: bool) -> list:
        if name not in self.registry and not prompt_names(name, self.registry):
            hint = suggest(name, self.registry, "`vernacular tasks --lm-eval` lists them.")
            raise ConfigError(f'"{name}" is not a task, group or tag of lm_eval.{hint}')
        try:
            found = expand(name, self.registry)
        except ValueError as error:
            raise ConfigError(f"{error}.") from None
        if not found:
            raise ConfigError(f'"{name}" contains no task.')
        for own in () if trust_functions else self.own_names(name):
            check_untrusted(own, self.own, self.index["metrics"])
        return found

    def own_names(self, name: str) -> list[str]:
        """Return the custom tasks and groups that a name involves."""
        return sorted(self._involved(name) & self.own.files.keys())

    def replaced_names(self, name: str) -> list[str]:
        """Return the custom tasks, groups and tags that a name involves and that the package has, too."""
        package = {**self.index["tasks"], **self.index["groups"], **self.index["tags"]}
        return sorted(self._involved(name) & self.own.registry.keys() & package.keys())

    def _involved(self, name: str) -> set[str]:
        names = [name, *prompt_names(name, self.own.registry)]
        return involved(names, self.registry) if self.own.registry else set()

    def files(self, name: str, unit: Unit) -> dict[str, str | None]:
        """Return the hash of each file that a unit reads outside of the package: task files, modules, local rows.

        Args:
            name: The name whose expansion has the unit.
        """
        sources = map(str, self.own.sources) if self.own_names(name) else ()
        return {os.path.relpath(path): content_hash(path) for path in sorted({*sources, *local_rows(unit)})}


def local_rows(unit: Unit) -> set[str]:
    """Return the local data files that the task files of a unit name."""
    return {path for leaf in unit.leaves for path in data_files(leaf.config)}


def index_path(python: Path) -> Path:
    """Return the path of the index of an environment, given its interpreter."""
    return python.parent.parent / _INDEX


@functools.cache
def read_index(python: Path) -> dict:
    """Return the index of an environment, with its current libraries: `versions`, and the hash `package` of lm_eval.

    Raises ConfigError if there is no valid index, or the task files have changed since; with the command that makes it.
    """
    path = index_path(python)
    listing_command = f"PYTHONPATH={WORKFLOW} {python} -m vernacular lm-eval-index"
    command = "make lm-eval" if python == PYTHON else listing_command
    try:
        index = json.loads(path.read_text("utf-8"))
    except OSError:
        raise ConfigError(f"lm_eval is not installed in {display_path(path.parent)}. Run: {command}") from None
    except ValueError:
        raise ConfigError(f"{display_path(path)}: not a valid index of lm_eval. Run: {command}") from None
    if index.get("format") != FORMAT:
        raise ConfigError(f"{display_path(path)}: written by another version of Vernacular. Run: {command}")
    index["directory"] = str(path.parent / index["directory"])
    listing, index["package"] = package_digests(Path(index["directory"]))
    if index.get("listing", listing) != listing:
        raise ConfigError(f"{display_path(path)}: lm_eval's task files changed after this list. Run: {listing_command}")
    index["versions"] |= versions([str(path.parent / entry) for entry in index.get("path", ())])
    return index


def package_digests(directory: Path) -> tuple[str, str]:
    """Return (hash of the task files, hash of all files) of an lm_eval package, without compiled ones: 0.3 s.

    Args:
        directory: The package's directory of tasks.
    """
    task_files, all_files = hashlib.sha256(), hashlib.sha256()
    for parent, names, files in os.walk(directory.parent):
        names[:] = sorted(name for name in names if name != "__pycache__")
        relative = os.path.relpath(parent, directory)
        for name in sorted(files):
            try:
                with open(os.path.join(parent, name), "rb") as file:
                    content = file.read()
            except OSError:  # for example, the lock of an editor: a link to nothing
                content = b""
            content = os.fsencode(f"{relative}/{name}\0{len(content)}\0") + content
            all_files.update(content)
            if not (relative.startswith("..") or name.endswith(".py")):
                task_files.update(content)
    return task_files.hexdigest(), all_files.hexdigest()


def versions(path: list[str]) -> dict[str, str]:
    """Return the version of each of LIBRARIES that is installed in the directories of a module search path."""
    found = {name: next(iter(metadata.distributions(name=name, path=path)), None) for name in LIBRARIES}
    return {name: distribution.version for name, distribution in found.items() if distribution}


def load_catalog(python: str | None = None, directories: tuple[str, ...] = ()) -> Catalog:
    """Return the catalog of an environment and of directories with custom files, which take precedence.

    Raises ConfigError if the environment has no index, or a file is not valid.
    """
    interpreter = Path(python).expanduser().absolute() if python else PYTHON
    index = read_index(interpreter)
    own = read_directories(directories, Path(index["directory"])) if directories else OwnTasks()
    registry = {tag: Entry("tag", members=tuple(members)) for tag, members in index["tags"].items()}
    registry |= {name: Entry("group", each["config"]) for name, each in index["groups"].items()}
    registry |= {name: Entry("task", each["config"], reason=each["reason"]) for name, each in index["tasks"].items()}
    return Catalog(interpreter, index, registry | own.registry, own)


def shots_by_task(unit: Unit, requested: int | None) -> tuple[int, ...]:
    """Return the number of few-shot examples of each task of a unit; it is labeled by the largest.

    As in lm-eval, a task file with `num_fewshot: 0` keeps it, and without a request, the task file decides.
    """
    own_shots = [leaf.shots for leaf in unit.leaves]
    return tuple(own or 0 if requested is None or own == 0 else requested for own in own_shots)


def file_name(unit: str) -> str:
    """Return the name of a unit for IDs and files: `leaderboard::bbh` becomes `leaderboard--bbh`."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "--", unit)
