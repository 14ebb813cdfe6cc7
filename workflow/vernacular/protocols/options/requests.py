"""options: requests for each option's text after the question; the prompt does not list the options.

Each option is also scored after the answer cue alone, for pointwise mutual information (Holtzman et al. 2021).
"""

from vernacular.protocols.prompts import answer, cue, example_text, query
from vernacular.protocols.request_rows import Setting, continue_with, scored, skipped, turn
from vernacular.types import Item, Request


def few_shot_example(item: Item, setting: Setting) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    text = query(item, setting.layout, setting.labels, None)
    return example_text(text, answer(item), setting.language), [turn("user", text), turn("assistant", answer(item))]


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return requests: "choice:i" (option i after the question), "uncond:i" (after the cue only, without examples)."""
    if len(item["choices"]) < 2:
        return [skipped(item, "fewer than two options")]
    if not (item["context"] or item["question"]):
        return [skipped(item, "neither context nor question")]
    text = query(item, setting.layout, setting.labels, None)
    alone = cue(setting.layout, setting.labels)
    rows = []
    for i, option in enumerate(item["choices"]):
        rows.append(
            scored(item, f"choice:{i}", *continue_with(text, option, setting.language), setting=setting, user=text)
        )
        rows.append(scored(item, f"uncond:{i}", *continue_with(alone, option, setting.language)))
    return rows
