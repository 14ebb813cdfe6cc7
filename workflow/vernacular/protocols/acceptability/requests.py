"""acceptability (CoLA): a request for the surprisal of each sentence."""

from vernacular.protocols.request_rows import RequestSettings, moments_extra, pll_extra, score_request, skipped_request
from vernacular.types import Item, Request


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return one request, role "sentence"; the span is the complete sentence."""
    if not item["context"].strip():
        return [skipped_request(item, "empty sentence")]
    extras = [*pll_extra(settings), *moments_extra(settings)]
    return [score_request(item, "sentence", "", item["context"], extras=extras)]
