"""target_word (Grew-TSE's evaluator): requests for word forms that replace a masked word; the first form is correct.

The model reads the complete filled sentence. `token` scores the form in it, `sentence` the sentence. Causal
(`ntp`) and masked (`mlm`) models have the same requests.
"""

import re

from vernacular.protocols.request_rows import (
    MASK,
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
    """Return requests "token:i" (with entropies and ranks) and "sentence:i" for form i, by `scored_span`."""
    mask = settings.options.get("mask_token")
    pattern = re.compile(re.escape(mask)) if mask else MASK
    match = single_match(pattern, item["context"])
    if match is None:
        count = len(pattern.findall(item["context"]))
        return [skipped_request(item, f"expected one masked word in the text, got {count}")]
    if not has_alternatives(item):
        return [skipped_request(item, "fewer than two forms, or an empty one")]
    level = settings.options.get("scored_span", "both")
    pll_extras = [] if settings.options.get("task_type") == "ntp" else pll_extra(settings, "within_word_l2r")
    rows = []
    for i, form in enumerate(item["choices"]):
        left, word, right = fill(item["context"], match, form, capitalize=False)
        if level != "sentence":
            rows.append(score_request(item, f"token:{i}", left, word, right, extras=["entropy", "rank", *pll_extras]))
        if level != "token":
            rows.append(score_request(item, f"sentence:{i}", "", left + word + right, extras=pll_extras))
    return rows
