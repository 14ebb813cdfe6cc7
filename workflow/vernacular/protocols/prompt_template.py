"""Prompt templates of the variants: complete prompts with {context}, {question} and {options}, which end in a cue.

A line whose field is empty is left out, so that one template serves items with and without options. Text of an item is
never read as a template.
"""

import re

from vernacular.core.errors import ConfigError
from vernacular.types import Item

FIELDS = ("context", "question", "options")
# fields that a template must contain once, by layout
LAYOUT_FIELDS = {
    "passage": FIELDS,
    "question": ("question", "options"),
    "story": ("context", "options"),
    "pair": ("context", "options"),
    "sentence": ("context", "options"),
    "cloze": ("context", "options"),
    "summary": ("context",),
    "letters_passage": FIELDS,
    "letters_question": ("question", "options"),
}
_FIELD = re.compile(r"\{(\w*)\}")


def layout(item_type: str, *, letters: bool, context: bool = True) -> str | None:
    """Return the layout of an item, by its type and whether it has a context; None if its type has no words to vary.

    >>> layout("multi_answer", letters=False, context=False), layout("passage", letters=True)
    ('question', 'letters_passage')
    """
    if item_type in ("passage", "question", "multi_answer", "open_question"):
        name = "passage" if context else "question"
        return f"letters_{name}" if letters else name
    if letters:
        return "letters_passage"
    return {"target_word": "cloze"}.get(item_type, item_type if item_type in LAYOUT_FIELDS else None)


def usual_layout(item_type: str, *, letters: bool) -> str | None:
    """Return the layout that the items of a type usually have: a question has no passage."""
    return layout(item_type, letters=letters, context=item_type not in ("question", "multi_answer", "open_question"))


def problem(template: str, layout_name: str) -> str | None:
    """Return what is invalid in a template, or None."""
    required, found = LAYOUT_FIELDS[layout_name], _FIELD.findall(template)
    for name in found:
        if name not in required:
            return f"{{{name}}} is not a field of this layout; expected {_listed(required)}"
    for name in required:
        if found.count(name) != 1:
            return f"expected {{{name}}} once, got {found.count(name)}"
    cue = cue_of(template)
    if _FIELD.search(cue) or not cue.strip() or cue != cue.rstrip():
        return "expected a last line with the cue alone, without a space at its end"
    return None


def _listed(names) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


def cue_of(template: str) -> str:
    """Return the last line, after which the answer follows."""
    return template.rpartition("\n")[2]


def fill(template: str, item: Item, options: str) -> str:
    """Return the prompt of an item; `options` is the text of its options, "" if they are not shown.

    Raises ConfigError if the item has a text for which the template has no field.
    """
    values = {"context": item["context"].rstrip(), "question": item["question"], "options": options}
    fields = _FIELD.findall(template)
    for name, value in values.items():
        if value and name not in fields:
            raise ConfigError(f"item {item['item_id']} has a {name}, for which its prompt has no {{{name}}}.")
    lines = []
    for line in template.split("\n"):
        names = _FIELD.findall(line)
        if names and not any(values[name] for name in names):
            continue
        lines.append(_FIELD.sub(lambda match: values[match[1]], line))
    return "\n".join(lines)
