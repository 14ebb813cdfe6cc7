"""Tasks of lm-eval that ask the same in several wordings: their names differ in a number, `afriqa_yor_prompt_1` … `_5`.

AfroBench and IrokoBench end such names in `_prompt_1`, Evalita-LLM in `_prompt-1`, NorEval in `_p0`. Here, the name
without the number is the task, and its prompts are `p1`, `p2`, ….
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from vernacular.lm_eval.expansion import Entry, Load, Unit, units
from vernacular.types import DEFAULT_PROMPT

_NUMBERED = re.compile(r"(?P<task>.+?)[_-](?:prompt[_-]?|p)(?P<number>\d+)")


class PromptUnit(NamedTuple):
    """A unit as one prompt of a task; one without a number is the only prompt of the task of its name."""

    task: str
    prompt: str
    position: int  # among the prompts of the task
    unit: Unit


def split_name(name: str) -> tuple[str, str]:
    """Return (task, prompt) of a name.

    >>> split_name("afriqa_yor_prompt_2"), split_name("norbelebele_p0"), split_name("galcola")
    (('afriqa_yor', 'p2'), ('norbelebele', 'p0'), ('galcola', 'default'))
    """
    found = _NUMBERED.fullmatch(name)
    return (found["task"], f"p{int(found['number'])}") if found else (name, DEFAULT_PROMPT)


def prompt_names(task: str, registry: Mapping[str, Entry]) -> list[str]:
    """Return the names of the tasks that are the prompts of `task`, by number; [] if there are none."""
    numbered = re.compile(re.escape(task) + r"[_-](?:prompt[_-]?|p)\d+")
    names = [name for name, entry in registry.items() if entry.kind == "task" and numbered.fullmatch(name)]
    return sorted(names, key=_rank)


def prompt_units(name: str, registry: Mapping[str, Entry], load: Load | None = None) -> list[PromptUnit]:
    """Return the prompts of all tasks that a name stands for: of one task, or of each in a group or tag.

    Groups are expanded to their tasks, also those that combine them: a mean over prompts is one of the same items.
    [] for an unknown name.

    Raises:
        ValueError: As `units`.
    """
    numbered = prompt_names(name, registry)
    if numbered and (name not in registry or registry[name].kind == "task"):
        found = [unit for member in numbered for unit in units(member, registry, load)]
    else:
        found = units(name, registry, load, combine=False) if name in registry else []
    by_task: dict[str, list[Unit]] = {}
    for unit in found:
        by_task.setdefault(split_name(unit.name)[0], []).append(unit)
    return [
        PromptUnit(*split_name(unit.name), position, unit)
        for members in by_task.values()
        for position, unit in enumerate(sorted(members, key=lambda unit: _rank(unit.name)))
    ]


def _rank(name: str) -> int:
    found = _NUMBERED.fullmatch(name)
    return int(found["number"]) if found else -1
