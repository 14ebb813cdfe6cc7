"""What the result of each rule depends on, beside its input files: the part of the config that it uses and no more.

A rule passes its spec to its verb as JSON, so that editing one model's settings reruns that model and nothing else.
"""

import os
from pathlib import Path

from vernacular.comparison.files import files_in
from vernacular.config.load import COMPAT, GENERATED, Config, Evaluation, encoder_name
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.core.records import failures, read_record
from vernacular.data.treebank.declared import local_files as treebank_files

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
    }


def of_requests(config: Config, evaluation: Evaluation) -> dict:
    """The evaluation, and the words of its prompts."""
    task = config.tasks[evaluation.task]
    words = WORKFLOW / "prompts" / f"{evaluation.language}.yaml"
    return {
        "evaluation": evaluation.id,
        "task": {key: task[key] for key in ("task", "prompt", "protocols")},
        "language": evaluation.language,
        "protocol": evaluation.protocol,
        "shots": evaluation.shots,
        "seed": evaluation.seed,
        "style": evaluation.style,
        "options": dict(evaluation.options),
        "prompts": file_fingerprint(words) if words.exists() else None,
    }


def of_model(config: Config, name: str) -> dict:
    settings = config.models[name]
    if "adapter" in settings:
        own = {key: settings[key] for key in ("adapter", "allow_pickle", "allow_other_base")}
        return {"name": name, **own, "files": local_files(settings["adapter"])}
    return {"name": name, **{key: settings[key] for key in _LOADING}, "files": local_files(settings["source"])}


def of_inference(config: Config, names: list[str]) -> dict:
    """How each of these models is asked: what changes its answers, and where it runs."""
    return {"models": {name: _asking(config.models[name]) for name in names}}


def _asking(settings: dict) -> dict:
    asking = {key: value for key, value in settings.items() if key not in _NOT_ASKING}
    return asking | {"quantization": _QUANTIZATION[settings["quantization"]]}


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
    """The files of a data set on this disk; none of a set that comes from the Hub or the web."""
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


def forget_unavailable(resources: Path, results: Path) -> list[Path]:
    """Delete the files that say why something could not be had, so that this run tries again.

    And the files made from them, which say the same: Snakemake makes no file anew that nothing missing depends on.
    Returns what it deleted.
    """
    forgotten = []
    for path in sorted((resources / "items").glob("*.parquet")):
        try:
            unavailable = "unavailable" in artifacts.metadata(path)
        except ArtifactError:
            unavailable = True
        if unavailable:
            forgotten += [path, *results.glob(f"requests/{path.stem}.*"), *results.glob(f"*/*/{path.stem}.*.parquet")]
    for path in sorted([*resources.glob("models/*.json"), *resources.glob("encoders/*.json")]):
        try:
            unavailable = "unavailable" in read_record(path)
        except ArtifactError:
            unavailable = True
        if unavailable:
            made_of = results.glob(f"{path.stem}/*/*.parquet") if path.parent.name == "models" else ()
            forgotten += [path, *made_of]
    for path in sorted(results.glob("*/similarity/*.parquet")):
        try:
            without = artifacts.metadata(path).get("without")
        except ArtifactError:  # metrics says what to do about it
            continue
        if without:
            forgotten += [path, path.parents[1] / "tasks" / path.name]
    for path in sorted((results / "requests").glob("*.parquet")):
        try:  # damaged, they would stop the plan, which asks how much work they are
            artifacts.metadata(path)
        except ArtifactError:
            forgotten += [path, *results.glob(f"*/*/{path.stem}.parquet")]
    for path in sorted((results / "asked").glob("*/*.json")):
        try:
            failed = failures(path)
        except ArtifactError:  # answers says what to do about it
            continue
        answers = [f"{name}/*/{evaluation}.parquet" for name, of_model in failed.items() for evaluation in of_model]
        forgotten += [path] * bool(answers) + [file for pattern in answers for file in results.glob(pattern)]
    for path in forgotten:
        path.unlink(missing_ok=True)
    return forgotten
