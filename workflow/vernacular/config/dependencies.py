"""What the result of each rule depends on, beside its input files: the part of the config that it uses and no more.

A rule passes its spec to its verb as JSON, so that editing one model's settings reruns that model and nothing else.
"""

import functools
import os
from pathlib import Path

from vernacular.comparison.files import files_in
from vernacular.config.load import COMPAT, GENERATED, Config, Evaluation, encoder_name
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.data.treebank.declared import local_files as treebank_files
from vernacular.inference.keys import engine_version, further_libraries
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.requests.prompts import prompt_lines

_LOADING = ("source", "kind", "allow_pickle", "trust_remote_code")  # settings that decide which files a model is
_NOT_ASKING = ("source", "kind", "base", "adapter", "allow_other_base", "shards", "gpus")
_QUANTIZATION = {"none": None, "8bit": {"load_in_8bit": True}, "4bit": {"load_in_4bit": True}}
_CHECKPOINT = {".json", ".safetensors", ".bin", ".model", ".jinja"}


def of_items(config: Config, evaluation: Evaluation) -> dict:
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


def of_requests(config: Config, evaluation: Evaluation) -> dict:
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
    settings = config.models[name]
    if "adapter" in settings:
        own = {key: settings[key] for key in ("adapter", "allow_pickle", "allow_other_base")}
        return {"name": name, **own, "files": local_files(settings["adapter"])}
    return {"name": name, **{key: settings[key] for key in _LOADING}, "files": local_files(settings["source"])}


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
    return {"name": name, **encoder, "files": local_files(encoder["source"])}


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
    """A similarity metric with its options; the simil-eval styles measure as that tool does."""
    if evaluation.style.startswith("simil-eval"):
        legacy = {"moverscore": {"variant": "simil-eval"}, "bertscore": {"idf": True}}
        return {"metric": metric, **legacy.get(metric, {})}
    return {"metric": metric} if metric == "cosine" else {"metric": metric, "idf": config.similarity["idf"]}


def of_metrics(config: Config, name: str) -> dict:
    return {
        "model": name,
        "evaluations": {
            e.id: {key: getattr(e, key) for key in ("items", "task", "language", "protocol", "shots", "seed", "style")}
            for e in config.evaluations.values()
        },
    }


def of_comparisons(config: Config) -> dict:
    """Who is compared with whom, on what; results made elsewhere by the content of their files."""
    names = ("items", "task", "language", "protocol", "shots", "seed", "style")
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


def local_files(source: str) -> dict[str, list]:
    """Size and a hash of both ends of each file of a model on this disk.

    A checkpoint that is trained further is another model, and is noticed; one that is only touched or copied is not.
    """
    if not source.startswith((".", "/", "~")):
        return {}
    where = Path(os.path.expanduser(source))
    files = (
        [where] if where.is_file() else sorted(f for f in where.glob("*") if f.suffix in _CHECKPOINT and f.is_file())
    )
    return {file.name: [file.stat().st_size, _ends(file)] for file in files}


def _ends(file: Path, count: int = 65536) -> str:
    with open(file, "rb") as opened:
        head = opened.read(count)
        opened.seek(-min(count, file.stat().st_size), os.SEEK_END)
        return fingerprint([head.hex(), opened.read(count).hex()])[:16]


@functools.cache  # many evaluations share a file; within one plan it does not change
def _content(path: str) -> str | None:
    """sha256 of a data file; None where there is none, which its job reports."""
    try:
        return file_fingerprint(path)
    except OSError:
        return None
