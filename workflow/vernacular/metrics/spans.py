"""Log-likelihoods of the scored texts, by item and role, from requests and their scores.

A choice among options follows from their scores; a tie is a separate outcome, not a choice of the first option.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from vernacular.types import Item, Request, Role, Score, skipped_reason

# Scores closer than this are equal (nats). Log-probabilities are stored as float32 and summed in float64, so that a
# text scored twice has exactly the same sum; different texts are rarely this close by chance.
TIE = 1e-6


@dataclass(frozen=True)
class Choice:
    """The chosen options and whether the choice is correct."""

    predicted_indices: list[int]  # all options within TIE of the best; [] if the options could not be scored
    correct: bool | None  # None: no known gold, or nothing predicted; False for a tie with an incorrect option

    @property
    def tie(self) -> bool | None:
        return len(self.predicted_indices) > 1 if self.predicted_indices else None

    def outcome(self, name: str = "accuracy") -> dict[str, float]:
        """Return an item's values: {name: 0 or 1} if correctness is known, {"tie:" + name: 1} if there is a tie."""
        values = {} if self.correct is None else {name: float(self.correct)}
        return values | ({f"tie:{name}": 1.0} if self.tie else {})


def choose_option(scores: list[float] | None, correct: list[int]) -> Choice:
    """Choose the option with the highest score; `correct`: indices of the correct options, empty if unknown.

    >>> choose_option([-2.0, -1.0, -1.0], [1]).predicted_indices, choose_option([-2.0, -1.0, -1.0], [1]).correct
    ([1, 2], False)
    >>> choose_option([-2.0, -1.0, -1.0], [1, 2]).correct
    True
    """
    predicted_indices = best_indices(scores)
    if not correct or not predicted_indices:
        return Choice(predicted_indices, None)
    return Choice(predicted_indices, set(predicted_indices) <= set(correct))


def best_indices(scores: list[float] | None) -> list[int]:
    """Return the indices within TIE of the highest score; [] if there are no scores, or one of them is NaN."""
    if not scores or any(math.isnan(score) for score in scores):
        return []
    maximum = max(scores)
    return [i for i, score in enumerate(scores) if score == maximum or maximum - score <= TIE]


def probabilities(scores: list[float]) -> np.ndarray:
    """Return the softmax of the scores, (n,); NaN if all of them are minus infinity."""
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(scores - np.max(scores))
        return exponentials / exponentials.sum()


def correct_options(options: list[str], gold: list[int]) -> list[int]:
    """Return the indices of the gold options and of options with the same text, which are correct as well.

    >>> correct_options([" voza", "voz", "voza"], [0])
    [0, 2]
    """
    texts = {options[i].strip() for i in gold if 0 <= i < len(options)}
    return [i for i, option in enumerate(options) if option.strip() in texts]


def within_noise(scores: list[float] | None, spans: dict[str, "Span"], noise: Mapping[str, float]) -> dict[str, float]:
    """Return {"within_noise": 1} if float noise can change which score is the best; 0 if not; {} if it is unknown.

    It can if the best score, which is no tie, is above another by less than 2 sqrt(v1 + v2), where v is the variance of
    a request's difference between two computations. A score that is no log-likelihood of a span is a difference of two.
    An impossible option (minus infinity) is beyond all noise.

    Args:
        noise: The standard deviation in nats by a span's number of tokens, as the engine states it; it grows with the
            root of the length between and beyond these.
    """
    if not noise or not scores or len(scores) < 2 or any(score is None or math.isnan(score) for score in scores):
        return {}
    own = {span.loglik: len(span.logprobs) for span in spans.values() if span.loglik is not None}
    are_spans = all(score in own for score in scores)

    def variance(score: float) -> float:
        length = own[score] if are_spans else max(own.values(), default=1)
        known = max((int(measured) for measured in noise if int(measured) <= length), default=1)
        return noise[str(known)] ** 2 * length / known * (1 if are_spans else 2)

    best, *others = sorted(scores, reverse=True)
    others = [score for score in others if score > -math.inf]
    is_close = any(best - other < 2 * math.sqrt(variance(best) + variance(other)) for other in others)
    return {"within_noise": float(is_close and best - others[0] > TIE)}


def margin(scores: list[float | None], correct: list[int]) -> float | None:
    """Return the best correct score minus the best incorrect one, ignoring NaN; None if either is missing."""
    known = [(i in correct, score) for i, score in enumerate(scores) if score is not None and not math.isnan(score)]
    good, bad = ([score for is_correct, score in known if is_correct is group] for group in (True, False))
    return max(good) - max(bad) if good and bad else None


UNITS = {"": "sum", "_token": "token", "_char": "char", "_byte": "byte"}  # by the suffix of a metric's name


def text_lengths(text: str) -> dict[str, int]:
    """Return the length of a text by unit: characters ("char") and UTF-8 bytes ("byte").

    >>> text_lengths(" ó")
    {'char': 2, 'byte': 3}
    """
    return {"char": len(text), "byte": len(text.encode("utf-8", "surrogatepass"))}


def per_length(logliks: list[float], texts: list[str], unit: str) -> list[float] | None:
    """Return each log-likelihood divided by the length of its text as written; None if one of the texts is empty."""
    lengths = [text_lengths(text)[unit] for text in texts]
    return [value / length for value, length in zip(logliks, lengths, strict=True)] if all(lengths) else None


@dataclass(frozen=True)
class Span:
    """One scored text."""

    text: str  # as scored, without leading and trailing whitespace
    context: str  # the part of the prompt before it that belongs to the item
    loglik: float | None  # nats, sum over its tokens in float64; None if it could not be scored
    logprobs: tuple[float, ...]  # nats, one per scored token
    flag: str | None
    score: dict | None  # the row of the scores file, if there is one
    request: dict | None = None  # the row of the requests file

    @property
    def prompt(self) -> str:
        """All of the text before it."""
        return (self.request["prefix"] + self.request["text"])[: self.request["span_start"]] if self.request else ""

    def normalized_loglik(self, unit: str) -> float | None:
        """Return the log-likelihood in nats per "token", "char" or "byte" (UTF-8), or unnormalized for "sum".

        Characters and bytes are those of the text without leading and trailing whitespace, as in lm-eval's acc_norm and
        acc_bytes; tokens are the scored ones.
        """
        if self.loglik is None:
            return None
        length = {"sum": 1, "token": len(self.logprobs), **text_lengths(self.text)}[unit]
        return self.loglik / length if length else None


def by_item(requests: list[Request], scores: list[Score]) -> dict[str, dict[str, Span]]:
    """Return {item_id: {role: Span}} for every item with requests, in their order.

    A skipped item has a single role, "skipped: reason". A request without a score, or with log-probabilities that are
    missing or NaN, has a flag and no log-likelihood; it never counts as 0.
    """
    score_by_key = {(score["item_id"], score["role"]): score for score in scores}
    spans: dict[str, dict[str, Span]] = {}
    for request in requests:
        score = score_by_key.get((request["item_id"], request["role"]))
        spans.setdefault(request["item_id"], {})[request["role"]] = _span(request, score)
    return spans


def _span(request: Request, score: dict | None) -> Span:
    full_text = request["prefix"] + request["text"]
    text = full_text[request["span_start"] : request["span_end"]].strip()
    context = full_text[len(request["prefix"]) : request["span_start"]]
    # null: a first token that no token precedes, which a model without BOS cannot score
    logprobs = tuple(value for value in (score or {}).get("logprobs") or () if value is not None)
    if (reason := skipped_reason(request["role"])) is not None:
        loglik, flag = None, f"error: {reason}"
    elif score is None:
        loglik, flag = None, "error: not scored"
    else:
        loglik, flag = _total(logprobs, score["flags"])
    return Span(text, context, loglik, logprobs, flag, score, request)


def _total(logprobs: tuple[float, ...], flag: str | None) -> tuple[float | None, str | None]:
    """Return (sum of the log-probabilities, or None if it is undefined; the flag with the reason added)."""
    parts = ["error: empty" if part == "empty" else part for part in (flag or "").split("; ")]
    if any(part.startswith("error") for part in parts):
        return None, _join_flags(*parts)
    if not logprobs:
        is_error = not (flag or "").startswith("not applicable")
        return None, _join_flags(flag, "error: no token was scored" if is_error else None)
    if any(math.isnan(value) or value == math.inf for value in logprobs):
        return None, _join_flags(flag, "error: log-probability is not a number")
    if min(logprobs) == -math.inf:  # valid as the least probable text, but no mean that includes it is finite
        return -math.inf, _join_flags(flag, "infinite surprisal")
    return math.fsum(logprobs), flag


def _join_flags(*flags: str | None) -> str:
    return "; ".join(flag for flag in flags if flag)


def logliks(spans: dict[str, Span], role: str, n: int, unit: str = "sum") -> list[float] | None:
    """Return the log-likelihoods of the roles "{role}:0" … "{role}:n-1"; None if one of them is missing."""
    roles = [str(Role(role, i)) for i in range(n)]
    values = [spans[name].normalized_loglik(unit) if name in spans else None for name in roles]
    return None if any(value is None for value in values) else values


def accuracy_by_unit(
    spans: dict[str, Span],
    role: str,
    n: int,
    correct: list[int],
    name: str = "accuracy",
    texts: list[str] | None = None,
) -> dict[str, float]:
    """Return the accuracy of the choice by sum and per token, character and byte: {name: …, f"{name}_token": …, …}.

    Args:
        texts: The n texts whose lengths count, as written; None: those of the spans, without their outer spaces.
    """
    values = {}
    sums = logliks(spans, role, n)
    for suffix, unit in UNITS.items():
        if texts and sums and unit in ("char", "byte"):
            scores = per_length(sums, texts, unit)
        else:
            scores = logliks(spans, role, n, unit)
        values |= choose_option(scores, correct).outcome(name + suffix)
    return values


def flags(spans: dict[str, Span]) -> str | None:
    """Return the distinct flags of an item's spans, joined by "; "; None if there are none."""
    distinct = dict.fromkeys(part.strip() for span in spans.values() if span.flag for part in span.flag.split(";"))
    return "; ".join(distinct) or None


def equal_options(spans: dict[str, Span]) -> str | None:
    """Return a flag if a tokenizer makes two different options equal, as XLM-R's does with marks; None otherwise."""
    seen: dict[tuple, tuple[str, str]] = {}
    for role, span in spans.items():
        if span.loglik is None or not (tokens := span.score["tokens"]) or (parsed := Role.parse(role)).index is None:
            continue
        key = parsed.kind, parsed.rotation, span.context, *tokens
        other, text = seen.setdefault(key, (role, span.text))
        if text != span.text and spans[other].logprobs == span.logprobs:
            return f"options of equal tokens: {other} and {role}"
    return None


def items_with_spans(
    items: list[Item], requests: list[Request], scores: list[Score]
) -> Iterator[tuple[dict, dict[str, Span]]]:
    """Iterate over (item, its spans) for every item with requests; few-shot examples have none."""
    spans = by_item(requests, scores)
    return ((item, spans[item["item_id"]]) for item in items if item["item_id"] in spans)


def result(
    item: Item,
    spans: dict[str, Span],
    *,
    values: dict[str, float | None],
    prompt: str | None = None,
    option_scores: list[float] | None = None,
    choice: Choice | None = None,
    prediction: str | None = None,
    flag: str | None = None,
) -> dict:
    """Return a row of TASK_RESULTS. Values that are None or NaN are omitted: a missing value is not 0."""
    if prompt is None:
        prompt = "\n".join(part for part in (item["context"], item["question"]) if part)
    if prediction is None and choice and choice.predicted_indices:
        prediction = " | ".join(item["choices"][i] for i in choice.predicted_indices)
    return result_row(
        item, [flags(spans), equal_options(spans), flag], prompt, values, option_scores, choice, prediction
    )


def result_row(
    item: Item,
    flags: Iterable[str | None],
    prompt: str,
    values: dict[str, float | None],
    option_scores: list[float] | None = None,
    choice: Choice | None = None,
    prediction: str | None = None,
) -> dict:
    """Return a row of TASK_RESULTS with the flags that are given; `values` as in `result`."""
    return {
        "item_id": item["item_id"],
        "cluster_id": item["cluster_id"],
        "category": item["category"],
        "prompt": prompt,
        "choices": list(item["choices"]),
        "gold": list(item["gold"]),
        "option_scores": option_scores,
        "prediction": prediction,
        "predicted_indices": choice.predicted_indices if choice else None,
        "correct": choice.correct if choice else None,
        "tie": choice.tie if choice else None,
        "metrics": {name: float(v) for name, v in values.items() if v is not None and not math.isnan(v)},
        "flags": "; ".join(filter(None, flags)) or None,
    }


def extra(item: Item) -> dict[str, str]:
    """Return the item's `extra` column as a dict; read from Parquet, it is a list of pairs."""
    return dict(item.get("extra") or ())
