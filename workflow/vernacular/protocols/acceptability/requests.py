"""acceptability (CoLA): a request for the surprisal of each sentence."""

from vernacular.protocols.request_rows import Setting, pll_extra, scored, skipped
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return one request, role "sentence"; the span is the complete sentence."""
    if not item["context"].strip():
        return [skipped(item, "empty sentence")]
    return [scored(item, "sentence", "", item["context"], extras=pll_extra(setting))]
