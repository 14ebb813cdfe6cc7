"""Expansion of `evaluations:` and `comparisons:`, and checks of `models:` that the schema cannot express."""

import itertools
from itertools import combinations

from vernacular.core.errors import ConfigError, suggest
from vernacular.core.paths import WORKFLOW
from vernacular.protocols.prompts import load_labels
from vernacular.protocols.registry import OPTIONS, PROTOCOLS, protocols_with, uses_prompt_lines
from vernacular.types import Evaluation


def expand(entry: dict, task: dict, data: str, fail) -> list[Evaluation]:
    """Return one evaluation per language, protocol, style, number of shots and seed of an entry of `evaluations:`.

    Protocols without few-shot examples get 0 shots and seed 0.

    Args:
        task: The entry's task, as `load_task` returns it.
        data: The default of the entry's key `data`.
        fail: Called as `fail(key, message)`; raises ConfigError.
    """
    available = list(task["languages"])
    languages = available if entry["languages"] == "all" else _as_list(entry["languages"])
    for language in languages:
        if language not in available:
            fail("languages", f'language "{language}" not found in {task["task"]}.{suggest(language, available)}')
    data = entry.get("data", data)
    if data == "samples":
        with_samples = [language for language in available if _has_samples(task, language)]
        if entry["languages"] == "all":
            languages = with_samples
        for language in languages or ["any language"]:
            if language not in with_samples:
                advice = f"Languages with samples: {', '.join(with_samples)}." if with_samples else "Set data: hub."
                fail("languages", f"samples of {task['task']} not found for {language}. {advice}")
    protocols = _as_list(entry.get("protocols", task["protocols"][0]))
    for protocol in protocols:
        if protocol not in task["protocols"]:
            hint = suggest(protocol, task["protocols"])
            fail("protocols", f'protocol "{protocol}" is not supported by {task["task"]}.{hint}')
    shots, styles, seeds = _as_list(entry["shots"]), _as_list(entry["styles"]), _as_list(entry["seeds"])
    if any(shots) and not any(PROTOCOLS[protocol].few_shot for protocol in protocols):
        fail("shots", f"few-shot examples are not supported by {' or '.join(protocols)}; remove shots.")
    for option in OPTIONS.keys() & entry.keys():
        if not set(supporting := protocols_with(option)) & set(protocols):
            fail(option, f"not supported by {' or '.join(protocols)}, only by {' and '.join(supporting)}; remove it.")
    evaluations: dict[Evaluation, None] = {}
    for language, protocol, style, n_shots, seed in itertools.product(languages, protocols, styles, shots, seeds):
        few_shot = PROTOCOLS[protocol].few_shot
        if style not in PROTOCOLS[protocol].styles:
            continue  # an entry may have several protocols, not all of which have this style
        if uses_prompt_lines(protocol, style):
            _check_labels(language, fail)
        evaluation = Evaluation(
            task=task["task"],
            language=language,
            protocol=protocol,
            shots=n_shots if few_shot else 0,
            seed=seed if few_shot else 0,
            style=style,
            data=data,
            limit=entry["limit"],
            options=tuple((key, entry[key]) for key in OPTIONS if key in entry),
        )
        evaluations[evaluation] = None
    for style in styles:
        if not any(style in PROTOCOLS[protocol].styles for protocol in protocols):
            fail("styles", f'style "{style}" is not supported by {" or ".join(protocols)}.')
    return list(evaluations)


def _check_labels(language: str, fail) -> None:
    try:
        load_labels(language)
    except ConfigError as error:
        fail("languages", str(error))


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


def check_models(models: dict, fail) -> None:
    """Check what the schema cannot express of `models`, as written by the user; `fail(keys, message)` raises."""
    seen: dict[str, str] = {}
    for name, entry in models.items():
        if name.casefold() in _RESERVED:
            fail((name,), f'"{name}" is the name of a directory of the workflow; choose another name.')
        check_name(name, fail)
        if previous := seen.get(name.casefold()):
            fail((name,), f'"{name}" and "{previous}" differ only in case, which some file systems ignore; rename one.')
        seen[name.casefold()] = name
        if "adapter" not in entry and "base" not in entry:
            if "source" not in entry:
                fail((name,), 'the key "source" is missing (or "base" and "adapter").')
            continue
        for key, counterpart in (("adapter", "base"), ("base", "adapter")):
            if key not in entry:
                fail((name,), f'the key "{key}" is missing; "{counterpart}" requires it.')
        for key in entry:
            if key not in _ADAPTER_KEYS:
                fail((name, key), f"an adapter inherits {key} from its base; set it there.")
        base = entry["base"]
        bases = [model for model, settings in models.items() if "adapter" not in settings]
        if base not in bases:
            problem = "is an adapter, not a base model" if base in models else "is not a model of this config"
            fail((name, "base"), f'"{base}" {problem}.{suggest(base, bases)}')
        if models[base].get("generation_engine") == "vllm":
            fail(
                (name, "base"),
                f"{base} has generation_engine: vllm, which supports no adapters; use generation_engine: transformers.",
            )


def check_name(name: str, fail) -> None:
    """Reject a name that cannot be a directory on Windows, because results are copied between systems."""
    if name.split(".")[0].casefold() in _DEVICES or name.endswith("."):
        fail((name,), f'"{name}" is not a valid directory name on Windows; choose another name.')


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


def expand_pairs(entries: list | None, models: dict, external_results: dict, fail) -> list[tuple[str, str]]:
    """Return the distinct (baseline, candidate) pairs of all comparisons.

    The default is every base with its adapters, and all external results (`external_results`) with every model.
    `fail(keys, message)` raises; keys are relative to the list of comparisons.
    """
    if entries is None:
        pairs = [(settings["base"], name) for name, settings in models.items() if "adapter" in settings]
        return _distinct_pairs(pairs + [(name, model) for name in external_results for model in models], fail)
    pairs = []
    available = [*models, *external_results]
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            if entry != "all_pairs":
                fail((i,), f'expected all_pairs or {{baseline: NAME, candidate: NAME}}, got "{entry}".')
            pairs += combinations(available, 2)
            continue
        baseline, candidates = entry["baseline"], entry["candidate"]
        candidates = [name for name in models if name != baseline] if candidates == "all" else _as_list(candidates)
        for key, names in (("baseline", [baseline]), ("candidate", candidates)):
            for name in names:
                if name not in available:
                    fail((i, key), f'"{name}" is not a model of this config.{suggest(name, available)}')
        if baseline in candidates:
            fail((i, "candidate"), f'"{baseline}" cannot be compared with itself.')
        pairs += [(baseline, candidate) for candidate in candidates]
    return _distinct_pairs(pairs, fail)


def _distinct_pairs(pairs: list[tuple[str, str]], fail) -> list[tuple[str, str]]:
    """Return the distinct pairs; reject two pairs that would share the directory `baseline--candidate`."""
    by_directory: dict[str, tuple[str, str]] = {}
    for pair in pairs:
        previous = by_directory.setdefault("--".join(pair).casefold(), pair)
        if previous != pair:
            fail((), f"{' with '.join(pair)} and {' with '.join(previous)} would share a directory; rename one.")
    return list(dict.fromkeys(pairs))
