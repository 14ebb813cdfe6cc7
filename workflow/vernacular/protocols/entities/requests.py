"""entities: a request for the named entities of each sentence, as a JSON object with a list for each type.

The prompt is that of EuroEval: the sentence, its words separated by spaces, and a cue; examples of the answer have the
keys of the language, all types, and the entities in their order. Decoding is greedy and ends where the model begins
another sentence, or after 128 tokens.
"""

import json

from vernacular.protocols.prompts import ENTITY_TYPES, example, query
from vernacular.protocols.request_rows import (
    RequestSettings,
    chat_turns,
    continue_with,
    generation_requests,
    score_request,
)
from vernacular.types import Item, Request

MAX_NEW_TOKENS = 128


def few_shot_example(item: Item, settings: RequestSettings) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    return example(query(item, settings), _answer(item, settings), settings.language)


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one generate request, with the role "response"; its `extras` are the keys of the answer by type."""
    text = query(item, settings)
    heading = settings.labels["sentence"].partition("{context}")[0].strip()
    keys = {name: _key(name, settings) for name in json.loads(item["target"])}
    return generation_requests(
        item,
        text,
        settings=settings,
        messages=chat_turns(settings, text),
        stop=[f"\n{heading}"] if heading else [],
        max_new_tokens=MAX_NEW_TOKENS,
        extras=[f"{ENTITY_TYPES}:{json.dumps(keys, ensure_ascii=False)}"],
    )


def reference_requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one score request for the correct answer after the same prompt, with the role "reference"."""
    text = query(item, settings)
    spans = continue_with(text, _answer(item, settings), settings.language)
    return [score_request(item, "reference", *spans, settings=settings, user=text)]


def _answer(item: Item, settings: RequestSettings) -> str:
    entities = json.loads(item["target"])
    return json.dumps({_key(name, settings): texts for name, texts in entities.items()}, ensure_ascii=False)


def _key(name: str, settings: RequestSettings) -> str:
    return settings.labels[f"{ENTITY_TYPES}.{name}"]
