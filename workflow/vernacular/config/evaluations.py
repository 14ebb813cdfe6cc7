"""Expansion of the entries of `evaluations:`, and checks that the schema cannot express."""

import itertools

from vernacular.config.prompts import check_prompts, prompts_and_seeds
from vernacular.core.errors import ConfigError, suggest
from vernacular.core.paths import WORKFLOW
from vernacular.protocols.prompts import load_labels
from vernacular.protocols.registry import OPTIONS, PROTOCOLS, protocols_with, uses_prompt_lines
from vernacular.types import Evaluation


def expand(entry: dict, task: dict, data: str, limit: int | None, report) -> list[Evaluation]:
    """Return one evaluation per language, protocol, style, number of shots, prompt and seed of an entry.

    Protocols without few-shot examples get 0 shots and seed 0.

    Args:
        task: The entry's task, as `load_task` returns it.
        data: The default of the entry's key `data`.
        limit: The run's maximum number of items; the smaller of it and the entry's own applies.
        report: Called as `report(key, message)` for every mistake; the values that it concerns are left out.
    """
    data = entry.get("data", data)
    languages = _languages(entry, task, data, report)
    protocols = _as_list(entry.get("protocols", task["protocols"][0]))
    for protocol in protocols:
        if protocol not in task["protocols"]:
            hint = suggest(protocol, task["protocols"])
            report("protocols", f'protocol "{protocol}" is not supported by {task["task"]}.{hint}')
    protocols = [protocol for protocol in protocols if protocol in task["protocols"]]
    if not protocols:
        return []
    shots, styles = _as_list(entry["shots"]), _as_list(entry["styles"])
    check_prompts(entry, task, protocols, styles, report)
    if any(shots) and not any(PROTOCOLS[protocol].few_shot for protocol in protocols):
        report("shots", f"few-shot examples are not supported by {' or '.join(protocols)}; remove shots.")
    for option in OPTIONS.keys() & entry.keys():
        if not set(supporting := protocols_with(option)) & set(protocols):
            report(option, f"not supported by {' or '.join(protocols)}, only by {' and '.join(supporting)}; remove it.")
    _check_options(entry, protocols, limit, report)
    evaluations: dict[Evaluation, None] = {}
    for language, protocol, style, n_shots in itertools.product(languages, protocols, styles, shots):
        few_shot = PROTOCOLS[protocol].few_shot
        if style not in PROTOCOLS[protocol].styles:
            continue  # an entry may have several protocols, not all of which have this style
        if uses_prompt_lines(protocol, style):
            _check_labels(language, report)
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
                options=tuple((key, entry[key]) for key in OPTIONS if key in entry),
                prompt=prompt,
            )
            evaluations[evaluation] = None
    for style in styles:
        if not any(style in PROTOCOLS[protocol].styles for protocol in protocols):
            report("styles", f'style "{style}" is not supported by {" or ".join(protocols)}.')
    return list(evaluations)


def _check_options(entry: dict, protocols: list[str], limit: int | None, report) -> None:
    """Report options that have no effect without another one, or need all items of the dataset."""
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
    languages = _as_list(entry["languages"])
    for language in languages:
        if language not in available:
            report("languages", f'language "{language}" not found in {task["task"]}.{suggest(language, available)}')
        elif language not in usable:
            report("languages", f"samples of {task['task']} not found for {language}. {advice}")
    return [language for language in languages if language in usable]


def _check_labels(language: str, report) -> None:
    try:
        load_labels(language)
    except ConfigError as error:
        report("languages", str(error))


def _has_samples(task: dict, language: str) -> bool:
    """Return whether samples are shipped, or not needed because the dataset is a user-provided file."""
    is_local = all("file" in source for source in task["languages"][language]["source"])
    return is_local or (WORKFLOW / "samples" / task["task"] / language).is_dir()


def _as_list(value) -> list:
    return value if isinstance(value, list) else [value]
