"""Expansion of entries of `evaluations:` with `lm_eval:`, and what the results of their evaluations depend on."""

import functools
from collections import Counter
from dataclasses import dataclass

from vernacular.config.evaluations import PAIRED, smaller_limit
from vernacular.config.files import Files
from vernacular.config.specs import UnitSpec
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.yaml import as_list
from vernacular.lm_eval.catalog import Catalog, file_name, load_catalog, shots_by_task, shots_of
from vernacular.lm_eval.expansion import Unit
from vernacular.lm_eval.own_files import missing_files
from vernacular.lm_eval.prompts import PromptUnit
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT, Evaluation

_SUPPORTED = {"lm_eval", "languages", "shots", "seeds", "limit", "trust_functions", "prompts"}
_DEFAULTS = {"styles": "default"}  # filled in by the schema
UNDETERMINED = "und"  # ISO 639: language of an entry that states none


@dataclass(frozen=True)
class LmEvalTask:
    """The unit of an evaluation, and how it is built."""

    catalog: Catalog
    directories: tuple[str, ...]
    entry: str  # as in the config
    unit: Unit
    num_fewshot: int | None  # None: as the task file says
    trust_functions: bool
    by_prompt: bool = False  # whether groups are expanded to tasks, whose names are those of prompts

    def differs_from(self, other: "LmEvalTask") -> bool:
        """Return whether two tasks would be the same evaluation, but with other results."""
        return (self.unit.name, self.unit.overrides, shots_by_task(self.unit, self.num_fewshot)) != (
            other.unit.name,
            other.unit.overrides,
            shots_by_task(other.unit, other.num_fewshot),
        )

    def missing_files(self) -> list[str]:
        """Return the local files that the unit's tasks would read, and that do not exist."""
        return sorted({path for leaf in self.unit.leaves for path in missing_files(leaf.config)})


class LmEvalEntries:
    """Expansion of the entries of one config; mistakes in its `lm_eval:` are reported once."""

    def __init__(self, files: Files, values: dict):
        self.files, self.settings, self.limit = files, values["lm_eval"], values["limit"]
        self.directories = tuple(self.settings.get("tasks", ()))
        self.tasks: dict[str, LmEvalTask] = {}  # by evaluation ID

    @functools.cached_property
    def catalog(self) -> Catalog | None:
        """The tasks of the environment; None if `lm_eval:` is invalid or there is no environment, which is reported."""
        if not self.files.is_valid("lm_eval"):
            return None
        try:
            return catalog_of(self.settings)
        except ConfigError as error:
            self.files.report(("lm_eval",), str(error))
            return None

    def add(self, entry: dict, evaluations: dict[str, Evaluation], *, has_shots: bool, report) -> None:
        """Add one evaluation per unit, prompt, number of shots and seed of an entry.

        Args:
            entry: With the defaults of the schema.
            evaluations: The evaluations of the config, by ID.
            has_shots: Whether the entry sets `shots`; otherwise, the task files decide.
            report: Called as `report(key, message)` for every mistake; the values that it concerns are left out.
        """
        for key, value in entry.items():
            if key not in _SUPPORTED and _DEFAULTS.get(key) != value:
                report("lm_eval", f'the key "{key}" is not supported with lm_eval; remove it.')
        language = _language(entry["languages"], report)
        for task_name, prompt, unit, seeds in self._units(entry, report):
            for requested in as_list(entry["shots"]) if has_shots else [None]:
                for seed in seeds:
                    shots = shots_of(unit, requested)
                    evaluation = Evaluation(
                        task=file_name(task_name),
                        language=language,
                        protocol="lm_eval_generation" if unit.generates else "lm_eval",
                        shots=shots,
                        seed=seed if shots else 0,
                        style="default",
                        data="lm_eval",
                        limit=smaller_limit(entry["limit"], self.limit),
                        prompt=prompt,
                    )
                    task = LmEvalTask(
                        self.catalog,
                        self.directories,
                        entry["lm_eval"],
                        unit,
                        requested,
                        entry.get("trust_functions", False),
                        by_prompt=entry.get("prompts", DEFAULT_PROMPT) != DEFAULT_PROMPT,
                    )
                    previous = evaluations.setdefault(evaluation.id, evaluation)
                    if previous != evaluation or self.tasks.setdefault(evaluation.id, task).differs_from(task):
                        report("lm_eval", f"{evaluation.id} is listed twice, with different options; remove one.")

    def _units(self, entry: dict, report) -> list[tuple[str, str, Unit, list[int]]]:
        """Return (task, prompt, unit, seeds) of an entry; without `prompts`, each unit is the only prompt of a task."""
        name, wanted, seeds = entry["lm_eval"], entry.get("prompts", DEFAULT_PROMPT), entry["seeds"]
        trust, single = entry.get("trust_functions", False), wanted == DEFAULT_PROMPT
        if self.catalog is None:
            return []
        if seeds == PAIRED and single:
            report("seeds", "paired needs several prompts; set prompts: all or a list.")
            return []
        try:
            if single:
                units = self.catalog.units(name, trust_functions=trust)
                found = [PromptUnit(unit.name, DEFAULT_PROMPT, 0, unit) for unit in units]
            else:
                found = self.catalog.prompt_units(name, trust_functions=trust)
        except ConfigError as error:
            report("lm_eval", str(error))
            return []
        if len(found) == 1 and found[0].unit.reason:
            report("lm_eval", f"{name} cannot be run: {found[0].unit.reason}.")
            return []
        chosen = found if single else _chosen(name, found, wanted, report)
        return [(e.task, e.prompt, e.unit, [e.position] if seeds == PAIRED else as_list(seeds)) for e in chosen]


def catalog_of(settings: dict) -> Catalog:
    """Return the tasks of the environment in `lm_eval:`; raise ConfigError if there is none."""
    return load_catalog(settings.get("python"), tuple(settings.get("tasks", ())))


def _chosen(name: str, found: list[PromptUnit], wanted, report) -> list[PromptUnit]:
    """Return the wanted prompts; a task with one prompt keeps it. `report(key, message)` a name that no task has."""
    available = list(dict.fromkeys(entry.prompt for entry in found if entry.prompt != DEFAULT_PROMPT))
    counts = Counter(entry.task for entry in found)
    if max(counts.values()) == 1:
        report("prompts", f"{name} has one prompt in lm_eval; remove prompts.")
        return []
    for task in counts:
        if len({entry.unit.generates for entry in found if entry.task == task}) > 1:
            report("prompts", f"{task}: some prompts score texts and others generate; use an entry for each.")
    for prompt in [] if wanted == ALL_PROMPTS else as_list(wanted):
        if prompt not in available:
            report("prompts", f'prompt "{prompt}" not found in {name}.{suggest(prompt, available)}')
    return [e for e in found if wanted == ALL_PROMPTS or counts[e.task] == 1 or e.prompt in as_list(wanted)]


def _language(value, report) -> str:
    if value == "all":
        return UNDETERMINED
    languages = as_list(value)
    if len(languages) > 1:
        report("languages", "lm_eval: expected one code, which only labels the results.")
    return languages[0]


def evaluation_spec(evaluation: Evaluation, task: LmEvalTask) -> UnitSpec:
    """Return what items, requests and metrics of an evaluation depend on, in addition to code and outputs."""
    unit, index = task.unit, task.catalog.index
    own = task.catalog.own_names(task.entry)
    names = ("items", "task", "language", "protocol", "shots", "seed", "style", "limit")
    return UnitSpec(
        evaluation=evaluation.id,
        **{name: getattr(evaluation, name) for name in names},
        entry=task.entry,
        unit=unit.name,
        reason=unit.reason,
        generates=unit.generates,
        num_fewshot=task.num_fewshot,
        directories=list(task.directories) if own else [],
        trust_functions=task.trust_functions,
        prompt=evaluation.prompt if task.by_prompt else None,
        trusted=task.trust_functions or not own,
        versions=index["versions"] | {"python": index["python"]},
        package=index["package"],
        files=task.catalog.files(task.entry, unit),
    )
