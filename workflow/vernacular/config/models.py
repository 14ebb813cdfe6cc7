"""Checks of `models:` that the schema cannot express, settings that adapters inherit, and pairs of `comparisons:`."""

import importlib.util
import os
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from vernacular.config.files import Files
from vernacular.config.series import Checkpoint, check_keys, expand_series, is_series, representative
from vernacular.core.errors import suggest
from vernacular.core.fields import as_list
from vernacular.core.model_record import EFFORT, RENDERING, SWITCHES
from vernacular.core.names import displayable, portable_problem, quoted

# Keys of an adapter; all others are those of its base, so that both are evaluated with the same settings.
_ADAPTER_KEYS = {"base", "adapter", "chat", "allow_pickle", "allow_base_mismatch"}
# Keys of a model behind a server: those that only it has, and those that it shares with other models.
_SERVER_ONLY = {"model", "tokenizer", "revision", "api_key_env", "concurrency", "timeout", "reference"}
RENDERED = tuple(key for key in RENDERING if key not in ("chat_template", "gen_kwargs", "think_end_token"))
_SERVER_KEYS = {"source", "kind", "chat", "bos", "max_length", *RENDERING, *_SERVER_ONLY}
_ALIAS = "chat_template_kwargs"  # of vLLM and transformers, for chat_template_args
# in results/
_RESERVED = {"requests", "summary", "store", "report", "exports", "inference_status", "comparisons", "compared",
             "judges"}  # fmt: skip


def read_models(
    files: Files, values: dict, locate: Callable[[str], str]
) -> tuple[dict[str, dict], dict[str, Checkpoint]]:
    """Return the settings of each model, and the checkpoints of series among them; ({}, {}) if there are mistakes."""
    written, n_problems = files.values["models"], len(files.problems)

    def report(keys, message: str) -> None:
        files.report(("models", *keys), message)

    check_keys(written, report)
    if len(files.problems) > n_problems:
        return {}, {}
    single = {name: representative(entry) if is_series(entry) else entry for name, entry in written.items()}
    check_models(single, report)
    if len(files.problems) > n_problems:
        return {}, {}
    output, records = locate(os.path.expanduser(values["output"])), Path(locate("resources"), "models", ".known")
    for settings in values["models"].values():
        if _ALIAS in settings:
            settings["chat_template_args"] = settings.pop(_ALIAS)
    expanded, checkpoints = expand_series(values["models"], output, report, records, files.paths)
    return (inherit_base_settings(expanded), checkpoints) if len(files.problems) == n_problems else ({}, {})


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
        _check_server_keys(name, entry, report)
        _check_rendering(name, entry, report)
        if entry.get("generation_engine") == "vllm" and entry.get("quantization", "none") != "none":
            message = f"vLLM would not generate with weights in {entry['quantization']}; remove one of the two."
            report((name, "generation_engine"), message)
        if entry.get("deterministic"):
            others = {"generation_engine": "vllm", "engine_class": entry.get("engine_class")}
            for key in (key for key, value in others.items() if value and entry.get(key) == value):
                report((name, "deterministic"), f"{key}: {entry[key]} decides what it computes together; remove one.")
        if "engine_class" in entry:
            _check_engine(name, entry["engine_class"], report)
        if "adapter" in entry or "base" in entry:
            _check_adapter(name, models, report)
        elif "source" not in entry:
            report((name,), 'the key "source" is missing (or "base" and "adapter").')
    _check_server_limits(models, report)


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
        return
    problem = None
    if is_server(models[base]):
        problem = "is behind a server, which applies no adapters; serve the adapted model instead."
    elif models[base].get("generation_engine") == "vllm":
        problem = "has generation_engine: vllm, which supports no adapters; use generation_engine: transformers."
    elif engine := models[base].get("engine_class"):
        problem = f"has engine_class: {engine}, which applies no adapters; remove it."
    if problem:
        report((name, "base"), f"{base} {problem}")


def is_template_file(setting: str) -> bool:
    """Return whether `chat_template` is a file, and not the name of one of the tokenizer's templates."""
    return "/" in setting or setting.endswith(".jinja")


def _check_rendering(name: str, entry: dict, report) -> None:
    """Check the settings of rendered prompts, as far as that is possible without the template."""
    keys = [key for key in (*RENDERING, _ALIAS) if key in entry]
    for key in keys if entry.get("chat") is False else ():
        report((name, key), "no effect with chat: false; remove one of them.")
    arguments = entry.get("chat_template_args", entry.get(_ALIAS, {}))
    if _ALIAS in keys and "chat_template_args" in keys:
        report((name, _ALIAS), "another name of chat_template_args; remove one of them.")
    if "enable_thinking" in keys and (given := {*SWITCHES, EFFORT} & arguments.keys()):
        report((name, "enable_thinking"), f"chat_template_args has {given.pop()}, too; remove one of them.")
    template = entry.get("chat_template", "")
    if is_template_file(template) and not Path(template).expanduser().is_file():
        report((name, "chat_template"), f"file not found: {template}.")
    if is_server(entry):
        if template and "tokenizer" not in entry:
            report((name, "chat_template"), "the server applies its own template; set tokenizer, or remove it.")
        if isinstance(entry.get("think_end_token"), int) and "tokenizer" not in entry:
            report((name, "think_end_token"), "expected the text of the token, or a tokenizer for its ID.")
        if entry.get("gen_kwargs") == "recommended":
            message = "expected values, such as {temperature: 0.6, top_p: 0.95}: the files of a server are not known."
            report((name, "gen_kwargs"), message)


def _check_engine(name: str, engine: str, report) -> None:
    """Check that Python finds the package of an engine, which is imported by the jobs."""
    package = engine.partition(":")[0].partition(".")[0]
    if importlib.util.find_spec(package) is None:
        report(
            (name, "engine_class"),
            f'expected MODULE:CLASS of an installed package, got "{engine}": no module {package} is found.',
        )


def is_server(settings: dict) -> bool:
    """Return whether a model is behind a server."""
    return settings.get("source", "").startswith(("http://", "https://"))


def _check_server_keys(name: str, entry: dict, report) -> None:
    """Check that a model behind a server has no settings of a local model, and the other way around."""
    for key in entry:
        if is_server(entry) and key not in _SERVER_KEYS:
            report((name, key), f"{key} is decided by the server; remove it.")
        if not is_server(entry) and key in _SERVER_ONLY:
            report((name, key), f"{key} requires a server as the source, such as http://host:8000/v1.")
    if is_server(entry) and entry.get("kind") in ("masked", "seq2seq"):
        report((name, "kind"), "a model behind a server is a causal model; remove it.")


def _check_server_limits(models: dict, report) -> None:
    """Check that all models of a server name the same limit of requests, which they share."""
    limits: dict[str, tuple[str, int | None]] = {}
    for name, settings in models.items():
        if is_server(settings):
            address, limit = urlsplit(settings["source"]).netloc, settings.get("concurrency")
            other, previous = limits.setdefault(address, (name, limit))
            if previous != limit:
                message = f"{other} is on the same server, whose limit they share; set the same value."
                report((name, "concurrency"), message)


def check_name(name: str, report) -> None:
    """Report a name that cannot be that of a directory."""
    if problem := portable_problem(name):
        report((name,), f"{quoted(name)} {problem}; choose another name.")


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
    """Return the distinct (baseline, candidate) pairs of all comparisons; `report(keys, message)` mistakes.

    The default: every base with its adapters, all external results with every model, and otherwise the only two models.
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
                report((i,), f"expected all_pairs or {{baseline: NAME, candidate: NAME}}, got {quoted(entry)}.")
            pairs += combinations(available, 2)
            continue
        baseline = entry["baseline"]
        is_all = entry["candidate"] == "all"
        candidates = [name for name in models if name != baseline] if is_all else as_list(entry["candidate"])
        for key, names in (("baseline", [baseline]), ("candidate", candidates)):
            for name in names:
                if name not in available:
                    report((i, key), f'"{displayable(name)}" is not a model of this config.{suggest(name, available)}')
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
