"""choice: requests for a response in words, which ends in the letter of an option:

    {question}\\n\\nA. {first}\\nB. {second}\\n…\\n\\n{line `choice` of the language, with its cue}: X

The model receives them as a chat. The rest of the prompt is that of `letters`, without its cue.
"""

from string import ascii_uppercase

from vernacular.protocols.letters import requests as letters
from vernacular.protocols.prompts import display_order, example, gold_index
from vernacular.protocols.request_rows import (
    RequestSettings,
    chat_turns,
    generation_requests,
    has_alternatives,
    skipped_request,
)
from vernacular.types import Item, Request

MAX_NEW_TOKENS = 512  # of the answer
MAX_OPTIONS = 23  # X, the next letter, stands for any of them in the prompt


def few_shot_example(item: Item, settings: RequestSettings) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    order = display_order(item, settings)
    text = prompt(item, order, settings)
    answer = f"{settings.labels['letter']} {ascii_uppercase[order.index(gold_index(item))]}"
    return example(text, answer, settings.language)


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one generate request per sample; its extras have the order of the options if it is another."""
    order = display_order(item, settings)
    if not has_alternatives(item):
        return [skipped_request(item, "fewer than two options, or an empty one")]
    if not (item["context"] or item["question"]):
        return [skipped_request(item, "neither context nor question")]
    if len(order) > MAX_OPTIONS:
        return [skipped_request(item, f"expected at most {MAX_OPTIONS} options, got {len(order)}")]
    text = prompt(item, order, settings)
    extras = [] if order == sorted(order) else [f"order:{' '.join(map(str, order))}"]
    messages = chat_turns(settings, text)
    options = {"max_new_tokens": MAX_NEW_TOKENS, "extras": extras}
    return generation_requests(item, text, settings=settings, messages=messages, **options)


def prompt(item: Item, order: list[int], settings: RequestSettings) -> str:
    """Return the prompt with the options in an order."""
    text = letters.prompt(item, [item["choices"][i] for i in order], settings)
    instruction = settings.labels["choice"].replace("{cue}", settings.labels["letter"])
    return f"{text.rpartition(chr(10))[0].rstrip()}\n\n{instruction}"
