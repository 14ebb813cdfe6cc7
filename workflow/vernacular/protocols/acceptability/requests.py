"""acceptability (CoLA): the surprisal of whole sentences, acceptable and not."""

from vernacular.protocols.request_rows import Setting, pll_extra, scored, unasked
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Role "sentence": the span is all of it."""
    if not item["context"].strip():
        return [unasked(item, "an empty sentence")]
    return [scored(item, "sentence", "", item["context"], extras=pll_extra(setting))]
