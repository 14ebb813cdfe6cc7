"""minimal_pair: requests for two or more texts (good and bad sentence, two endings, two solutions).

If the item has a context, the texts are scored after it and also without it ("bare"), as Simil-Eval scores Global PIQA.
"""

from vernacular.protocols.request_rows import (
    RequestSettings,
    continue_with,
    has_alternatives,
    moments_extra,
    pll_extra,
    score_request,
    skipped_request,
)
from vernacular.types import Item, Request


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return requests "choice:i" and, with a context, "bare:i"; the span is the text with its leading space."""
    context = "\n".join(part for part in (item["context"], item["question"]) if part.strip())
    if not has_alternatives(item):
        return [skipped_request(item, "fewer than two texts to compare")]
    rows = []
    for i, choice in enumerate(item["choices"]):
        left, span = continue_with(context, choice, settings.language)
        extras = [*pll_extra(settings), *moments_extra(settings)]  # of an entire text
        rows.append(score_request(item, f"choice:{i}", left, span, extras=pll_extra(settings) if context else extras))
        if context:
            rows.append(score_request(item, f"bare:{i}", "", choice, extras=extras))
    return rows
