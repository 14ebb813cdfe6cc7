"""minimal_pair (BLiMP, MultiBLiMP, Global PIQA, story endings): comparison of the good text with the bad one.

"Bare" values are those of the texts without their context, as Simil-Eval scores Global PIQA.
"""

from vernacular.metrics.bits import best_span, bits_metrics, is_conditional, sizes
from vernacular.metrics.contamination import SIGNALS, signals
from vernacular.metrics.corpus import difsur, difsur_of_pairs
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, accuracy_by_unit, choose_option, correct_options, logliks, result
from vernacular.types import Item, Result

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
           about="100 (bad - good) / max(bad, good) of mean surprisals (Simil-Eval)"),
    Metric("surprisal_good", "nats", None, "surprisal", about="mean surprisal of good texts"),
    Metric("surprisal_bad", "nats", None, "surprisal", about="mean surprisal of bad texts"),
    Metric("accuracy_bare", "share", True, "surprisal", proportion=True, about="accuracy without the context"),
    Metric("difsur_bare", "percent", True, "surprisal", corpus=difsur_of_pairs,
           needs=("surprisal_good_bare", "surprisal_bad_bare"),
           about="difsur without the context (Simil-Eval's metric of Global PIQA)"),
    *bits_metrics("", "answer_"),
    *SIGNALS,
]  # fmt: skip


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return the row of an item; of several, "good" and "bad" are the most probable correct and incorrect text."""
    n, correct = len(item["choices"]), correct_options(item["choices"], item["gold"])
    choice_logliks, bare_logliks = logliks(spans, "choice", n), logliks(spans, "bare", n)
    values = accuracy_by_unit(spans, "choice", n, correct)
    values |= choose_option(bare_logliks, correct).outcome("accuracy_bare")
    values |= _surprisals(choice_logliks, correct, "") | _surprisals(bare_logliks, correct, "_bare")
    span = best_span(spans, "choice", choice_logliks, correct)
    if span and is_conditional(span):  # the good text after its context, and without one
        values |= sizes(span, "answer_")
        span = best_span(spans, "bare", bare_logliks, correct)
    values |= sizes(span, "") | signals(span)
    if "surprisal_good" in values:
        good, bad = values["surprisal_good"], values["surprisal_bad"]
        values |= {"difference": bad - good, "difsur_item": float(difsur(good, bad))}
    shown = {"option_scores": choice_logliks, "choice": choose_option(choice_logliks, correct)}
    prompt = spans["choice:0"].context if "choice:0" in spans else None
    return result(item, spans, values=values, prompt=prompt, **shown)


def _surprisals(scores: list[float] | None, correct: list[int], suffix: str) -> dict[str, float]:
    """Return the surprisal (nats) of the most probable correct and incorrect text; {} if either is missing."""
    good = [score for i, score in enumerate(scores or ()) if i in correct]
    bad = [score for i, score in enumerate(scores or ()) if i not in correct]
    if not good or not bad:
        return {}
    return {f"surprisal_good{suffix}": -max(good), f"surprisal_bad{suffix}": -max(bad)}
