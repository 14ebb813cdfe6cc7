"""letters: which option's letter does the model put after the question? The layout of PalmX 2025, to the byte:

    {question}\\n\\nA. {first}\\nB. {second}\\n…\\nالجواب:        and then " A", " B", …

with the answer cue of each language and the passage, where there is one, before the question. A request per letter;
they share their context, so a model reads it once. `permutations: n` also asks the options in n - 1 rotations.
"""

import string

from vernacular.protocols.prompts import answer_index, demonstration, shown_order
from vernacular.protocols.request_rows import Setting, continue_with, scored, turn, unasked
from vernacular.types import Item, Request, Role


def demonstrate(item: Item, setting: Setting) -> tuple[str, list[dict]]:
    """A demonstration as text and as chat turns."""
    order = shown_order(item, setting.layout, setting.seed)
    text = prompt(item, [item["choices"][i] for i in order], setting.labels["letter"])
    letter = string.ascii_uppercase[order.index(answer_index(item))]
    return demonstration(text, letter, setting.language), [turn("user", text), turn("assistant", letter)]


def requests(item: Item, setting: Setting) -> list[Request]:
    """Roles "choice:i" (option i of the item, by the letter it is shown at) and "choice:i@p" in rotation p > 0."""
    order = shown_order(item, setting.layout, setting.seed)
    if len(order) < 2:
        return [unasked(item, "fewer than two options")]
    if not (item["context"] or item["question"]):
        return [unasked(item, "neither context nor question")]
    if len(order) > 26:
        return [unasked(item, f"{len(order)} options, more than there are letters")]
    rows = []
    for rotation in range(min(max(int(setting.options.get("permutations", 1)), 1), len(order))):
        shown = order[rotation:] + order[:rotation]
        text = prompt(item, [item["choices"][i] for i in shown], setting.labels["letter"])
        for letter, choice in zip(string.ascii_uppercase, shown, strict=False):
            role = str(Role("choice", choice, rotation))
            before, span = continue_with(text, letter, setting.language)
            rows.append(scored(item, role, before, span, setting=setting, user=text))
    return rows


def prompt(item: Item, options: list[str], cue: str) -> str:
    """The PalmX prompt; a fifth and later option get their letters too (the script would print "5.")."""
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(string.ascii_uppercase, options, strict=False))
    head = "\n\n".join(part for part in (item["context"], item["question"]) if part)
    return f"{head}\n\n{lines}\n{cue}"
