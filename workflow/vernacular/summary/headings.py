"""Readable names of models, tasks and evaluations, as headings of rows and columns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from vernacular.core.errors import format_count
from vernacular.core.tables import plain_text
from vernacular.metrics.metric import display_name
from vernacular.types import ALL_PROMPTS, DEFAULT_PROMPT

_MAX_TITLE = 28  # characters of a title in a heading; a longer one is shown without its parentheses


@dataclass(frozen=True)
class Headings:
    """Names to show, each unambiguous within one run; without an entry, a task or model has its own name.

    Attributes:
        titles: heading of each task
        notes: remark of each task for readers of its results, where it has one
        settings: heading of each evaluation within its task: "generation · 5 shots"
        models: label of each model: "mine-gl (adapter of mine)"
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    full_titles: Mapping[str, str] = field(default_factory=dict)

    def title(self, task: str) -> str:
        return self.titles.get(task, task)

    def setting(self, evaluation: str) -> str:
        return self.settings.get(evaluation, evaluation)

    def model(self, name: str) -> str:
        return self.models.get(name, name)

    def about(self, task: str) -> list[str]:
        """Return what is known of a task, as lines: name, complete title, note."""
        title = self.full_titles.get(task)
        lines = [task if title is None else f"{title} ({task})", self.notes.get(task)]
        return [plain_text(line)[:500] for line in lines if line]

    def column(self, language: str, title: str, setting: str, metric: str, unit) -> str:
        """Return the name of a column of values in a table without headings above each other.

        >>> Headings().column("gl", "OpenBookQA", "generation · 5 shots", "cosine_accuracy", "share")
        'gl / OpenBookQA / generation 5 shots / Cosine accuracy (share)'
        """
        unit = "" if pd.isna(unit) else f" ({unit})"
        return f"{language} / {title} / {setting.replace(' · ', ' ')} / {display_name(metric)}{unit}"


def make_headings(
    long: pd.DataFrame,
    tasks: Mapping[str, Mapping],
    models: Mapping[str, str] | None = None,
    *,
    default_prompt: bool = False,
) -> Headings:
    """Return the headings of a long table.

    Args:
        long: The table of `grid.combine_tables`.
        tasks: {task: {"title": …, "short_title": …, "note": …}} of the task files; each may be missing.
        models: Label of each model, from `model_labels`.
        default_prompt: Whether the default prompt is named, too, in a task that has values under several.
    """
    names = [task for task in long["task"].unique() if not pd.isna(task)]
    full_titles = {task: title for task in names if (title := tasks.get(task, {}).get("title"))}
    notes = {task: note for task in names if (note := tasks.get(task, {}).get("note"))}
    settings = _settings(long, default_prompt)
    return Headings(
        distinct_titles({task: tasks.get(task, {}) for task in names}), notes, settings, models or {}, full_titles
    )


def distinct_titles(tasks: Mapping[str, Mapping]) -> dict[str, str]:
    """Return a heading per task: its short title if no other task has it, or else the complete one, or with its name.

    >>> x = {"title": "X"}
    >>> long, short = {"title": "A long title of some benchmark (test)"}, x | {"short_title": "Y"}
    >>> distinct_titles({"a": long, "b": x, "c": x, "d": short})
    {'a': 'A long title of some benchmark', 'b': 'X [b]', 'c': 'X [c]', 'd': 'Y'}
    """
    complete = {task: file.get("title", task) for task, file in tasks.items()}
    short = {task: title if len(title) <= _MAX_TITLE else title.partition(" (")[0] for task, title in complete.items()}
    short |= {task: file["short_title"] for task, file in tasks.items() if "short_title" in file}
    headings = {}
    for task in complete:
        candidates = (short, complete)
        unambiguous = [titles[task] for titles in candidates if list(titles.values()).count(titles[task]) == 1]
        headings[task] = unambiguous[0] if unambiguous else f"{complete[task]} [{task}]"
    return headings


def _settings(long: pd.DataFrame, default_prompt: bool) -> dict[str, str]:
    """Return the heading of each evaluation: protocol, shots, and what else distinguishes it: seed, style, prompt."""
    keys = ["task", "protocol", "shots", "style", "prompt"]
    columns = ["evaluation", "language", *keys, "seed"]
    evaluations = long[columns].drop_duplicates("evaluation").reset_index(drop=True)
    question = evaluations.groupby(["language", *keys[:-1]], dropna=False)["prompt"]
    has_prompts = default_prompt & (question.transform(lambda prompts: prompts.nunique(dropna=False)) > 1)
    n_seeds = evaluations.groupby(keys, dropna=False)["seed"].transform(lambda seeds: seeds.nunique(dropna=False))
    settings = {}
    for row, has_seeds, is_named in zip(evaluations.to_dict("records"), n_seeds > 1, has_prompts, strict=True):
        parts = [] if pd.isna(row["protocol"]) else [row["protocol"].replace("_", " ")]
        parts += [] if pd.isna(row["shots"]) else [format_count(row["shots"], "shot")]
        parts += [f"seed {row['seed']}"] if has_seeds and not pd.isna(row["seed"]) else []
        parts += [row["style"]] if not pd.isna(row["style"]) and row["style"] != "default" else []
        is_default = pd.isna(row["prompt"]) or row["prompt"] == DEFAULT_PROMPT
        parts += [_prompt_heading(row["prompt"])] if is_named or not is_default else []
        settings[row["evaluation"]] = " · ".join(parts)
    return settings


def _prompt_heading(prompt: str) -> str:
    return "mean over prompts" if prompt == ALL_PROMPTS else f"prompt {prompt}"


def model_labels(models: Iterable[Mapping]) -> dict[str, str]:
    """Return the label of each model: its name, the base of an adapter, and the precision where models differ in it.

    Args:
        models: Dicts with "name", "base" (None without an adapter), "dtype" and "quantization" (None if unknown).

    >>> model_labels([
    ...     {"name": "a", "base": None, "dtype": "float32", "quantization": None},
    ...     {"name": "b", "base": "a", "dtype": "float32", "quantization": "4bit"},
    ... ])
    {'a': 'a (float32)', 'b': 'b (adapter of a, 4bit)'}
    """
    models = list(models)
    precisions = [model["quantization"] or model["dtype"] for model in models]
    differ = len({precision for precision in precisions if precision}) > 1
    labels = {}
    for model, precision in zip(models, precisions, strict=True):
        details = [f"adapter of {model['base']}"] if model["base"] else []
        details += [precision] if precision and (differ or model["quantization"]) else []
        labels[model["name"]] = f"{model['name']} ({', '.join(details)})" if details else model["name"]
    return labels
