"""target_word (Grew-TSE's evaluator): word forms in the place of a masked word, the first form being the right one.

The sentence is filled and read whole. `token-level` scores the form in it, `sentence-level` all of it; a causal model
(`ntp`) and a masked one (`mlm`) answer the same requests, each in its own way.
"""

import re

from vernacular.protocols.request_rows import MASK, Setting, fill, one, pll_extra, scored, unasked
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Roles "token:i" and "sentence:i" for form i, by `evaluation_type`; the former with entropies and ranks."""
    mask = setting.options.get("mask_token")
    pattern = re.compile(re.escape(mask)) if mask else MASK
    place = one(pattern, item["context"])
    if place is None:
        return [unasked(item, f"{len(pattern.findall(item['context']))} masked words in the text, not one")]
    if len(item["choices"]) < 2 or not all(choice.strip() for choice in item["choices"]):
        return [unasked(item, "fewer than two forms, or an empty one")]
    level = setting.options.get("evaluation_type", "both")
    masked = [] if setting.options.get("task_type") == "ntp" else pll_extra(setting, "within_word_l2r")
    rows = []
    for i, form in enumerate(item["choices"]):
        before, word, after = fill(item["context"], place, form, capital=False)
        if level != "sentence-level":
            rows.append(scored(item, f"token:{i}", before, word, after, extras=["entropy", "rank", *masked]))
        if level != "token-level":
            rows.append(scored(item, f"sentence:{i}", "", before + word + after, extras=masked))
    return rows
