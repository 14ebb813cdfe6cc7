"""letters: requests for each option's letter after the question, with exactly the prompt of PalmX 2025:

    {question}\\n\\nA. {first}\\nB. {second}\\n…\\nالجواب:        and then " A", " B", …

with the answer cue of each language, and the passage, if any, before the question. There is one request per letter;
they share their context, which is therefore computed once. `option_rotations: n` adds n - 1 rotations of the options.
The style `options-only` leaves out passage and question: what it finds, the options give away (Balepur et al. 2024).
"""

import string

from vernacular.protocols.prompts import display_order, example, fill, gold_index, template
from vernacular.protocols.request_rows import RequestSettings, continue_with, score_request, skipped_request
from vernacular.types import OPTIONS_ONLY, Item, Request, Role


def few_shot_example(item: Item, settings: RequestSettings) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    order = display_order(item, settings)
    text = prompt(item, [item["choices"][i] for i in order], settings)
    letter = string.ascii_uppercase[order.index(gold_index(item))]
    return example(text, letter, settings.language)


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return requests "choice:i" (letter of option i), "choice:i@p" in rotation p; or options-only "uncond:i"."""
    order = display_order(item, settings)
    if len(order) < 2:
        return [skipped_request(item, "fewer than two options")]
    if not (item["context"] or item["question"]):
        return [skipped_request(item, "neither context nor question")]
    if len(order) > 26:
        return [skipped_request(item, f"expected at most 26 options, got {len(order)}")]
    kind, rotations = "choice", int(settings.options.get("option_rotations", 1))
    if settings.style.endswith(OPTIONS_ONLY):
        item, kind, rotations = item | {"context": "", "question": ""}, "uncond", 1
    rows = []
    for rotation in range(min(max(rotations, 1), len(order))):
        rotated = order[rotation:] + order[:rotation]
        text = prompt(item, [item["choices"][i] for i in rotated], settings)
        for letter, choice in zip(string.ascii_uppercase, rotated, strict=False):
            role = str(Role(kind, choice, rotation))
            left, span = continue_with(text, letter, settings.language)
            rows.append(score_request(item, role, left, span, extras=["top_token"], settings=settings, user=text))
    return rows


def prompt(item: Item, options: list[str], settings: RequestSettings) -> str:
    """Return the PalmX prompt, or that of a variant; a fifth option has a letter, too (in the PalmX script, "5.")."""
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(string.ascii_uppercase, options, strict=False))
    if "templates" in settings.labels:
        return fill(template(item, settings, letters=True), item, lines)
    parts = (item["context"], item["question"], f"{lines}\n{settings.labels['letter']}")
    return "\n\n".join(filter(None, parts))
