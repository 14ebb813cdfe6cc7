"""minimal_pair (BLiMP, MultiBLiMP, Global PIQA, story endings): comparison of the good text with the bad one.

"Bare" values are those of the texts without their context, as Simil-Eval scores Global PIQA.
"""

from vernacular.metrics.choice import choose, correct_options
from vernacular.metrics.corpus import difsur, difsur_of_pairs
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import asked, by_unit, logliks, result
from vernacular.types import Item, Request, Result, Score

METRICS = [
    Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True,
           about="the good text is more probable; a tie counts as incorrect (Warstadt et al. 2020)"),
    Metric("accuracy_token", "share", True, "surprisal", proportion=True, about="by log-likelihood per token"),
    Metric("accuracy_char", "share", True, "surprisal", proportion=True, about="by log-likelihood per character"),
    Metric("accuracy_byte", "share", True, "surprisal", proportion=True, about="by log-likelihood per UTF-8 byte"),
    Metric("difference", "nats", True, "surprisal", about="mean of surprisal(bad) - surprisal(good) within pairs"),
    Metric("difsur_item", "percent", True, "surprisal",
           about="mean over pairs of 100 (bad - good) / max(bad, good)"),
    Metric("difsur", "percent", True, "surprisal", corpus=difsur_of_pairs, needs=("surprisal_good", "surprisal_bad"),
           vectorised=True, about="100 (bad - good) / max(bad, good) of mean surprisals (Simil-Eval)"),
    Metric("surprisal_good", "nats", None, "surprisal", about="mean surprisal of good texts"),
    Metric("surprisal_bad", "nats", None, "surprisal", about="mean surprisal of bad texts"),
    Metric("accuracy_bare", "share", True, "surprisal", proportion=True, about="accuracy without the context"),
    Metric("difsur_bare", "percent", True, "surprisal", corpus=difsur_of_pairs,
           needs=("surprisal_good_bare", "surprisal_bad_bare"), vectorised=True,
           about="difsur without the context (Simil-Eval's metric of Global PIQA)"),
]  # fmt: skip


def per_item(items: list[Item], requests: list[Request], scores: list[Score]) -> list[Result]:
    """Return a row per item; of several, "good" and "bad" are the most probable correct and incorrect text."""
    rows = []
    for item, spans in asked(items, requests, scores):
        n, right = len(item["choices"]), correct_options(item["choices"], item["gold"])
        scored, bare = logliks(spans, "choice", n), logliks(spans, "bare", n)
        values = by_unit(spans, "choice", n, right)
        values |= choose(bare, right).outcome("accuracy_bare")
        values |= _surprisals(scored, right, "") | _surprisals(bare, right, "_bare")
        if "surprisal_good" in values:
            good, bad = values["surprisal_good"], values["surprisal_bad"]
            values |= {"difference": bad - good, "difsur_item": float(difsur(good, bad))}
        prompt = spans["choice:0"].before if "choice:0" in spans else None
        rows.append(
            result(item, spans, values=values, option_scores=scored, choice=choose(scored, right), prompt=prompt)
        )
    return rows


def _surprisals(scored: list[float] | None, right: list[int], suffix: str) -> dict[str, float]:
    """Return the surprisal (nats) of the most probable correct and incorrect text; {} if either is missing."""
    good = [score for i, score in enumerate(scored or ()) if i in right]
    bad = [score for i, score in enumerate(scored or ()) if i not in right]
    if not good or not bad:
        return {}
    return {f"surprisal_good{suffix}": -max(good), f"surprisal_bad{suffix}": -max(bad)}
