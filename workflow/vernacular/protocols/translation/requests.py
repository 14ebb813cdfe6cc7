"""translation: a request for the translation of each source text, after the names of both languages.

Decoding is greedy and ends at the end of the line, or after 256 tokens.
"""

from vernacular.protocols.prompts import example, query
from vernacular.protocols.request_rows import (
    RequestSettings,
    chat_turns,
    continue_with,
    generation_requests,
    score_request,
    skipped_request,
)
from vernacular.types import Item, Request, target_language

MAX_NEW_TOKENS = 256


def few_shot_example(item: Item, settings: RequestSettings) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    return example(query(item, settings), item["target"], target_language(item) or settings.language)


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one generate request, with the role "response"."""
    if not _is_complete(item):
        return [skipped_request(item, "no source text or no reference")]
    text = query(item, settings)
    messages = chat_turns(settings, text)
    return generation_requests(
        item, text, settings=settings, messages=messages, stop=["\n"], max_new_tokens=MAX_NEW_TOKENS
    )


def reference_requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one score request for the reference translation after the same prompt, with the role "reference"."""
    if not _is_complete(item):
        return [skipped_request(item, "no source text or no reference")]
    text = query(item, settings)
    spans = continue_with(text, item["target"].rstrip(), target_language(item) or settings.language)
    return [score_request(item, "reference", *spans, settings=settings, user=text)]


def _is_complete(item: Item) -> bool:
    return bool(item["context"].strip() and (item["target"] or "").strip())
