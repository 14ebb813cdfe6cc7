"""last_word (Calame): a request for the surprisal of a text's last word, with the space before it."""

from vernacular.protocols.request_rows import RequestSettings, continue_with, score_request, skipped_request
from vernacular.types import Item, Request


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one request, role "word"; `bow_correction` adds the probabilities of word ends around it."""
    if not item["context"].strip() or not (item["target"] or "").strip():
        return [skipped_request(item, "no context or no last word")]
    extras = ["word_end_logprobs"] if settings.options.get("bow_correction") else []
    left, span = continue_with(item["context"], item["target"].rstrip(), settings.language)
    return [score_request(item, "word", left, span, extras=extras)]
