"""target_word (Grew-TSE's evaluator): requests for word forms that replace a masked word; the first form is correct.

The model reads the complete filled sentence. `token` scores the form in it, `sentence` the sentence. Causal
(`ntp`) and masked (`mlm`) models have the same requests.
"""

import re

from vernacular.protocols.request_rows import MASK, Setting, fill, one, pll_extra, scored, skipped
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return requests "token:i" (with entropies and ranks) and "sentence:i" for form i, by `scored_span`."""
    mask = setting.options.get("mask_token")
    pattern = re.compile(re.escape(mask)) if mask else MASK
    place = one(pattern, item["context"])
    if place is None:
        return [skipped(item, f"expected one masked word in the text, got {len(pattern.findall(item['context']))}")]
    if len(item["choices"]) < 2 or not all(choice.strip() for choice in item["choices"]):
        return [skipped(item, "fewer than two forms, or an empty one")]
    level = setting.options.get("scored_span", "both")
    masked = [] if setting.options.get("task_type") == "ntp" else pll_extra(setting, "within_word_l2r")
    rows = []
    for i, form in enumerate(item["choices"]):
        before, word, after = fill(item["context"], place, form, capital=False)
        if level != "sentence":
            rows.append(scored(item, f"token:{i}", before, word, after, extras=["entropy", "rank", *masked]))
        if level != "token":
            rows.append(scored(item, f"sentence:{i}", "", before + word + after, extras=masked))
    return rows
