"""Expansion of the entries of `evaluations:`, also with `lm_eval:`, and checks that the schema cannot express.

`prompts:` and `seeds:` of an entry determine which wordings are used with which few-shot seeds.
"""

import functools
import itertools
from collections import Counter
from dataclasses import dataclass

from vernacular.config.files import Files
from vernacular.config.specs import UnitSpec
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.fields import as_list
from vernacular.core.languages import wordings_message
from vernacular.core.paths import WORKFLOW
from vernacular.data.columns import samples_name
from vernacular.data.treebank.patterns import is_local as is_local_treebank
from vernacular.lm_eval.catalog import Catalog, PromptUnit, file_name, load_catalog, shots_by_task
from vernacular.lm_eval.expansion import Unit
from vernacular.lm_eval.own_files import missing_files
from vernacular.protocols import prompts
from vernacular.protocols.registry import OPTIONS, PROTOCOLS, protocols_with, takes_examples, uses_prompt_lines
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT, Evaluation

_SUPPORTED = {"lm_eval", "languages", "shots", "seeds", "limit", "trust_functions", "prompts"}
_SUPPORTED |= {"chat", "gen_kwargs", "fewshot_as_multiturn"}
_DEFAULTS = {"styles": "default"}  # filled in by the schema
UNDETERMINED = "und"  # ISO 639: language of an entry that states none
PAIRED = "paired"  # the j-th prompt of the language's file takes seed j


def expand(entry: dict, task: dict, data: str, limit: int | None, report) -> list[Evaluation]:
    """Return one evaluation per language, protocol, style, number of shots, prompt and seed of an entry.

    Without few-shot examples, they have 0 shots and seed 0. `data`, `limit`: those of the run. `report(key, message)`
    is called for every mistake, with `of_file` for one in a prompts file; the values that it concerns are left out.
    """
    data = entry.get("data", data)
    languages = _languages(entry, task, data, report)
    protocols = as_list(entry.get("protocols", task["protocols"][0]))
    for protocol in protocols:
        if protocol not in task["protocols"]:
            hint = suggest(protocol, task["protocols"])
            report("protocols", f'protocol "{protocol}" is not supported by {task["task"]}.{hint}')
    protocols = [protocol for protocol in protocols if protocol in task["protocols"]]
    if not protocols:
        return []
    shots, styles = as_list(entry["shots"]), as_list(entry["styles"])
    check_prompts(entry, task, protocols, styles, report)
    if any(shots) and not any(takes_examples(protocol, style) for protocol in protocols for style in styles):
        names = protocols if not any(PROTOCOLS[protocol].few_shot for protocol in protocols) else styles
        report("shots", f"few-shot examples are not supported by {' or '.join(names)}; remove shots.")
    for option in OPTIONS.keys() & entry.keys():
        if not set(supporting := protocols_with(option)) & set(protocols):
            report(option, f"not supported by {' or '.join(protocols)}, only by {' and '.join(supporting)}; remove it.")
    _check_options(entry, protocols, limit, report)
    has_turns = set(styles) - {style for protocol in protocols for style in PROTOCOLS[protocol].tool_styles}
    if "fewshot_as_multiturn" in entry and not (any(shots) and has_turns):
        report("fewshot_as_multiturn", "no effect without few-shot examples as chat turns; set shots, or remove it.")
    languages = [language for language in languages if _has_wordings(task, language, report)]
    if entry["languages"] == "all":
        shown_styles = [s for p in protocols for s in styles if s in PROTOCOLS[p].styles and uses_prompt_lines(p, s)]
        languages = _with_lines(task, languages, shown_styles, report)
    evaluations: dict[Evaluation, None] = {}
    for language, protocol, style, n_shots in itertools.product(languages, protocols, styles, shots):
        few_shot = takes_examples(protocol, style)
        if style not in PROTOCOLS[protocol].styles:
            continue  # an entry may have several protocols, not all of which have this style
        if uses_prompt_lines(protocol, style):
            _check_labels(language, style, task, protocol, report)
        for prompt, seed in prompts_and_seeds(entry, task, language, protocol, style, n_shots, report):
            evaluation = Evaluation(
                task=task["task"],
                language=language,
                protocol=protocol,
                shots=n_shots if few_shot else 0,
                seed=seed if few_shot else 0,
                style=style,
                data=data,
                limit=smaller_limit(entry["limit"], limit),
                options=tuple((key, _hashable(entry[key])) for key in OPTIONS if key in entry),
                prompt=prompt,
            )
            evaluations[evaluation] = None
    for style in styles:
        if not any(style in PROTOCOLS[protocol].styles for protocol in protocols):
            report("styles", f'style "{style}" is not supported by {" or ".join(protocols)}.')
    return list(evaluations)


def _hashable(value):
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _check_options(entry: dict, protocols: list[str], limit: int | None, report) -> None:
    """Report options that have no effect without another one, or need all items of the dataset."""
    if entry.get("pass_at", 1) > (n_samples := entry.get("repeats", 1)):
        report("pass_at", f"expected at most the number of repeats, {n_samples}, got {entry['pass_at']}.")
    for declaration in (PROTOCOLS[protocol] for protocol in protocols):
        for option, required in declaration.dependent_options.items():
            if option in entry and required not in entry:
                report(option, f"no effect without {required}; set it, or remove {option}.")
        for option in declaration.options_of_all_items:
            if option in entry and smaller_limit(entry["limit"], limit) is not None:
                report(option, "needs all items in their published order; remove limit.")


def smaller_limit(*limits: int | None) -> int | None:
    """Return the smallest of some maximum numbers of items, of which None is no maximum."""
    return min((limit for limit in limits if limit is not None), default=None)


def _languages(entry: dict, task: dict, data: str, report) -> list[str]:
    """Return the languages of an entry that the task, and with `data: samples` its samples, have."""
    available = list(task["languages"])
    usable = [language for language in available if data != "samples" or _has_samples(task, language)]
    advice = f"Languages with samples: {', '.join(usable)}." if usable else "Set data: hub."
    if entry["languages"] == "all":
        if not usable:
            report("languages", f"samples of {task['task']} not found for any language. {advice}")
        return usable
    languages = as_list(entry["languages"])
    for language in languages:
        if language not in available:
            report("languages", f'language "{language}" not found in {task["task"]}.{suggest(language, available)}')
        elif language not in usable:
            report("languages", f"samples of {task['task']} not found for {language}. {advice}")
    return [language for language in languages if language in usable]


def _has_wordings(task: dict, language: str, report) -> bool:
    """Report the words of a language that a task needs, and that its prompts file lacks."""
    if lacking := task["languages"][language].get("lacks"):
        report("languages", wordings_message(language, lacking, task["directory"]), of_file=True)
    return not lacking


def _with_lines(task: dict, languages: list[str], styles: list[str], report) -> list[str]:
    """Return the languages with prompt lines; report in one message those without them, instead of one for each."""
    usable = []
    for language in languages:
        codes = {prompts.language_of_lines(language, style, task) for style in styles}
        if all(prompts.prompt_lines(code, prompts.prompts_directory(code, task)) is not None for code in codes):
            usable.append(language)
    if usable and len(usable) < len(languages):
        count, names = f"{len(languages) - len(usable)} of {len(languages)} languages", ", ".join(usable)
        report("languages", f"all: {count} of {task['task']} have no prompt lines; list those that have them: {names}.")
    return usable or languages


def _check_labels(language: str, style: str, task: dict, protocol: str, report) -> None:
    lines, pair = prompts.language_of_lines(language, style, task), prompts.language_pair(task, language)
    try:
        directory, types = prompts.prompts_directory(lines, task), prompts.entity_types(task, language)
        prompts.load_labels(lines, directory)
        prompts.additional_lines(PROTOCOLS[protocol].lines, lines, directory, pair, types)
    except ConfigError as error:
        report("languages", str(error), of_file=True)


def _has_samples(task: dict, language: str) -> bool:
    """Return whether samples are shipped, or not needed because the dataset is a user-provided file."""
    sources = task["languages"][language]["source"]
    is_local = all("file" in source or is_local_treebank(source) for source in sources)
    return is_local or (WORKFLOW / "samples" / samples_name(task) / language).is_dir()


def check_prompts(entry: dict, task: dict, protocols: list[str], styles: list[str], report) -> None:
    """Check `prompts` and `seeds: paired` of an entry; `report(key, message)` every mistake."""
    several = entry.get("prompts", DEFAULT_PROMPT) != DEFAULT_PROMPT
    if entry["seeds"] == PAIRED and not several:
        report("seeds", "paired needs several prompts; set prompts: all or a list.")
    if not several:
        return
    if not any(_has_words(task, protocol, style) for protocol in protocols for style in styles):
        report("prompts", f"{_reason(task, protocols, styles)}; remove prompts.")
        return
    known_styles = {style for protocol in PROTOCOLS.values() for style in protocol.styles} - {DEFAULT_PROMPT}
    for language in task["languages"]:
        for letters in (False, True):
            for name in _covering(task, language, letters, report):
                if name in known_styles:
                    report("prompts", f'the prompt "{name}" in {language}.yaml has the name of a style; rename it.')


def prompts_and_seeds(
    entry: dict, task: dict, language: str, protocol: str, style: str, shots: int, report
) -> list[tuple[str, int]]:
    """Return (prompt, seed) of each evaluation with these settings, in the order of the language's file.

    A protocol without words has the default alone; with `all`, a layout takes the variants that the language has. Seeds
    cross with prompts; `paired` gives each prompt its own. `report(key, message)` every mistake.
    """
    selected = entry.get("prompts", DEFAULT_PROMPT)
    names = [DEFAULT_PROMPT]
    if selected != DEFAULT_PROMPT and _has_words(task, protocol, style):
        lines = prompts.language_of_lines(language, style, task)
        available = _covering(task, lines, PROTOCOLS[protocol].letters, report)
        if not available:
            return []
        listed = available if selected == ALL_PROMPTS else as_list(selected)
        for name in listed:
            if name not in available:
                hint = suggest(name, available)
                report("prompts", f'prompt "{name}" not found for {protocol} in {lines}.yaml.{hint}')
        names = [name for name in available if name in listed]
        if entry["seeds"] == PAIRED:
            return [(name, available.index(name) if shots else 0) for name in names]
    seeds = [0] if entry["seeds"] == PAIRED else as_list(entry["seeds"])
    return [(name, seed) for name in names for seed in seeds]


def _has_words(task: dict, protocol: str, style: str) -> bool:
    """Return whether the items are shown with words of the language, which a variant could change."""
    has_style = style in PROTOCOLS[protocol].styles
    has_layout = prompts.usual_layout(task["item_type"], letters=PROTOCOLS[protocol].letters) is not None
    return has_style and has_layout and takes_examples(protocol, style) and uses_prompt_lines(protocol, style)


def _reason(task: dict, protocols: list[str], styles: list[str]) -> str:
    names = " or ".join(protocols)
    uses_letters = any(PROTOCOLS[p].letters for p in protocols)
    if prompts.usual_layout(task["item_type"], letters=False) is None and not uses_letters:
        return f"{names} shows the items of {task['task']} without words around them"
    if any(uses_prompt_lines(protocol, DEFAULT_PROMPT) for protocol in protocols):
        return f"{names} has no prompts in the style {' or '.join(styles)}"
    return f"{names} shows items without words around them"


def _covering(task: dict, language: str, letters: bool, report) -> list[str]:
    try:
        directory = prompts.prompts_directory(language, task)
        return prompts.covering(language, task["item_type"], letters=letters, directory=directory)
    except ConfigError as error:
        report("prompts", str(error))
        return []


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
        keys = [(t.unit.name, t.unit.overrides, shots_by_task(t.unit, t.num_fewshot)) for t in (self, other)]
        return keys[0] != keys[1]

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
            return load_catalog(self.settings.get("python"), self.directories)
        except ConfigError as error:
            self.files.report(("lm_eval",), str(error))
            return None

    def add(self, entry: dict, evaluations: dict[str, Evaluation], *, has_shots: bool, report) -> None:
        """Add one evaluation per unit, prompt, number of shots and seed of an entry to `evaluations`.

        `has_shots`: whether the entry sets `shots`, else the task files do. `report(key, message)` every mistake.
        """
        for key, value in entry.items():
            if key not in _SUPPORTED and _DEFAULTS.get(key) != value:
                report("lm_eval", f'the key "{key}" is not supported with lm_eval; remove it.')
        language, is_chat = _language(entry["languages"], report), entry.get("chat", False)
        if "fewshot_as_multiturn" in entry and not is_chat:
            report("fewshot_as_multiturn", "no effect in plain text; set chat: true, or remove it.")
        found = self._units(entry, report)
        if "gen_kwargs" in entry and found and not any(unit.generates for _, _, unit, _ in found):
            report("gen_kwargs", f"no effect on {entry['lm_eval']}, which generates no texts; remove it.")
        for task_name, prompt, unit, seeds in found:
            options = PROTOCOLS["lm_eval_generation" if unit.generates else "lm_eval"].options & entry.keys()
            for requested in as_list(entry["shots"]) if has_shots else [None]:
                for seed in seeds:
                    shots = max(shots_by_task(unit, requested))
                    evaluation = Evaluation(
                        task=file_name(task_name),
                        language=language,
                        protocol="lm_eval_generation" if unit.generates else "lm_eval",
                        shots=shots,
                        seed=seed if shots else 0,
                        style="chat" if is_chat else "default",
                        data="lm_eval",
                        limit=smaller_limit(entry["limit"], self.limit),
                        options=tuple((key, _hashable(entry[key])) for key in sorted(options)),
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
        name, selected, seeds = entry["lm_eval"], entry.get("prompts", DEFAULT_PROMPT), entry["seeds"]
        trust, single = entry.get("trust_functions", False), selected == DEFAULT_PROMPT
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
        chosen = found if single else _chosen(name, found, selected, report)
        return [(e.task, e.prompt, e.unit, [e.position] if seeds == PAIRED else as_list(seeds)) for e in chosen]


def _chosen(name: str, found: list[PromptUnit], selected, report) -> list[PromptUnit]:
    """Return the selected prompts; a task with one prompt keeps it. `report(key, message)` a name that no task has."""
    available = list(dict.fromkeys(entry.prompt for entry in found if entry.prompt != DEFAULT_PROMPT))
    counts = Counter(entry.task for entry in found)
    if max(counts.values()) == 1:
        report("prompts", f"{name} has one prompt in lm_eval; remove prompts.")
        return []
    for task in counts:
        if len({entry.unit.generates for entry in found if entry.task == task}) > 1:
            report("prompts", f"{task}: some prompts score texts and others generate; use an entry for each.")
    for prompt in [] if selected == ALL_PROMPTS else as_list(selected):
        if prompt not in available:
            report("prompts", f'prompt "{prompt}" not found in {name}.{suggest(prompt, available)}')
    return [e for e in found if selected == ALL_PROMPTS or counts[e.task] == 1 or e.prompt in as_list(selected)]


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
    names = ("items_stem", "task", "language", "protocol", "shots", "seed", "style", "limit")
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
        options=request_options(evaluation),
    )


def request_options(evaluation: Evaluation) -> dict:
    """Return the options of an evaluation as its requests have them."""
    return {key: dict(value) if key == "gen_kwargs" else value for key, value in evaluation.options}
