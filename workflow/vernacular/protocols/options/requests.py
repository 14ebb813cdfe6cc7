"""options: requests for each option's text after the question; the prompt does not list the options.

Each option is also scored after the answer cue alone, for pointwise mutual information (Holtzman et al. 2021).
"""

from vernacular.protocols.prompts import cue, example, gold_text, query
from vernacular.protocols.request_rows import RequestSettings, continue_with, score_request, skipped_request
from vernacular.types import Item, Request


def few_shot_example(item: Item, settings: RequestSettings) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    return example(query(item, settings), gold_text(item), settings.language)


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return requests: "choice:i" (option i after the question), "uncond:i" (after the cue only, without examples)."""
    if len(item["choices"]) < 2:
        return [skipped_request(item, "fewer than two options")]
    if not (item["context"] or item["question"]):
        return [skipped_request(item, "neither context nor question")]
    text = query(item, settings)
    cue_text = cue(item, settings)
    rows = []
    for i, option in enumerate(item["choices"]):
        parts = continue_with(text, option, settings.language)
        rows.append(score_request(item, f"choice:{i}", *parts, settings=settings, user=text))
        rows.append(score_request(item, f"uncond:{i}", *continue_with(cue_text, option, settings.language)))
    return rows
