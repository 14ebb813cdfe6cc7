"""last_word (Calame): a request for the surprisal of a text's last word, with the space before it."""

from vernacular.protocols.request_rows import Setting, continue_with, scored, skipped
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return one request, role "word"; `bow_correction` adds the probabilities of word ends around it."""
    if not item["context"].strip() or not (item["target"] or "").strip():
        return [skipped(item, "no context or no last word")]
    extras = ["word_end_logprobs"] if setting.options.get("bow_correction") else []
    before, span = continue_with(item["context"], item["target"].rstrip(), setting.language)
    return [scored(item, "word", before, span, extras=extras)]
