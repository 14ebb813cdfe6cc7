"""cloze: requests for a sentence with one gap, filled with each candidate."""

from vernacular.protocols.request_rows import GAP, Setting, fill, one, pll_extra, scored, skipped
from vernacular.types import Item, Request


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return requests with roles "whole:i" (filled sentence) and "fill:i" (candidate and right context after the left).

    With `score_unfilled_gap`, also "unfilled:i": the candidate directly after the unfilled prompt, as in the scripts
    of the Serbian cloze task.
    """
    gap = one(GAP, item["context"])
    if gap is None:
        return [skipped(item, f"expected one gap in the prompt, got {len(GAP.findall(item['context']))}")]
    if len(item["choices"]) < 2 or not all(choice.strip() for choice in item["choices"]):
        return [skipped(item, "fewer than two candidates, or an empty one")]
    rows = []
    for i, choice in enumerate(item["choices"]):
        before, word, after = fill(item["context"], gap, choice, capital=True)
        rows.append(scored(item, f"whole:{i}", "", before + word + after, extras=pll_extra(setting)))
        rows.append(scored(item, f"fill:{i}", before, word + after, extras=pll_extra(setting)))
        if setting.options.get("score_unfilled_gap"):
            rows.append(scored(item, f"unfilled:{i}", item["context"], choice, extras=pll_extra(setting)))
    return rows
