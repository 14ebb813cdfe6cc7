"""Checks of what a config refers to: model files, packages, data files, their columns, and numbers of rows.

No model is loaded and nothing is written. A run does not need these checks: it reports the same problems, each with the
results that are missing because of it.
"""

import collections
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vernacular.checkpoints.adapters import CONFIG as ADAPTER_CONFIG
from vernacular.checkpoints.adapters import PICKLED, WEIGHTS, check_adapter, check_fits_base, check_format
from vernacular.checkpoints.files import PREFIX, check_settings, check_tokenizer, config_of, is_packed, weights_of
from vernacular.checkpoints.inputs import is_path
from vernacular.checkpoints.llama_cpp import check_adapter as check_gguf_adapter
from vernacular.checkpoints.llama_cpp import check_model
from vernacular.checkpoints.resolve import check_files, locate
from vernacular.config import dependencies
from vernacular.config.load import Config
from vernacular.config.specs import DatasetSpec
from vernacular.core import hub_snapshot
from vernacular.core.errors import ConfigError, DataError, ModelError, UserError, format_count
from vernacular.core.model_record import ModelRecord
from vernacular.core.validate import Problems
from vernacular.data.audit import contradicting
from vernacular.data.load import load_items
from vernacular.data.treebank.patterns import is_local as is_local_treebank
from vernacular.exchange.publications import checked_lines, is_publication, published_models
from vernacular.metrics.language import is_available, unidentified
from vernacular.protocols.build import build_evaluation
from vernacular.protocols.prompts import language_pair
from vernacular.protocols.registry import PROSE

_PACKAGES = {"quantization": {"8bit": "bitsandbytes", "4bit": "bitsandbytes"}, "generation_engine": {"vllm": "vllm"}}


@dataclass
class References:
    """Problems of what a config refers to, numbers of items, and what was not checked."""

    problems: Problems
    items: dict[str, int] = field(default_factory=dict)  # evaluation -> items that it evaluates
    notes: list[str] = field(default_factory=list)  # dropped rows, and other warnings
    unchecked: list[str] = field(default_factory=list)  # sources on the Hub or the web


def check_references(config: Config, problems: Problems, *, online: bool = False) -> References:
    """Check the models, encoders and data of what is valid of a config, and add to `problems` what is wrong.

    `online`: ask the Hub if its repositories exist and may be read, by a few small files of each.
    """
    references = check_models(config, problems, online=online)
    for name, encoder in config.encoders.items():
        _check(references, "encoder", name, _check_source, encoder, "encoder", online)
    for name, entry in config.external_results.items():
        _check(references, "external_results", name, _check_publication, entry)
    _check_data(config, references, online)
    _check_languages(config, references)
    _check_lm_eval(config, references)
    return references


def check_models(config: Config, problems: Problems, *, online: bool = False) -> References:
    """Check the models of a config as `check_references` does."""
    references = References(problems)
    for name, settings in config.models.items():
        source = settings.get("adapter") or settings["source"]
        if name in config.checkpoints and is_path(source) and not Path(source).exists():
            references.notes.append(f"model {name}: {source} was deleted; its results are kept.")
        elif "adapter" in settings:
            _check(references, "model", name, _check_adapter, settings, config, online)
        elif name in config.servers:
            _check(references, "model", name, _check_tokenizer, settings, online)
            if source := settings.get("reference"):
                _check(references, "model", name, _check_source, {"source": source}, "causal", online)
        else:
            _check_packages(name, settings, references.problems)
            _check(references, "model", name, _check_source, settings, settings["kind"], online)
            _check(references, "model", name, _check_rendering, settings)
    return references


def _check(references: References, kind: str, name: str, function, *args) -> None:
    """Call a check that raises UserError, or returns a source that it could not check."""
    try:
        if unchecked := function(name, *args):
            references.unchecked.append(unchecked)
    except UserError as error:
        references.problems.add(f"{kind} {name}: {str(error).removeprefix(f'model {name}: ')}")


def _check_packages(name: str, settings: dict, problems: Problems) -> None:
    for key, packages in _PACKAGES.items():
        package = packages.get(settings[key])
        if package and importlib.util.find_spec(package) is None:
            problems.add(
                f"model {name}: {key}: {settings[key]} needs the package {package}; run `pip install {package}`."
            )


def _on_disk(source: str, online: bool, is_complete: Callable[[Path], bool]) -> str | None:
    """Return a source on this disk: itself, or if it is on the Hub, its copy in the cache; None: the Hub is asked."""
    if is_path(source) or source.startswith(PREFIX):
        return source
    cached = None if online else hub_snapshot.cached(source)
    return str(cached) if cached and is_complete(cached) else None


def _check_source(name: str, settings: dict, kind: str, online: bool) -> str | None:
    """Check the files of a checkpoint on this disk; of one on the Hub, whether it may be downloaded."""
    source = settings["source"]
    allow_pickle, code = (settings.get(key, False) for key in ("allow_pickle", "trust_remote_code"))
    permissions = {"allow_pickle": allow_pickle, "code": code}
    local = _on_disk(source, online, lambda path: _has_weights(name, path, allow_pickle))
    if local is None:
        return _check_hub(source, "config.json", online)
    path, _, is_gguf = locate(local, **permissions)
    if is_gguf and kind != "encoder" and "dtype" in settings and dependencies.may_run_as_gguf(settings):
        check_model(name, path, kind)
    elif not is_gguf and not is_packed(path):
        found, _ = check_files(name, path, kind=kind, **permissions)
        check_settings(name, found["kind"], settings)
    return None


def _check_rendering(name: str, settings: dict) -> None:
    """Check the settings of rendered prompts with the tokenizer of a checkpoint in a directory."""
    rendering = dependencies.rendering_settings(settings)
    if rendering and is_path(settings["source"]) and Path(settings["source"]).expanduser().is_dir():
        from vernacular.inference.generation.prepare import check_rendering

        directory = str(Path(settings["source"]).expanduser())
        check_rendering(ModelRecord(name=name, directory=directory, **rendering))


def _has_weights(name: str, path: Path, allow_pickle: bool) -> bool:
    """Return whether a checkpoint in the Hub's cache is complete; otherwise a run downloads the rest."""
    try:
        return path.is_file() or bool(config_of(name, path) and weights_of(name, path, allow_pickle=allow_pickle))
    except ModelError:
        return False


def _check_tokenizer(name: str, settings: dict, online: bool) -> str | None:
    """Check the files of a tokenizer of a model behind a server; the server itself is asked by its probe."""
    if not (source := settings.get("tokenizer")):
        return None
    file = "tokenizer_config.json"
    local = _on_disk(source, online, lambda path: path.is_file() or (path / file).exists())
    if local is None:
        return _check_hub(source, file, online)
    path, _, is_gguf = locate(local)
    if not is_gguf:
        check_tokenizer(name, path)
    return None


def _check_publication(name: str, entry: dict) -> None:
    """Check the records of a publication, and the results per item of one model."""
    path = Path(entry["path"])
    if is_publication(path) and (model := published_models(path).get(entry.get("model"))):
        collections.deque(checked_lines(path, model, {}), maxlen=0)


def _check_adapter(name: str, settings: dict, config: Config, online: bool) -> str | None:
    """Check the files of an adapter on this disk, and whether they fit those of its base if these are, too."""
    source, base = settings["adapter"], config.models[settings["base"]]
    permissions = {key: settings[key] for key in ("allow_pickle", "allow_base_mismatch")}
    weights = (WEIGHTS, PICKLED) if permissions["allow_pickle"] else (WEIGHTS,)
    local = _on_disk(source, online, lambda path: any((path / file).exists() for file in weights))
    if local is None:
        return _check_hub(source, ADAPTER_CONFIG, online)
    base_is_gguf = dependencies.may_run_as_gguf(base) and _is_gguf(base["source"])
    check_format(name, source, settings["base"], base_is_gguf=base_is_gguf)
    if base_is_gguf:
        if Path(local).expanduser().is_file() and is_path(base["source"]):
            check_gguf_adapter(name, Path(local).expanduser(), Path(base["source"]).expanduser())
        return None
    record = ModelRecord(name=settings["base"], source=base["source"])
    directory, _, adapter_config = check_adapter(name, local, record, **permissions)
    if local_base := _on_disk(base["source"], False, Path.exists):
        try:
            path, _, _ = locate(local_base)
        except ModelError:  # reported for the base
            return None
        if path.is_dir():
            check_fits_base(name, local, directory, adapter_config, record | {"directory": str(path)})
    return None


def _is_gguf(source: str) -> bool:
    return ".gguf" in source or (source.startswith(PREFIX) and locate(source)[2])


def _check_hub(source: str, file: str, online: bool) -> str | None:
    """Download a small file of a repository: only this shows whether a gated one may be read."""
    if not online:
        return source
    _progress(source)
    repository, _, revision = source.partition("@")
    owner, name, *path = repository.split("/", 2)
    hub_snapshot.snapshot(f"{owner}/{name}", revision or None, [".gitattributes" if path else file])
    return None


def _progress(source: str) -> None:
    print(f"checking {source} on the Hub", flush=True)


def _check_data(config: Config, references: References, online: bool) -> None:
    """Read the datasets that are on this disk, and build the requests of their evaluations."""
    datasets = dependencies.items_spec(config).items
    loaded: dict[str, list[dict]] = {}
    for name, spec in datasets.items():
        try:
            if _is_on_disk(spec):
                loaded[name], metadata = load_items(spec.task, spec.language, source=spec.data, limit=spec.limit)
                references.notes += metadata["warnings"]
                if found := contradicting(loaded[name], spec.language):
                    repeated = "with the question and options of another item, and another answer"
                    first = f"{found[0].item_id} ({found[0].detail})"
                    references.notes.append(f"{name}: {format_count(len(found), 'item')} {repeated}: {first}.")
            elif not online or not _check_dataset(spec):
                references.unchecked.append(name)
        except (DataError, ConfigError) as error:
            references.problems.add(str(error))
    for evaluation, spec in dependencies.requests_spec(config).evaluations.items():
        if spec.items_stem in loaded:
            try:
                rows, metadata = build_evaluation(loaded[spec.items_stem], spec)
            except (DataError, ConfigError) as error:
                references.problems.add(f"{evaluation}: {error}")
            else:
                references.items[evaluation] = len({row["item_id"] for row in rows})
                references.notes += [f"{evaluation}: {warning}." for warning in metadata["warnings"]]


def _check_languages(config: Config, references: References) -> None:
    """Note the languages of generated texts that the identifier does not know, if it is installed."""
    evaluations = [each for each in config.evaluations.values() if each.protocol in PROSE]
    if evaluations and is_available():
        tasks = config.tasks
        pairs = [language_pair(tasks[each.task], each.language) if each.task in tasks else None for each in evaluations]
        languages = [pair[1] if pair else each.language for pair, each in zip(pairs, evaluations, strict=True)]
        references.notes += [f"{reason}." for reason in [unidentified(languages)] if reason]


def _is_on_disk(spec: DatasetSpec) -> bool:
    """Return whether a dataset is read without a network."""
    sources = _sources(spec)
    if spec.data != "samples" and any("treebank" in source and not is_local_treebank(source) for source in sources):
        return False
    return bool(spec.files) or not any("url" in source or _hub_source(source) for source in sources)


def _sources(spec: DatasetSpec) -> list[dict]:
    return spec.task["languages"][spec.language]["source"]


def _hub_source(source: dict) -> dict | None:
    """Return the repository on the Hub that a source names, also by hf://; None if it names another place."""
    if not str(source.get("file", "")).startswith("hf://"):
        return source if "hub" in source else None
    from vernacular.data import hub  # imports `datasets`, which takes a second

    return hub.from_uri(source["file"])


def _check_dataset(spec: DatasetSpec) -> bool:
    """Download the card of each repository of a dataset, to see if it may be read; return whether there is one."""
    repositories = [repository for source in _sources(spec) if (repository := _hub_source(source))]
    for repository in repositories:
        _progress(repository["hub"])
        hub_snapshot.snapshot(
            repository["hub"],
            repository.get("revision"),
            ["README.md", ".gitattributes"],
            repo_type="dataset",
            error_class=DataError,
            missing_file_error=DataError,
        )
    return bool(repositories)


def _check_lm_eval(config: Config, references: References) -> None:
    """Check what is known of the tasks of lm-eval without running it: its interpreter, reasons, and local files."""
    if not config.lm_eval:
        return
    if not os.access(config.lm_eval_python, os.X_OK):
        references.problems.add(f"lm_eval: {config.lm_eval_python} not found; install the environment again.")
    chats = [name for name, settings in config.models.items() if settings.get("chat") is True]
    if chats and (plain := [e.id for e in config.evaluations.values() if e.id in config.lm_eval and e.style != "chat"]):
        references.notes.append(
            f"{format_count(len(plain), 'evaluation')} with lm_eval are in plain text, also for {', '.join(chats)} "
            "with chat: true; set chat: true in the entry to render their prompts."
        )
    for evaluation, task in config.lm_eval.items():
        if task.unit.reason:
            references.notes.append(f"{evaluation} cannot be run: {task.unit.reason}.")
        for name in task.catalog.replaced_names(task.entry):
            references.notes.append(f"{evaluation}: {name} of the custom task files replaces that of lm_eval.")
        for path in task.missing_files():
            references.problems.add(f"{evaluation}: file not found: {path}.")
    count = format_count(len(config.lm_eval), "evaluation")
    references.notes.append(f"{count} with lm_eval: the data are not checked, because only lm_eval reads them.")
