"""Prompt text of a row, byte for byte as in lm-eval: the query, its continuations, and the row as a few-shot example.

Follows `ConfigurableTask.fewshot_context`, `build_qa_turn` and `construct_requests` (lm_eval/api/task.py, 0.4.13),
without a chat template.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vernacular.data.lm_eval import functions, templates
from vernacular.data.lm_eval.templates import CannotLayOut

_FIELDS = ("doc_to_text", "doc_to_target", "doc_to_choice")


@dataclass(frozen=True)
class Wording:
    """Settings for rendering rows, with loaded functions, and properties that the first evaluated row determines."""

    settings: dict
    fields: dict  # doc_to_text, doc_to_target, doc_to_choice
    few_fields: dict  # the same for few-shot examples
    columns: frozenset[str]
    several_contexts: bool = False  # the options are contexts with one continuation
    several_right: bool = False  # doc_to_target of the first row is a non-empty list
    results: Callable | None = None  # process_results, which then determines the correct options


def wording(settings: dict, folder: Path, rows: list[dict]) -> Wording:
    """Return the Wording of a task with the evaluated rows `rows` (at least one).

    `folder` is the directory of the workflow's task file, to which paths of functions are relative.

    Raises:
        CannotLayOut: The first row, which determines how all are rendered, does not fit the file.
    """
    first, few = rows[0], settings["few"]
    found = Wording(
        settings,
        {name: _ready(settings[name], folder) for name in _FIELDS},
        {name: _ready(few[name], folder) for name in _FIELDS},
        frozenset(first),
    )
    has_choices = settings["doc_to_choice"] is not None
    return replace(
        found,
        several_contexts=has_choices and isinstance(_text(found, first), int),
        several_right=isinstance(right := _target(found, first), list) and bool(right),
        results=_ready(settings["process_results"], folder) if settings["output_type"] == "multiple_choice" else None,
    )


@dataclass(frozen=True)
class Worded:
    """Texts of an evaluated row."""

    before: str  # description, before the few-shot examples
    query: str  # the end of the prompt; "" if the options are contexts
    choices: list[str]
    gold: list[int]
    target: str | None
    continuation: str | None  # text after every option, if the options are contexts
    prefix: str  # text between such an option and the continuation
    targets: list[str]  # all correct answers, of which a generated output may equal any


def evaluated(how: Wording, row: dict) -> Worded:
    """Render a row for evaluation; raise CannotLayOut if it does not fit the file."""
    settings = how.settings
    before = templates.resolved(settings["description"], row)
    prefix = templates.resolved(settings["gen_prefix"], row)
    question, right = _text(how, row), _target(how, row)
    choices = templates.options(how.fields["doc_to_choice"], row, how.columns) if _has_choices(how) else []
    if how.several_contexts:
        if settings["output_type"] != "multiple_choice":
            raise CannotLayOut("doc_to_text is a number, which only multiple_choice supports")
        if not isinstance(question, int) or not isinstance(right, str | int | float):
            raise CannotLayOut("doc_to_text is not a number or doc_to_target is not text, unlike in the first row")
        continuation = f"{settings['target_delimiter']}{right}"
        return Worded(before, "", choices, _indices(question, choices), None, continuation, prefix, [])
    if not isinstance(question, str):
        raise CannotLayOut("doc_to_text is not text")
    query = question
    if prefix:
        query += settings["target_delimiter"] if _apart(question, prefix) else ""
        query += prefix
    if settings["output_type"] == "multiple_choice":
        gold = _right_by_results(how.results, row, choices) if how.results else _indices(right, choices)
        return Worded(before, query, choices, gold, None, None, "", [])
    if settings["output_type"] == "loglikelihood":
        if not isinstance(right, str):
            raise CannotLayOut("doc_to_target is not text")
        return Worded(before, query, [], [], right, None, "", [])
    if _has_choices(how):
        if isinstance(right, int) and -len(choices) <= right < 0:
            right += len(choices)  # lm-eval indexes the list, from its end if negative
        gold = _indices(right, choices)
        return Worded(before, query, choices, gold, None, None, "", [choices[i] for i in gold])
    if isinstance(right, list) and not how.several_right:
        raise CannotLayOut("doc_to_target is a list, unlike in the first row, which determines the type")
    targets = right if isinstance(right, list) else [str(right)]
    if not all(isinstance(one, str) for one in targets):
        raise CannotLayOut("doc_to_target is a list with values that are not text, which no output can equal")
    return Worded(before, query, [], [], targets[0] if targets else None, None, "", targets)


def shown(how: Wording, row: dict) -> str:
    """Render a row as a few-shot example and the delimiter after it; raise CannotLayOut if it does not fit the file."""
    few, columns = how.settings["few"], how.columns
    has_choices = _has_choices(how)
    question = templates.text(how.few_fields["doc_to_text"], row, columns, choices=has_choices)
    field_of_choices = how.few_fields["doc_to_choice"]
    choices = templates.options(field_of_choices, row, columns) if field_of_choices is not None else None
    answer = templates.target(how.few_fields["doc_to_target"], row, columns, choices=has_choices)
    prefix = templates.resolved(few["gen_prefix"], row)
    if how.several_contexts:
        if not isinstance(question, int) or not choices or not 0 <= question < len(choices):
            raise CannotLayOut("doc_to_text is not the number of an option")
        question, choices = choices[question], None
    if not isinstance(question, str):
        raise CannotLayOut("doc_to_text is not text")
    if answer is None or answer == "":
        return question + (few["target_delimiter"] + prefix if prefix and _apart(question, prefix) else prefix)
    if choices and isinstance(answer, int):
        if not -len(choices) <= answer < len(choices):
            raise CannotLayOut("doc_to_target is not the number of an option")
        answer = choices[answer]
    elif isinstance(answer, list):
        answer = answer[0] if answer else None
    if not isinstance(answer, str):
        raise CannotLayOut("doc_to_target is not text")
    delimiter = few["target_delimiter"] if not prefix or _apart(question, prefix) else ""
    return question + delimiter + _joined(prefix, answer) + few["fewshot_delimiter"]


def _right_by_results(results: Callable, row: dict, choices: list[str]) -> list[int]:
    """Return the indices of the correct options: those for which certainty of the model gives an `acc` of 1.

    Needed for TruthfulQA's MC2: its doc_to_target is always 0, and only process_results reads which options are true.
    """
    right = []
    for i in range(len(choices)):
        answers = [(0.0, True) if j == i else (-math.inf, False) for j in range(len(choices))]
        try:
            share = float(results(dict(row), answers)["acc"])
        except templates.ODD_ROW as error:
            raise CannotLayOut(f"process_results: {type(error).__name__}: {error}") from None
        if share not in (0.0, 1.0):
            raise CannotLayOut("process_results gives an acc other than 0 or 1 if one option has probability 1")
        right += [i] if share else []
    return right


def _indices(right, choices: list[str]) -> list[int]:
    """Return the indices of the correct options; [] if the row identifies none."""
    if isinstance(right, str):
        right = choices.index(right) if right in choices else None
    named = right if isinstance(right, list) else [right]
    # 1.0: a column of integers with a missing value
    return sorted({int(i) for i in named if isinstance(i, int | float) and 0 <= i < len(choices) and i == int(i)})


def _text(how: Wording, row: dict):
    return templates.text(how.fields["doc_to_text"], row, how.columns, choices=_has_choices(how))


def _target(how: Wording, row: dict):
    return templates.target(how.fields["doc_to_target"], row, how.columns, choices=_has_choices(how))


def _has_choices(how: Wording) -> bool:
    return how.settings["doc_to_choice"] is not None


def _ready(value, folder: Path):
    return functions.load(value, folder) if functions.is_function(value) else value


def _apart(before: str, after: str) -> bool:
    """Return whether two texts meet without whitespace between them; False if `before` is empty."""
    return bool(before) and not (before[-1].isspace() or after[0].isspace())


def _joined(before: str, after: str) -> str:
    if not before or not after:
        return before or after
    return before + (" " if _apart(before, after) else "") + after
