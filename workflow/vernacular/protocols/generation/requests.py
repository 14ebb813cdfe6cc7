"""generation: requests for generated responses, which are then compared with the options.

Styles: `default` shows the options, `open` does not. Decoding is greedy and ends at the end of the line, or at the
length of the longest option. The styles `simil-eval` and `simil-eval-open` are those of that tool.
"""

from vernacular.protocols.generation import simil_eval
from vernacular.protocols.prompts import display_order, example, gold_text, query
from vernacular.protocols.request_rows import (
    RequestSettings,
    chat_turns,
    continue_with,
    generation_requests,
    skipped_request,
)
from vernacular.types import SIMIL_EVAL_STYLES, Item, Request, accepted_answers, is_number


def few_shot_example(item: Item, settings: RequestSettings) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    if settings.style in SIMIL_EVAL_STYLES:
        return simil_eval.few_shot_example(item, settings, _displayed_options(item, settings))
    text = query(item, settings, _displayed_options(item, settings))
    return example(text, gold_text(item), settings.language, _chat_message(text, settings))


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one generate request per sample, of which the first has the role "response"."""
    if not (item["context"] or item["question"]):
        return [skipped_request(item, "neither context nor question")]
    if settings.style in SIMIL_EVAL_STYLES:
        return simil_eval.requests(item, settings, _displayed_options(item, settings))
    text = query(item, settings, _displayed_options(item, settings))
    messages = chat_turns(settings, _chat_message(text, settings))
    # a number may be the last of a sentence: as long as any text
    targets = [] if is_number(item) else [*item["choices"], *filter(None, accepted_answers(item))]
    longest = max((continue_with(text, target, settings.language)[1] for target in targets), key=len, default=None)
    return generation_requests(item, text, settings=settings, messages=messages, stop=["\n"], longest_target=longest)


def _displayed_options(item: Item, settings: RequestSettings) -> list[str] | None:
    if settings.style.endswith("open") or settings.item_type == "summary":
        return None
    return [item["choices"][i] for i in display_order(item, settings)] or None


def _chat_message(text: str, settings: RequestSettings) -> str:
    """Return the chat message of a prompt; a text to be continued requires an instruction for a chat model."""
    return f"{settings.labels['complete']}\n{text}" if settings.item_type == "continuation" else text
