"""cloze: requests for a sentence with one gap, filled with each candidate."""

from vernacular.protocols.request_rows import (
    GAP,
    RequestSettings,
    fill,
    has_alternatives,
    pll_extra,
    score_request,
    single_match,
    skipped_request,
)
from vernacular.types import Item, Request


def requests(item: Item, settings: RequestSettings) -> list[Request]:
    """Return requests with roles "filled:i" (filled sentence) and "fill:i" (candidate and right context after left).

    With `score_unfilled_gap`, also "unfilled:i": the candidate after the unfilled prompt, as in the Serbian scripts.
    """
    gap = single_match(GAP, item["context"])
    if gap is None:
        return [skipped_request(item, f"expected one gap in the prompt, got {len(GAP.findall(item['context']))}")]
    if not has_alternatives(item):
        return [skipped_request(item, "fewer than two candidates, or an empty one")]
    rows = []
    for i, choice in enumerate(item["choices"]):
        left, word, right = fill(item["context"], gap, choice, capitalize=True)
        rows.append(score_request(item, f"filled:{i}", "", left + word + right, extras=pll_extra(settings)))
        rows.append(score_request(item, f"fill:{i}", left, word + right, extras=pll_extra(settings)))
        if settings.options.get("score_unfilled_gap"):
            rows.append(score_request(item, f"unfilled:{i}", item["context"], choice, extras=pll_extra(settings)))
    return rows
