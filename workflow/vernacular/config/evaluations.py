"""Expansion of `evaluations:` and `comparisons:`, and checks of `models:` that the schema cannot express."""

import itertools
from itertools import combinations

from vernacular.core.errors import ConfigError, suggest
from vernacular.core.paths import WORKFLOW
from vernacular.protocols.prompts import load_labels
from vernacular.protocols.registry import OPTIONS, PROTOCOLS, protocols_with, uses_prompt_lines
from vernacular.types import Evaluation


def expand(entry: dict, task: dict, data: str, limit: int | None, report) -> list[Evaluation]:
    """Return one evaluation per language, protocol, style, number of shots and seed of an entry of `evaluations:`.

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
    shots, styles, seeds = _as_list(entry["shots"]), _as_list(entry["styles"]), _as_list(entry["seeds"])
    if any(shots) and not any(PROTOCOLS[protocol].few_shot for protocol in protocols):
        report("shots", f"few-shot examples are not supported by {' or '.join(protocols)}; remove shots.")
    for option in OPTIONS.keys() & entry.keys():
        if not set(supporting := protocols_with(option)) & set(protocols):
            report(option, f"not supported by {' or '.join(protocols)}, only by {' and '.join(supporting)}; remove it.")
    evaluations: dict[Evaluation, None] = {}
    for language, protocol, style, n_shots, seed in itertools.product(languages, protocols, styles, shots, seeds):
        few_shot = PROTOCOLS[protocol].few_shot
        if style not in PROTOCOLS[protocol].styles:
            continue  # an entry may have several protocols, not all of which have this style
        if uses_prompt_lines(protocol, style):
            _check_labels(language, report)
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
        )
        evaluations[evaluation] = None
    for style in styles:
        if not any(style in PROTOCOLS[protocol].styles for protocol in protocols):
            report("styles", f'style "{style}" is not supported by {" or ".join(protocols)}.')
    return list(evaluations)


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


# Keys of an adapter; all others are those of its base, so that both are evaluated with the same settings.
_ADAPTER_KEYS = {"base", "adapter", "chat", "allow_pickle", "allow_base_mismatch"}
_RESERVED = {"requests", "summary", "store", "report", "exports", "inference_status", "comparisons"}  # in results/
# reserved names of devices on Windows, also with an extension
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


def check_models(models: dict, report) -> None:
    """Check what the schema cannot express of `models`, as written by the user; `report(keys, message)` mistakes."""
    seen: dict[str, str] = {}
    for name, entry in models.items():
        if name.casefold() in _RESERVED:
            report((name,), f'"{name}" is the name of a directory of the workflow; choose another name.')
        check_name(name, report)
        if previous := seen.get(name.casefold()):
            message = f'"{name}" and "{previous}" differ only in case, which some file systems ignore; rename one.'
            report((name,), message)
        seen[name.casefold()] = name
        if "adapter" in entry or "base" in entry:
            _check_adapter(name, models, report)
        elif "source" not in entry:
            report((name,), 'the key "source" is missing (or "base" and "adapter").')


def _check_adapter(name: str, models: dict, report) -> None:
    entry = models[name]
    for key in entry:
        if key not in _ADAPTER_KEYS:
            report((name, key), f"an adapter inherits {key} from its base; set it there.")
    if missing := next((key for key in ("adapter", "base") if key not in entry), None):
        present = "base" if missing == "adapter" else "adapter"
        report((name,), f'the key "{missing}" is missing; "{present}" requires it.')
        return
    base = entry["base"]
    bases = [model for model, settings in models.items() if "adapter" not in settings]
    if base not in bases:
        problem = "is an adapter, not a base model" if base in models else "is not a model of this config"
        report((name, "base"), f'"{base}" {problem}.{suggest(base, bases)}')
    elif models[base].get("generation_engine") == "vllm":
        report(
            (name, "base"),
            f"{base} has generation_engine: vllm, which supports no adapters; use generation_engine: transformers.",
        )


def check_name(name: str, report) -> None:
    """Reject a name that cannot be a directory on Windows, because results are copied between systems."""
    if name.split(".")[0].casefold() in _DEVICES or name.endswith("."):
        report((name,), f'"{name}" is not a valid directory name on Windows; choose another name.')


def inherit_base_settings(models: dict) -> dict:
    """Return the settings by name, in the order of the file; an adapter inherits those of its base."""
    resolved = {}
    for name, settings in models.items():
        if "adapter" in settings:
            base = models[settings["base"]]
            adapter_settings = {key: settings[key] for key in _ADAPTER_KEYS if key in settings}
            chat = base["chat"] if adapter_settings.get("chat", "auto") == "auto" else adapter_settings["chat"]
            inherited = {key: value for key, value in base.items() if key != "source"}
            resolved[name] = {**inherited, **adapter_settings, "chat": chat}
        else:
            resolved[name] = settings
    return resolved


def expand_pairs(entries: list | None, models: dict, external_results: dict, report) -> list[tuple[str, str]]:
    """Return the distinct (baseline, candidate) pairs of all comparisons.

    The default is every base with its adapters, and all external results (`external_results`) with every model; two
    models that this does not compare are compared in the order of the config.
    `report(keys, message)` mistakes; keys are relative to the list of comparisons.
    """
    if entries is None:
        pairs = [(settings["base"], name) for name, settings in models.items() if "adapter" in settings]
        if len(models) == 2 and not pairs:
            pairs = [tuple(models)]
        return _distinct_pairs(pairs + [(name, model) for name in external_results for model in models], report)
    pairs = []
    available = [*models, *external_results]
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            if entry != "all_pairs":
                report((i,), f'expected all_pairs or {{baseline: NAME, candidate: NAME}}, got "{entry}".')
            pairs += combinations(available, 2)
            continue
        baseline, candidates = entry["baseline"], entry["candidate"]
        candidates = [name for name in models if name != baseline] if candidates == "all" else _as_list(candidates)
        for key, names in (("baseline", [baseline]), ("candidate", candidates)):
            for name in names:
                if name not in available:
                    report((i, key), f'"{name}" is not a model of this config.{suggest(name, available)}')
        if baseline in candidates:
            report((i, "candidate"), f'"{baseline}" cannot be compared with itself.')
        pairs += [(baseline, candidate) for candidate in candidates]
    return _distinct_pairs(pairs, report)


def _distinct_pairs(pairs: list[tuple[str, str]], report) -> list[tuple[str, str]]:
    """Return the distinct pairs; reject two pairs that would share the directory `baseline--candidate`."""
    by_directory: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        previous = by_directory.setdefault("--".join(pair).casefold(), pair)
        if previous != pair:
            report((), f"{' with '.join(pair)} and {' with '.join(previous)} would share a directory; rename one.")
    return list(dict.fromkeys(pairs))
