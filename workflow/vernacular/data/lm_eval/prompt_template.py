"""Prompt text of a row, byte for byte as in lm-eval: the query, its continuations, and the row as a few-shot example.

Follows `ConfigurableTask.fewshot_context`, `build_qa_turn` and `construct_requests` (lm_eval/api/task.py, 0.4.13),
without a chat template.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vernacular.data.lm_eval import functions, templates
from vernacular.data.lm_eval.templates import RenderError

_FIELDS = ("doc_to_text", "doc_to_target", "doc_to_choice")


@dataclass(frozen=True)
class PromptTemplate:
    """Settings for rendering rows, with loaded functions, and properties that the first evaluated row determines."""

    settings: dict
    fields: dict  # doc_to_text, doc_to_target, doc_to_choice
    few_shot_fields: dict  # the same for few-shot examples
    columns: frozenset[str]
    multiple_contexts: bool = False  # the options are contexts with one continuation
    multiple_targets: bool = False  # doc_to_target of the first row is a non-empty list
    process_results: Callable | None = None  # process_results, which then determines the correct options


def build_template(settings: dict, directory: Path, rows: list[dict]) -> PromptTemplate:
    """Return the PromptTemplate of a task with the evaluated rows `rows` (at least one).

    `directory` is the directory of the workflow's task file, to which paths of functions are relative.

    Raises:
        RenderError: The first row, which determines how all are rendered, does not fit the file.
    """
    first_row, fewshot_config = rows[0], settings["fewshot_config"]
    template = PromptTemplate(
        settings,
        {name: _load_field(settings[name], directory) for name in _FIELDS},
        {name: _load_field(fewshot_config[name], directory) for name in _FIELDS},
        frozenset(first_row),
    )
    has_choices = settings["doc_to_choice"] is not None
    return replace(
        template,
        multiple_contexts=has_choices and isinstance(_text(template, first_row), int),
        multiple_targets=isinstance(first_target := _target(template, first_row), list) and bool(first_target),
        process_results=_load_field(settings["process_results"], directory)
        if settings["output_type"] == "multiple_choice"
        else None,
    )


@dataclass(frozen=True)
class RenderedRow:
    """Texts of an evaluated row."""

    description: str  # description, before the few-shot examples
    query: str  # the end of the prompt; "" if the options are contexts
    choices: list[str]
    gold: list[int]
    target: str | None
    continuation: str | None  # text after every option, if the options are contexts
    prefix: str  # text between such an option and the continuation
    targets: list[str]  # all correct answers, of which a generated output may equal any


def render_item(template: PromptTemplate, row: dict) -> RenderedRow:
    """Render a row for evaluation; raise RenderError if it does not fit the file."""
    settings = template.settings
    description = templates.render_optional(settings["description"], row)
    prefix = templates.render_optional(settings["gen_prefix"], row)
    question, target = _text(template, row), _target(template, row)
    choices = (
        templates.options(template.fields["doc_to_choice"], row, template.columns) if _has_choices(template) else []
    )
    if template.multiple_contexts:
        if settings["output_type"] != "multiple_choice":
            raise RenderError("doc_to_text is a number, which only multiple_choice supports")
        if not isinstance(question, int) or not isinstance(target, str | int | float):
            raise RenderError("doc_to_text is not a number or doc_to_target is not text, unlike in the first row")
        continuation = f"{settings['target_delimiter']}{target}"
        return RenderedRow(description, "", choices, _indices(question, choices), None, continuation, prefix, [])
    if not isinstance(question, str):
        raise RenderError("doc_to_text is not text")
    query = question
    if prefix:
        query += settings["target_delimiter"] if _needs_space(question, prefix) else ""
        query += prefix
    if settings["output_type"] == "multiple_choice":
        gold = (
            _gold_from_process_results(template.process_results, row, choices)
            if template.process_results
            else _indices(target, choices)
        )
        return RenderedRow(description, query, choices, gold, None, None, "", [])
    if settings["output_type"] == "loglikelihood":
        if not isinstance(target, str):
            raise RenderError("doc_to_target is not text")
        return RenderedRow(description, query, [], [], target, None, "", [])
    if _has_choices(template):
        if isinstance(target, int) and -len(choices) <= target < 0:
            target += len(choices)  # lm-eval indexes the list, from its end if negative
        gold = _indices(target, choices)
        return RenderedRow(description, query, choices, gold, None, None, "", [choices[i] for i in gold])
    if isinstance(target, list) and not template.multiple_targets:
        raise RenderError("doc_to_target is a list, unlike in the first row, which determines the type")
    targets = target if isinstance(target, list) else [str(target)]
    if not all(isinstance(text, str) for text in targets):
        raise RenderError("doc_to_target is a list with values that are not text, which no output can equal")
    return RenderedRow(description, query, [], [], targets[0] if targets else None, None, "", targets)


def render_few_shot_example(template: PromptTemplate, row: dict) -> str:
    """Render a row as a few-shot example and the delimiter after it; raise RenderError if it does not fit the file."""
    fewshot_config, columns = template.settings["fewshot_config"], template.columns
    has_choices = _has_choices(template)
    question = templates.text(template.few_shot_fields["doc_to_text"], row, columns, choices=has_choices)
    choices_field = template.few_shot_fields["doc_to_choice"]
    choices = templates.options(choices_field, row, columns) if choices_field is not None else None
    target = templates.target(template.few_shot_fields["doc_to_target"], row, columns, choices=has_choices)
    prefix = templates.render_optional(fewshot_config["gen_prefix"], row)
    if template.multiple_contexts:
        if not isinstance(question, int) or not choices or not 0 <= question < len(choices):
            raise RenderError("doc_to_text is not the number of an option")
        question, choices = choices[question], None
    if not isinstance(question, str):
        raise RenderError("doc_to_text is not text")
    if target is None or target == "":
        return question + (
            fewshot_config["target_delimiter"] + prefix if prefix and _needs_space(question, prefix) else prefix
        )
    if choices and isinstance(target, int):
        if not -len(choices) <= target < len(choices):
            raise RenderError("doc_to_target is not the number of an option")
        target = choices[target]
    elif isinstance(target, list):
        target = target[0] if target else None
    if not isinstance(target, str):
        raise RenderError("doc_to_target is not text")
    delimiter = fewshot_config["target_delimiter"] if not prefix or _needs_space(question, prefix) else ""
    return question + delimiter + _join_text(prefix, target) + fewshot_config["fewshot_delimiter"]


def _gold_from_process_results(process_results: Callable, row: dict, choices: list[str]) -> list[int]:
    """Return the indices of the correct options: those for which certainty of the model gives an `acc` of 1.

    Needed for TruthfulQA's MC2: its doc_to_target is always 0, and only process_results reads which options are true.
    """
    gold = []
    for i in range(len(choices)):
        results = [(0.0, True) if j == i else (-math.inf, False) for j in range(len(choices))]
        try:
            accuracy = float(process_results(dict(row), results)["acc"])
        except templates.ROW_ERRORS as error:
            raise RenderError(f"process_results: {type(error).__name__}: {error}") from None
        if accuracy not in (0.0, 1.0):
            raise RenderError("process_results gives an acc other than 0 or 1 if one option has probability 1")
        gold += [i] if accuracy else []
    return gold


def _indices(target, choices: list[str]) -> list[int]:
    """Return the indices of the correct options; [] if the row identifies none."""
    if isinstance(target, str):
        target = choices.index(target) if target in choices else None
    indices = target if isinstance(target, list) else [target]
    # 1.0: a column of integers with a missing value
    return sorted({int(i) for i in indices if isinstance(i, int | float) and 0 <= i < len(choices) and i == int(i)})


def _text(template: PromptTemplate, row: dict):
    return templates.text(template.fields["doc_to_text"], row, template.columns, choices=_has_choices(template))


def _target(template: PromptTemplate, row: dict):
    return templates.target(template.fields["doc_to_target"], row, template.columns, choices=_has_choices(template))


def _has_choices(template: PromptTemplate) -> bool:
    return template.settings["doc_to_choice"] is not None


def _load_field(value, directory: Path):
    return functions.load(value, directory) if functions.is_function(value) else value


def _needs_space(prefix: str, suffix: str) -> bool:
    """Return whether two texts meet without whitespace between them; False if `prefix` is empty."""
    return bool(prefix) and not (prefix[-1].isspace() or suffix[0].isspace())


def _join_text(prefix: str, suffix: str) -> str:
    if not prefix or not suffix:
        return prefix or suffix
    return prefix + (" " if _needs_space(prefix, suffix) else "") + suffix
