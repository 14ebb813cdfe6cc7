"""cloze: choice of the candidate that gives the most probable sentence.

Candidates are scored by the complete sentence, and by candidate and right context given the left context (the fill). In
a causal model, the two sums differ by the log-likelihood of the left context. They rank candidates equally if both or
neither are read after a BOS: if the tokenizer adds one or has none, and with `bos: always`, `eos` or `never`. They may
rank them differently with `bos: auto` and a tokenizer that has a BOS but does not add it (GPT-2), because only a text
scored from its first character gets one, which is the sentence but not the fill; if a token crosses the start of the
gap (flag `boundary`); per token, character and byte; and in a masked model.
"""

from vernacular.metrics.bits import best_span, bits_metrics, sizes
from vernacular.metrics.corpus import most_common_share
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, accuracy_by_unit, choose_option, correct_options, logliks, result
from vernacular.types import Item, Result

METRICS = [
    Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True,
           about="the correct candidate gives the most probable sentence"),
    Metric("accuracy_token", "share", True, "surprisal", proportion=True, about="sentence, per token"),
    Metric("accuracy_char", "share", True, "surprisal", proportion=True, about="sentence, per character"),
    Metric("accuracy_byte", "share", True, "surprisal", proportion=True, about="sentence, per UTF-8 byte"),
    Metric("accuracy_fill", "share", True, "surprisal", proportion=True,
           about="candidate and right context, given the left context"),
    Metric("accuracy_fill_token", "share", True, "surprisal", proportion=True, about="the same, per token"),
    Metric("accuracy_fill_char", "share", True, "surprisal", proportion=True, about="the same, per character"),
    Metric("accuracy_fill_byte", "share", True, "surprisal", proportion=True, about="the same, per UTF-8 byte"),
    Metric("accuracy_unfilled", "share", True, "surprisal", proportion=True,
           about="candidate after the unfilled prompt, as scored by the Serbian cloze scripts"),
    Metric("baseline_position", "share", None, "surprisal", corpus=most_common_share, needs=("gold_position",),
           about="accuracy of always choosing the most common position of the correct candidate"),
    Metric("baseline_shortest", "share", None, "surprisal", about="accuracy of always choosing the shortest candidate"),
    *bits_metrics(""),
]  # fmt: skip


def result_of(item: Item, spans: dict[str, Span]) -> Result:
    """Return an item's row; `option_scores`: log-likelihoods (nats) of the filled sentences, which set the choice."""
    n, correct = len(item["choices"]), correct_options(item["choices"], item["gold"])
    filled, unfilled = (logliks(spans, role, n) for role in ("filled", "unfilled"))
    values = accuracy_by_unit(spans, "filled", n, correct)
    values |= accuracy_by_unit(spans, "fill", n, correct, "accuracy_fill")
    values |= choose_option(unfilled, correct).outcome("accuracy_unfilled") | _baselines(item, correct)
    values |= sizes(best_span(spans, "filled", filled, correct), "")
    values |= {f"loglik_unfilled:{i}": loglik for i, loglik in enumerate(unfilled or ())}
    has_duplicates = len({choice.strip() for choice in item["choices"]}) < n
    shown = {"option_scores": filled, "choice": choose_option(filled, correct), "prompt": item["context"]}
    flag = "duplicate candidates" if has_duplicates else None
    return result(item, spans, values=values, flag=flag, **shown)


def _baselines(item: Item, correct: list[int]) -> dict[str, float]:
    if not correct:
        return {}
    lengths = [len(choice.strip()) for choice in item["choices"]]
    shortest = [i for i, length in enumerate(lengths) if length == min(lengths)]
    return {"gold_position": item["gold"][0], "baseline_shortest": sum(i in correct for i in shortest) / len(shortest)}
