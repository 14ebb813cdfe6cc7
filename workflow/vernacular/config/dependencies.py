"""Dependencies of each rule's result, in addition to its input files: the part of the config that it uses.

A rule has its spec (`config/specs.py`) as a parameter, so that a change of one model's settings reruns only this model.
Data files enter by content, the files of a recorded model by its record, checkpoints of series by their positions.
"""

import contextlib
import functools
import os
from collections.abc import Iterable
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.checkpoints.files import PREFIX, find_in_package
from vernacular.checkpoints.inputs import is_deleted
from vernacular.checkpoints.resolve import tokenizer_files
from vernacular.config import specs
from vernacular.config.evaluations import evaluation_spec, request_options
from vernacular.config.load import COMPARED, EXPORTED, Config, Judge, encoder_name
from vernacular.config.models import RENDERED, is_template_file
from vernacular.config.series import families, without_earlier
from vernacular.core.contents import stamp
from vernacular.core.errors import ArtifactError, DataError, ModelError
from vernacular.core.fingerprint import content_hash, file_fingerprint, fingerprint
from vernacular.core.model_record import RENDERING, read_model
from vernacular.core.paths import WORKFLOW
from vernacular.data.columns import samples_name
from vernacular.data.treebank.patterns import local_files as treebank_files
from vernacular.exchange import READMES
from vernacular.inference.engine import LLAMA_CPP
from vernacular.inference.job.work import additional_libraries, engine_version
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.similarity import outputs
from vernacular.protocols import prompts
from vernacular.protocols.registry import PROTOCOLS, uses_prompt_lines
from vernacular.types import DEFAULT_PROMPT, SETTING, SIMIL_EVAL_STYLES, Evaluation

_LOADING_KEYS = ("source", "kind", "allow_pickle", "trust_remote_code")  # settings that determine the files of a model
_ADAPTER_KEYS = ("adapter", "allow_pickle", "allow_base_mismatch")  # the same, of an adapter
_NON_INFERENCE_KEYS = ("source", "kind", "base", "adapter", "allow_base_mismatch", "shards", "gpus")
_PROBE_KEYS = ("source", "model", "tokenizer", "revision", "reference")  # of a server; the probe also depends on:
_SERVER_KEYS = (*_PROBE_KEYS, "api_key_env", "concurrency", "timeout", "chat", "max_length", *RENDERED)
_QUANTIZATION = {"none": None, "8bit": {"load_in_8bit": True}, "4bit": {"load_in_4bit": True}}


def items_spec(config: Config) -> specs.ItemsSpec:
    """Return the dependencies of each items file; config validation ensures that evaluations that share one agree."""
    evaluations = {evaluation.items_stem: evaluation for evaluation in reversed(config.own_evaluations)}
    return specs.ItemsSpec(items={name: _dataset_spec(config, evaluations[name]) for name in sorted(evaluations)})


def _dataset_spec(config: Config, evaluation: Evaluation) -> specs.DatasetSpec:
    # what readers see comes from the config, and the answers of speakers enter later stages
    left_out = ("verdicts", "labels", "title", "short_title", "note")
    task = {key: value for key, value in config.tasks[evaluation.task].items() if key not in left_out}
    entry = task["languages"][evaluation.language]
    language = {evaluation.language: {key: value for key, value in entry.items() if key != "benchmark"}}
    return specs.DatasetSpec(
        # relative: the same task in another clone
        task=task | {"directory": os.path.relpath(task["directory"]), "languages": language},
        language=evaluation.language,
        data=evaluation.data,
        limit=evaluation.limit,
        files={file: content_hash(file) for file in data_files(config, evaluation)},
    )


def requests_spec(config: Config) -> specs.RequestsSpec:
    """Return the dependencies of the requests of each evaluation, in addition to its items."""
    return specs.RequestsSpec(evaluations={e.id: _prompt_spec(config, e) for e in config.own_evaluations})


def lm_eval_spec(config: Config, model: str | None = None) -> specs.LmEvalSpec:
    """Return the dependencies of the requests, or of a model's metrics, of each evaluation with a task of lm-eval."""
    evaluations = {name: evaluation_spec(config.evaluations[name], task) for name, task in config.lm_eval.items()}
    return specs.LmEvalSpec(model=model, evaluations=evaluations)


def _prompt_spec(config: Config, evaluation: Evaluation) -> specs.PromptSpec:
    """Return an evaluation and its prompt lines; those of a variant do not depend on the other variants."""
    task, is_default = config.tasks[evaluation.task], evaluation.prompt == DEFAULT_PROMPT
    language, directory = _file_of_lines(config, evaluation)
    names = PROTOCOLS[evaluation.protocol].lines
    pair = prompts.language_pair(task, evaluation.language)
    lines = prompts.prompt_lines(language, directory)
    if not is_default:
        lines = prompts.variant_labels(language, evaluation.prompt, directory)
    types = prompts.entity_types(task, evaluation.language)
    if additional := prompts.additional_lines(names, language, directory, pair, types):
        lines = lines | additional
    return specs.PromptSpec(
        evaluation=evaluation.id,
        items_stem=evaluation.items_stem,
        task={key: task[key] for key in ("task", "item_type", "protocols")} | ({"pair": pair} if pair else {}),
        options=request_options(evaluation),
        prompts=lines,
        **_fields(evaluation, "language", "protocol", "shots", "seed", "style", "prompt"),
    )


def _fields(evaluation: Evaluation, *names: str) -> dict:
    return {name: getattr(evaluation, name) for name in names}


def model_spec(config: Config, name: str) -> specs.ModelSpec:
    """Return the source and permissions of a model or adapter, and the state of its files."""
    is_checkpoint, settings = name in config.checkpoints, config.models[name]
    keys = _ADAPTER_KEYS if "adapter" in settings else _LOADING_KEYS
    files = files_key(Path(config.resources, "models", f"{name}.json").absolute(), is_checkpoint)
    stated = {key: settings[key] for key in keys} | {"as_is": may_run_as_gguf(settings)}
    return specs.ModelSpec(name=name, files=files, checkpoint=is_checkpoint, **stated)


def may_run_as_gguf(settings: dict) -> bool:
    """Return whether a model is run by llama.cpp if its source is, or contains, a GGUF file: by its settings."""
    is_default = settings["dtype"] == "auto" and settings["quantization"] == "none" and "engine_class" not in settings
    may_be = ".gguf" in settings.get("source", "") or settings.get("source", "").startswith(PREFIX)
    return may_be and is_default and settings["generation_engine"] == "transformers"


def _engine(config: Config, settings: dict) -> str:
    """Return the name of a model's engine, as far as its settings and packages on this disk tell."""
    source = settings["source"] if "adapter" not in settings else config.models[settings["base"]]["source"]
    if may_run_as_gguf(settings | {"source": source}) and is_gguf(source):
        return LLAMA_CPP
    return settings.get("engine_class", "transformers")


def is_gguf(source: str) -> bool:
    """Return whether a source is a GGUF file, as far as its name and packages on this disk tell."""
    with contextlib.suppress(ModelError):
        return find_in_package(source).suffix == ".gguf" if source.startswith(PREFIX) else ".gguf" in source
    return False


TRIAL = 50  # largest `limit` of a run that only tries a server


def server_spec(config: Config, name: str) -> specs.ServerSpec:
    """Return the settings of a model behind a server, and the content of its tokenizer if that is a local directory."""
    settings = {key: config.models[name][key] for key in _SERVER_KEYS if key in config.models[name]}
    source = settings.get("tokenizer", "")
    directory = Path(source).expanduser()
    files = tokenizer_files(directory) if inputs.is_path(source) and directory.is_dir() else []
    hashes = {file: content_hash(str(directory / file)) for file in files}
    trial = all(evaluation.limit and evaluation.limit <= TRIAL for evaluation in config.evaluations.values())
    return specs.ServerSpec(name=name, **settings, tokenizer_files=hashes, trial=trial)


def inference_spec(config: Config, names: list[str]) -> specs.InferenceSpec:
    """Return the settings of each model that affect its outputs or its device, and the version of the engine."""
    engine = "server" if names[0] in config.servers else _engine(config, config.models[names[0]])
    engines = {kind.name: engine_version(kind, engine) for kind in (SCORES, GENERATIONS)}
    models = {name: _inference_settings(config.models[name]) for name in names}
    for name in models.keys() & config.checkpoints.keys():
        models[name]["checkpoint"] = True  # its results remain if it is deleted
    return specs.InferenceSpec(models=models, engines=engines)


def _inference_settings(settings: dict) -> dict:
    left_out = {*_NON_INFERENCE_KEYS, *_PROBE_KEYS}  # in the record
    inference_settings = {key: value for key, value in settings.items() if key not in left_out}
    inference_settings |= rendering_settings(settings)
    inference_settings |= {"quantization": _QUANTIZATION[settings["quantization"]]}
    uses = (settings["generation_engine"], settings.get("adapter"), inference_settings["quantization"])
    libraries = additional_libraries(GENERATIONS, *uses)
    return inference_settings | {"libraries": libraries}


def rendering_settings(settings: dict) -> dict:
    """Return the settings of rendered prompts, with the text of a template's file in place of its path."""
    rendering = {key: settings[key] for key in RENDERING if key in settings}
    if is_template_file(template := settings.get("chat_template", "")):
        rendering["chat_template"] = Path(template).expanduser().read_text("utf-8")
    return rendering


def encoder_spec(config: Config, name: str) -> specs.EncoderSpec:
    files = files_key(Path(config.resources, "encoders", f"{name}.json").absolute())
    return specs.EncoderSpec(name=name, files=files, **config.encoders[name])


def similarity_spec(config: Config) -> specs.SimilaritySpec:
    """Return the encoder and options of each similarity metric, for each evaluation with generated responses."""
    names = config.similarity["metrics"]
    return specs.SimilaritySpec(
        evaluations={
            e.id: specs.SimilaritySettings(
                evaluation=e.id,
                metrics=[_metric_spec(config, metric, e) for metric in names],
                encoders={metric: encoder_name(config.encoder(e.language, metric)) for metric in names},
                **_fields(e, "items_stem", "language", "style"),
            )
            for e in config.evaluations.values()
            if e.protocol in COMPARED
        }
    )


def _metric_spec(config: Config, metric: str, evaluation: Evaluation) -> dict:
    """Return a similarity metric with its options; those of Simil-Eval's styles are that tool's."""
    if evaluation.style in SIMIL_EVAL_STYLES:
        return {"metric": metric, **outputs.METRIC_OPTIONS.get(metric, {})}
    return {"metric": metric} if metric == "cosine" else {"metric": metric, "idf": config.similarity["idf"]}


def metrics_spec(config: Config, name: str) -> specs.MetricsSpec:
    evaluations = {e.id: specs.MeasuredSpec(**_fields(e, "items_stem", *SETTING)) for e in config.evaluations.values()}
    languages = sorted({e.language for e in config.evaluations.values()})
    refusals = {language: prompts.refusal_phrases(language) for language in languages}
    in_words = {e.language for e in config.own_evaluations if PROTOCOLS[e.protocol].lines}
    answers = {language: prompts.answer_words(language) for language in sorted(in_words)}
    judges: dict[str, list[specs.JudgmentSpec]] = {}
    labeled = _labeled(config) if config.judges else set()
    for judge_name, judge in config.judges.items():
        for evaluation in judge.evaluations if name in judge.models else ():
            judgment = _judgment(judge_name, judge, evaluation, labeled=evaluation in labeled)
            judges.setdefault(evaluation, []).append(judgment)
    return specs.MetricsSpec(model=name, evaluations=evaluations, refusals=refusals, answers=answers, judges=judges)


def judge_requests_spec(config: Config, judge: str, model: str) -> specs.JudgeRequestsSpec:
    """Return what a judge is asked about the responses of a model, in addition to these."""
    entry = config.judges[judge]
    evaluations = {
        name: specs.JudgedSpec(
            evaluation=name,
            rubric=_rubric(entry, name),
            language=entry.rubrics[name]["language"],
            **_fields(config.evaluations[name], "items_stem", "task"),
        )
        for name in entry.evaluations
    }
    return specs.JudgeRequestsSpec(judge=judge, model=model, baseline=entry.baseline, evaluations=evaluations)


def _rubric(judge: Judge, evaluation: str) -> specs.RubricSpec:
    fields = {key: value for key, value in judge.rubrics[evaluation].items() if key not in ("language", "reviewed")}
    return specs.RubricSpec(**fields, reads=judge.reads)


def _judgment(name: str, judge: Judge, evaluation: str, *, labeled: bool) -> specs.JudgmentSpec:
    rubric = judge.rubrics[evaluation]
    return specs.JudgmentSpec(
        judge=name,
        model=judge.model,
        name=f"{judge.rubric}.{rubric['language']}",
        rubric=_rubric(judge, evaluation),
        baseline=judge.baseline,
        reviewed=isinstance(rubric["reviewed"], str),
        labeled=labeled,
        answers=prompts.answer_words(rubric["language"]),
    )


def comparisons_spec(config: Config) -> specs.ComparisonsSpec:
    """Return the models that are compared and ranked, and the pairs of these."""
    earlier = set(config.models) - set(without_earlier(config.models, config.checkpoints))
    return specs.ComparisonsSpec(**_pairs_of_models(config), earlier_checkpoints=sorted(earlier))


def changes_spec(config: Config) -> specs.SidesSpec:
    return specs.SidesSpec(**_all_pairs(config))


def faults_spec(config: Config) -> specs.FaultsSpec:
    verdicts = {path: file_fingerprint(path) for path in config.verdicts}
    return specs.FaultsSpec(**_all_pairs(config), verdicts=verdicts)


def external_results_spec(config: Config) -> specs.ExternalResultsSpec:
    """Return the pairs with external results, and these by the content of their files."""
    pairs = [pair for pair in config.comparisons if not config.models.keys() >= {*pair}]
    found = {
        name: specs.ExternalSpec(**entry, files=_content_hashes(**entry))
        for name, entry in config.external_results.items()
    }
    return specs.ExternalResultsSpec(**_pairs_of_models(config) | {"pairs": pairs}, external_results=found)


def estimates_spec(config: Config) -> specs.EstimatesSpec:
    return specs.EstimatesSpec(
        **_pairs_of_models(config),
        labels={path: file_fingerprint(path) for path in config.labels},
        borrow_from=_lenders(config),
        limits={e.id: e.limit for e in config.evaluations.values() if e.limit and config.borrow_from},
    )


def _pairs_of_models(config: Config) -> dict:
    pairs = [pair for pair in config.comparisons if config.models.keys() >= {*pair}]
    return {"models": list(config.models), "pairs": pairs, "evaluations": _compared(config)}


def _all_pairs(config: Config) -> dict:
    return _pairs_of_models(config) | {"pairs": config.comparisons, "external": list(config.external_results)}


def _lenders(config: Config) -> dict[str, str]:
    """Return the results of other runs on evaluations with a limit, by the content of their files."""
    limited = [e.id for e in config.evaluations.values() if e.limit]
    files = [
        file
        for directory in config.borrow_from
        for name in limited
        for file in sorted(Path(directory).glob(f"*/tasks/{name}.parquet"))
    ]
    return {str(file): file_fingerprint(file) for file in files}


def _compared(config: Config) -> dict[str, specs.ComparedSpec]:
    names = ("items_stem", "dataset", *SETTING)
    return {e.id: specs.ComparedSpec(**_fields(e, *names)) for e in config.evaluations.values()}


def audit_spec(config: Config, items: int | None = None) -> specs.AuditSpec:
    """Return the models, their families and the evaluations of audit lists; `items`: instead of the config's."""
    items = items or (config.audit or {}).get("items", 40)
    names = families(config.models, config.checkpoints)
    fields = {"models": list(config.models), "families": names, "evaluations": _compared(config)}
    return specs.AuditSpec(**fields, items=items, parallel=_parallel(config))


def languages_spec(config: Config) -> specs.LanguagesSpec:
    """Return the models, and the evaluations of parallel tasks that differ in the language; without any, no stage."""
    parallel, groups = set(_parallel(config)), {}
    for e in config.evaluations.values():
        if e.task in parallel:
            setting = _fields(e, *SETTING)
            groups.setdefault(fingerprint(setting | {"language": None}), {})[e.id] = specs.EvaluationSpec(**setting)
    evaluations = {name: spec for own in groups.values() if len(own) > 1 for name, spec in own.items()}
    fields = {name: _pairs_of_models(config)[name] for name in ("models", "pairs")}
    return specs.LanguagesSpec(**fields, evaluations=evaluations)


def _labeled(config: Config) -> set[str]:
    # imported here, like what reads external results: metrics and their libraries, which few configs need
    from vernacular.comparison.sheets import labeled_evaluations

    return labeled_evaluations(config.labels)


def _content_hashes(path: str, model: str | None = None) -> dict[str, str]:
    from vernacular.exchange.external_results import result_files
    from vernacular.exchange.publications import is_publication, published_models

    if is_publication(Path(path)):
        try:
            files = published_models(Path(path))[model].files
        except (DataError, KeyError) as error:  # its values are missing, until the reason is another
            return {"invalid": str(error)}
    else:
        files = result_files(Path(path))
    return {os.path.relpath(file, path): file_fingerprint(file) for file in files}


def export_spec(config: Config) -> specs.ExportSpec:
    exported = [e for e in config.evaluations.values() if e.protocol in EXPORTED]
    evaluations = {e.id: specs.ExportedSpec(**_fields(e, "items_stem", "protocol")) for e in exported}
    return specs.ExportSpec(evaluations=evaluations, readmes=_hash_of(READMES.glob("*.txt")))


def summary_spec(config: Config) -> specs.SummarySpec:
    """Return what the tables show, the tasks that are translations of each other, and names of keys."""
    keys = sorted({settings["api_key_env"] for settings in config.models.values() if "api_key_env" in settings})
    fields = _table_fields(config) | {"judges": _of_own_family(config)}
    fields |= {"parallel": _parallel(config), "verdicts": bool(config.verdicts)}
    fields |= {"sheets": file_fingerprint(WORKFLOW / "sheets.csv")}
    return specs.SummarySpec(**fields, api_key_env=keys, unreviewed=_unreviewed(config), benchmarks=_benchmarks(config))


def _benchmarks(config: Config) -> dict[str, dict[str, str]]:
    """Return the benchmark of the Hub of which an evaluation gives a value, in one wording and with all items."""
    found = {}
    for evaluation in config.own_evaluations:
        entry = config.tasks[evaluation.task]["languages"][evaluation.language].get("benchmark", {})
        if entry.get("protocol") == evaluation.protocol:
            found[evaluation.id] = {key: entry[key] for key in ("dataset", "task_id", "metric")}
    return found


def _of_own_family(config: Config) -> dict[str, list[str]]:
    """Return the judged models of each judge's own family."""
    of_model = families(config.models, config.checkpoints) if config.judges else {}
    judges = config.judges.items()
    return {name: [m for m in j.models if of_model[m] == of_model[j.model]] for name, j in judges}


def _parallel(config: Config) -> list[str]:
    return [name for name in task_titles(config) if config.tasks.get(name, {}).get("parallel")]


def _table_fields(config: Config) -> dict:
    fields = {"models": list(config.models), "evaluations": list(config.evaluations), "tasks": task_titles(config)}
    fields |= {"languages": bool(languages_spec(config).evaluations), "external": bool(config.external_results)}
    return fields | {"checkpoints": _positions(config), "estimates": bool(config.labels or config.borrow_from)}


def _hash_of(files: Iterable[Path]) -> str:
    return fingerprint([[file.name, file_fingerprint(file)] for file in sorted(files)])


def report_spec(config: Config) -> specs.ReportSpec:
    """Return the models, evaluations, pairs and tasks in the report, and a hash of its templates."""
    templates = _hash_of(f for f in (WORKFLOW / "report").rglob("*") if f.suffix in (".html", ".css", ".js"))
    varied = [e for e in config.evaluations.values() if e.prompt != DEFAULT_PROMPT]
    descriptions = {e.id: _prompt_description(config, e) for e in varied}
    fields = _table_fields(config) | {"audit": config.audit is not None}
    return specs.ReportSpec(**fields, pairs=config.comparisons, templates=templates, prompts=descriptions)


def _prompt_description(config: Config, evaluation: Evaluation) -> dict:
    if evaluation.id in config.lm_eval:
        return {"differs": f"{config.lm_eval[evaluation.id].unit.name} of lm-eval"}
    language, directory = _file_of_lines(config, evaluation)
    return prompts.description(language, evaluation.prompt, directory)


def _file_of_lines(config: Config, evaluation: Evaluation) -> tuple[str, Path]:
    """Return the language and directory of the lines around the items of an evaluation."""
    task = config.tasks[evaluation.task]
    language = prompts.language_of_lines(evaluation.language, evaluation.style, task)
    return language, prompts.prompts_directory(language, task)


def _unreviewed(config: Config) -> dict[str, str]:
    """Return the language of the lines of each evaluation whose prompt no speaker has read."""
    languages = {}
    for evaluation in config.own_evaluations:
        if uses_prompt_lines(evaluation.protocol, evaluation.style):
            language, directory = _file_of_lines(config, evaluation)
            if evaluation.prompt == DEFAULT_PROMPT:
                reviewer = prompts.reviewed(language, directory)
            else:
                reviewer = prompts.description(language, evaluation.prompt, directory)["reviewed"]
            if reviewer is False:
                languages[evaluation.id] = language
    return languages


def task_titles(config: Config) -> dict[str, dict]:
    """Return what readers see of the evaluated tasks: task -> its titles and note; {} for tasks of lm-eval."""
    evaluated_tasks = dict.fromkeys(evaluation.task for evaluation in config.evaluations.values())
    files = {name: config.tasks.get(name, {}) for name in evaluated_tasks}
    keys = ("title", "short_title", "note")
    return {name: {key: file[key] for key in keys if key in file} for name, file in files.items()}


def curves_spec(config: Config) -> specs.CurvesSpec:
    """Return the evaluations, and the checkpoints of each curve in the order of training."""
    evaluations = {e.id: specs.EvaluationSpec(**_fields(e, *SETTING)) for e in config.evaluations.values()}
    return specs.CurvesSpec(evaluations=evaluations, checkpoints=_positions(config))


def _positions(config: Config) -> list[dict]:
    return [{"model": name, **vars(checkpoint)} for name, checkpoint in config.checkpoints.items()]


def data_files(config: Config, evaluation: Evaluation) -> list[str]:
    """Return the paths of a dataset's local files, also missing ones; no inputs of a rule, which compares times."""
    language = config.tasks[evaluation.task]["languages"][evaluation.language]
    entries = {evaluation.language: language["source"]}
    if joined := language.get("join"):  # its rows are added to those of this language
        entries.setdefault(joined["language"], joined["source"])
    return [file for tag, sources in entries.items() for file in _local_files(config, evaluation, tag, sources)]


def _local_files(config: Config, evaluation: Evaluation, language: str, sources: list[dict]) -> list[str]:
    samples = WORKFLOW / "samples" / samples_name(config.tasks[evaluation.task]) / language
    task_dir = Path(config.tasks[evaluation.task]["directory"])
    if evaluation.data != "samples" or not samples.is_dir():
        treebank_sources = [source for source in sources if "treebank" in source]
        treebanks = [file for source in treebank_sources for file in treebank_files(source, task_dir)]
        if treebanks:
            return [os.path.relpath(file) for file in treebanks]
    entries = [source.get(key) for source in sources for key in ("file", "few_shot") if "file" in source]
    entries += [source.get("clusters") for source in sources]
    files = [file for entry in entries for file in (entry if isinstance(entry, list) else [entry]) if file]
    if local_files := [file for file in files if "://" not in file]:
        return [os.path.relpath(task_dir / Path(file).expanduser()) for file in local_files]
    if evaluation.data == "samples" and samples.is_dir():
        return sorted(os.path.relpath(file) for file in samples.iterdir())
    return []


@functools.cache  # a file with a new time is hashed; a job's key must not change while it runs
def files_key(path: Path, is_checkpoint: bool = False) -> str:
    """Return a text that changes with the files of the model or encoder recorded at `path`, hashed by its job.

    As recorded, as long as size, times and inode, or else contents, are unchanged, and of a deleted checkpoint.
    """
    try:
        record = read_model(path)
    except ArtifactError:
        return "damaged" if path.exists() else "not recorded yet"
    recorded_key = record.files_key or "not recorded yet"
    if is_checkpoint and is_deleted(record):
        return recorded_key
    changed_paths = inputs.stale(record)
    if not changed_paths:
        return recorded_key
    stamps = {path: _stamp(path) for path in changed_paths}
    return f"{recorded_key[:16]} changed: {fingerprint([stamps, recorded_key])}"


def _stamp(path: str) -> dict[str, int] | None:
    try:
        return stamp(os.stat(path))
    except OSError:
        return None
