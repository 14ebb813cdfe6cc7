"""What the result of each rule depends on, beside its input files: the part of the config that it uses and no more.

A rule passes its spec to its verb as JSON, so that editing one model's settings reruns that model and nothing else.
"""

import functools
import os
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.comparison.external.results import files_in
from vernacular.config.load import COMPAT, GENERATED, Config, Evaluation, encoder_name
from vernacular.core.contents import stamp
from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.core.records import read_record
from vernacular.data.treebank.patterns import local_files as treebank_files
from vernacular.inference.job.work import engine_version, further_libraries
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.similarity.answers import TOOLS
from vernacular.protocols.prompts import prompt_lines
from vernacular.types import SETTING

_LOADING = ("source", "kind", "allow_pickle", "trust_remote_code")  # settings that decide which files a model is
_NOT_ASKING = ("source", "kind", "base", "adapter", "allow_other_base", "shards", "gpus")
_QUANTIZATION = {"none": None, "8bit": {"load_in_8bit": True}, "4bit": {"load_in_4bit": True}}


def of_items(config: Config) -> dict:
    """What each items file depends on; the check of the config made evaluations that share one agree."""
    evaluations = {evaluation.items: evaluation for evaluation in reversed(config.evaluations.values())}
    return {"items": {name: _dataset(config, evaluations[name]) for name in sorted(evaluations)}}


def _dataset(config: Config, evaluation: Evaluation) -> dict:
    """The task file as far as this language goes, and which rows of it."""
    task = config.tasks[evaluation.task]
    language = {evaluation.language: task["languages"][evaluation.language]}
    return {
        # a clone in another folder is the same task
        "task": {**task, "folder": os.path.relpath(task["folder"]), "languages": language},
        "language": evaluation.language,
        "data": evaluation.data,
        "limit": evaluation.limit,
        "files": {file: _content(file) for file in data_files(config, evaluation)},
    }


def of_requests(config: Config) -> dict:
    """What the requests of each evaluation depend on, besides its items."""
    return {"evaluations": {e.id: _prompts(config, e) | {"items": e.items} for e in config.evaluations.values()}}


def _prompts(config: Config, evaluation: Evaluation) -> dict:
    """The evaluation, and the words of its prompts."""
    task = config.tasks[evaluation.task]
    return {
        "evaluation": evaluation.id,
        "task": {key: task[key] for key in ("task", "prompt", "protocols")},
        "language": evaluation.language,
        "protocol": evaluation.protocol,
        "shots": evaluation.shots,
        "seed": evaluation.seed,
        "style": evaluation.style,
        "options": dict(evaluation.options),
        "prompts": prompt_lines(evaluation.language),
    }


def of_model(config: Config, name: str) -> dict:
    """Where a model or adapter comes from, what it is allowed, and whether its files are those recorded."""
    settings, files = config.models[name], _files_key(Path("resources/models", f"{name}.json").absolute())
    if "adapter" in settings:
        own = {key: settings[key] for key in ("adapter", "allow_pickle", "allow_other_base")}
        return {"name": name, **own, "files": files}
    return {"name": name, **{key: settings[key] for key in _LOADING}, "files": files}


def of_inference(config: Config, names: list[str]) -> dict:
    """Settings of each model that change its outputs or where it runs, and the engine that computes them."""
    engines = {kind.name: engine_version(kind) for kind in (SCORES, GENERATIONS)}
    return {"models": {name: _asking(config.models[name]) for name in names}, "engines": engines}


def _asking(settings: dict) -> dict:
    asking = {key: value for key, value in settings.items() if key not in _NOT_ASKING}
    asking |= {"quantization": _QUANTIZATION[settings["quantization"]]}
    libraries = further_libraries(asking | {"adapter": settings.get("adapter")}, GENERATIONS)
    return asking | {"libraries": libraries}


def of_encoder(config: Config, name: str) -> dict:
    encoder = config.encoders[name]
    return {"name": name, **encoder, "files": _files_key(Path("resources/encoders", f"{name}.json").absolute())}


def of_similarity(config: Config) -> dict:
    """Which encoder measures which metric, and how, in each evaluation with generated answers."""
    return {
        "evaluations": {
            e.id: {
                "items": e.items,
                "language": e.language,
                "style": e.style,
                "metrics": [_variant(config, metric, e) for metric in config.similarity["metrics"]],
                "encoders": {m: encoder_name(config.encoder(e.language, m)) for m in config.similarity["metrics"]},
            }
            for e in config.evaluations.values()
            if e.protocol in GENERATED
        },
    }


def _variant(config: Config, metric: str, evaluation: Evaluation) -> dict:
    """A similarity metric with its options, which another tool's style prescribes."""
    if tool := TOOLS.get(evaluation.style):
        return {"metric": metric, **tool.METRIC_OPTIONS.get(metric, {})}
    return {"metric": metric} if metric == "cosine" else {"metric": metric, "idf": config.similarity["idf"]}


def of_metrics(config: Config, name: str) -> dict:
    return {
        "model": name,
        "evaluations": {
            e.id: {key: getattr(e, key) for key in ("items", *SETTING)} for e in config.evaluations.values()
        },
    }


def of_comparisons(config: Config) -> dict:
    """Who is compared with whom, on what; results made elsewhere by the content of their files."""
    names = ("items", *SETTING)
    joined = {name: {**what, "files": _contents(what["results"])} for name, what in config.joined.items()}
    return {
        "models": list(config.models),
        "pairs": config.comparisons,
        "joined": joined,
        "evaluations": {e.id: {key: getattr(e, key) for key in names} for e in config.evaluations.values()},
    }


def _contents(path: str) -> dict[str, str]:
    return {os.path.relpath(file, path): file_fingerprint(file) for file in files_in(Path(path))}


def of_compat(config: Config) -> dict:
    chosen = [e for e in config.evaluations.values() if e.protocol in COMPAT]
    return {"evaluations": {e.id: {"items": e.items, "protocol": e.protocol} for e in chosen}}


def of_summary(config: Config) -> dict:
    return {"models": list(config.models), "evaluations": list(config.evaluations)}


def of_report(config: Config) -> dict:
    """Whom and what the page shows, and its look."""
    files = sorted(f for f in (WORKFLOW / "report").rglob("*") if f.suffix in (".html", ".css", ".js"))
    look = fingerprint([[file.name, file_fingerprint(file)] for file in files])
    return {**of_summary(config), "pairs": config.comparisons, "look": look}


def data_files(config: Config, evaluation: Evaluation) -> list[str]:
    """Return the paths of a dataset's files on this disk, missing ones included; none for the Hub or the web.

    They are no inputs of the rule: Snakemake would stop at a missing one, and look at times instead of contents.
    """
    language = config.tasks[evaluation.task]["languages"][evaluation.language]
    samples = WORKFLOW / "samples" / evaluation.task / evaluation.language
    folder = Path(config.tasks[evaluation.task]["folder"])
    if evaluation.data != "samples" or not samples.is_dir():
        treebanks = [f for source in language["source"] if "treebank" in source for f in treebank_files(source, folder)]
        if treebanks:
            return [os.path.relpath(file) for file in treebanks]
    named = [source.get(key) for source in language["source"] for key in ("file", "few_shot") if "file" in source]
    named = [file for each in named for file in (each if isinstance(each, list) else [each]) if file]
    if own := [file for file in named if "://" not in file]:
        return [os.path.relpath(folder / Path(file).expanduser()) for file in own]
    if evaluation.data == "samples":
        return sorted(os.path.relpath(file) for file in samples.iterdir())
    return []


@functools.cache  # a file that was only touched is hashed to find out, and a job's key does not change while it runs
def _files_key(path: Path) -> str:
    """Return a text that changes when the files of the model or encoder recorded at `path` do.

    It is the one that the record was made with as long as the files are those recorded, by size, times and inode or
    else by content. Nothing is hashed here before there is a record: its job does that.
    """
    try:
        record = read_record(path)
    except ArtifactError:
        return "damaged" if path.exists() else "not recorded yet"
    recorded_with = record.get("files_key") or "not recorded yet"
    changed = inputs.stale(record)
    return (
        f"{recorded_with[:16]} changed: {fingerprint([{path: _stamp(path) for path in changed}, recorded_with])}"
        if changed
        else recorded_with
    )


def _stamp(path: str) -> dict[str, int] | None:
    try:
        return stamp(os.stat(path))
    except OSError:
        return None


@functools.cache  # many evaluations share a file; within one plan it does not change
def _content(path: str) -> str | None:
    """sha256 of a data file; None where there is none, which its job reports."""
    try:
        return file_fingerprint(path)
    except OSError:
        return None
