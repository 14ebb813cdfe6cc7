"""options: log-likelihood of each option's text after the question: plain, normalized, and as mutual information."""

from vernacular.metrics.bits import best_span, bits_metrics, sizes
from vernacular.metrics.classification import is_classification
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import (
    Span,
    accuracy_by_unit,
    choose_option,
    correct_options,
    logliks,
    margin,
    probabilities,
    result,
)
from vernacular.types import Item, Result

METRICS = [
    Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True,
           about="the most probable option is correct (lm-eval's acc)"),
    Metric("accuracy_token", "share", True, "surprisal", proportion=True, about="by log-likelihood per token"),
    Metric("accuracy_char", "share", True, "surprisal", proportion=True,
           about="by log-likelihood per character (lm-eval's acc_norm)"),
    Metric("accuracy_byte", "share", True, "surprisal", proportion=True,
           about="by log-likelihood per UTF-8 byte (lm-eval's acc_bytes)"),
    Metric("accuracy_pmi", "share", True, "surprisal", proportion=True,
           about="by log-likelihood minus that after the cue alone (Holtzman et al. 2021; lm-eval's acc_mutual_info)"),
    Metric("accuracy_uncond", "share", None, "surprisal", proportion=True,
           about="by log-likelihood after the cue alone: above chance, the options give answers away"),
    Metric("probability", "share", True, "surprisal",
           about="probability of the correct options among all (TruthfulQA's MC2)"),
    Metric("surprisal_correct", "nats", False, "surprisal", about="surprisal of the most probable correct option"),
    *bits_metrics("answer_", masked=False),
]  # fmt: skip


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return the row of an item; `option_scores` decide: log-likelihoods (nats), or mutual information of classes."""
    n, correct = len(item["choices"]), correct_options(item["choices"], item["gold"])
    scores, cue_scores = logliks(spans, "choice", n), logliks(spans, "uncond", n)
    choice = choose_option(scores, correct)
    prompt = spans["choice:0"].context if "choice:0" in spans else None
    if scores is None:
        return result(item, spans, values={}, choice=choice, prompt=prompt)
    # lengths of the options as written in the dataset, as in lm-eval: without the space before an option
    values = accuracy_by_unit(spans, "choice", n, correct, texts=item["choices"])
    if cue_scores:
        pmi = [score - cue_score for score, cue_score in zip(scores, cue_scores, strict=True)]
        by_pmi = choose_option(pmi, correct)
        values |= by_pmi.outcome("accuracy_pmi")
        values |= choose_option(cue_scores, correct).outcome("accuracy_uncond") if correct else {}
    if correct:
        values["probability"] = probabilities(scores)[correct].sum()
        values["surprisal_correct"] = -max(scores[i] for i in correct)
        values["margin"] = margin(scores, correct)
        values |= sizes(best_span(spans, "choice", scores, correct), "answer_")
    if is_classification(item):
        scores, choice = (pmi, by_pmi) if cue_scores else (None, None)
    return result(item, spans, values=values, option_scores=scores, choice=choice, prompt=prompt)
