"""acceptability (CoLA): the surprisal of whole sentences, acceptable and not."""

from vernacular.protocols.request_rows import Setting, pll_extra, scored, unasked


def requests(item: dict, setting: Setting) -> list[dict]:
    """Role "sentence": the span is all of it."""
    if not item["context"].strip():
        return [unasked(item, "an empty sentence")]
    return [scored(item, "sentence", "", item["context"], extras=pll_extra(setting))]
