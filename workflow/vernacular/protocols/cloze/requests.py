"""cloze: a sentence with one gap; the gap is filled with each candidate, and the sentence scored."""

from vernacular.protocols.request_rows import GAP, Setting, fill, one, pll_extra, scored, unasked
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Roles "whole:i" (all of the filled sentence) and "fill:i" (candidate and right context, given the left context).

    With `legacy` also "legacy:i": the candidate glued to the unfilled prompt, as the scripts of the Serbian cloze task
    score it.
    """
    gap = one(GAP, item["context"])
    if gap is None:
        return [unasked(item, f"{len(GAP.findall(item['context']))} gaps in the prompt, not one")]
    if len(item["choices"]) < 2 or not all(choice.strip() for choice in item["choices"]):
        return [unasked(item, "fewer than two candidates, or an empty one")]
    rows = []
    for i, choice in enumerate(item["choices"]):
        before, word, after = fill(item["context"], gap, choice, capital=True)
        rows.append(scored(item, f"whole:{i}", "", before + word + after, extras=pll_extra(setting)))
        rows.append(scored(item, f"fill:{i}", before, word + after, extras=pll_extra(setting)))
        if setting.options.get("legacy"):
            rows.append(scored(item, f"legacy:{i}", item["context"], choice, extras=pll_extra(setting)))
    return rows
