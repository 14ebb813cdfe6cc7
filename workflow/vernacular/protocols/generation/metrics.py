"""generation: comparison of the response with the options, by similarity and by text.

For each similarity metric m of the config: the mean similarity to all options (`m_mean`), the similarity to the most
similar correct and incorrect option (`m_correct`, `m_incorrect`), their difference (`m_margin`), and whether the most
similar option is correct (`m_accuracy`; any correct option counts, a tie with an incorrect one does not). Items without
options have `m_correct` only, the similarity to their target. In addition: exact match, chrF and token F1.

An empty response, or one that ends within its reasoning, has no similarities and is flagged; it chooses no option and
equals none, so it counts as incorrect. A failed generation is excluded from all metrics.

Comparison with Simil-Eval's report: its "global mean" is `m_mean`, but with 0.0 for empty responses; its "mean with
correct options" pools all correct options, whereas `m_correct` uses the most similar one of each item; its accuracy
requires the correct option that is visited last, `m_accuracy` any correct option. Its BERTScore against "all options"
is the larger of `bertscore_correct` and `bertscore_incorrect`. With one correct answer per item and no empty
response, the two agree.
"""

import math
import unicodedata
from collections import Counter
from statistics import fmean, stdev

import numpy as np
from sacrebleu.metrics import CHRF

from vernacular.core.languages import INVISIBLE_MARKS
from vernacular.core.languages import in_one_script as one_script
from vernacular.metrics.metric import Metric, in_one_script
from vernacular.metrics.similarity.outputs import ParsedOutput
from vernacular.metrics.spans import Choice, choose_option, correct_options, margin, result_row
from vernacular.types import Item, Request, Result, correct_answers, is_number, last_number

SIMILARITIES = {"cosine": "cosine", "moverscore": "score", "bertscore": "score"}  # metrics and their units


def _similarity_metrics(name: str, unit: str) -> list[Metric]:
    return [
        Metric(f"{name}_accuracy", "share", True, "similarity", proportion=True, headline=True,
               about=f"the option most similar to the response by {name} is correct"),
        Metric(f"{name}_mean", unit, None, "similarity", about=f"mean {name} of the response and each option"),
        Metric(f"{name}_correct", unit, True, "similarity",
               about=f"{name} of the response and the most similar correct option"),
        Metric(f"{name}_incorrect", unit, False, "similarity",
               about=f"{name} of the response and the most similar incorrect option"),
        Metric(f"{name}_margin", unit, True, "similarity", about=f"{name}_correct minus {name}_incorrect"),
    ]  # fmt: skip


SAMPLES = [  # of several samples of an item
    Metric("pass_at_k", "share", True, "similarity",
           about="probability of an exact match among k samples (pass_at; unbiased estimate, Chen et al. 2021)"),
    Metric("sample_sd", "share", None, "similarity",
           about="standard deviation of exact_match between the samples of an item, mean over items"),
]  # fmt: skip
RESPONSES = [  # of the reasoning before a response
    Metric("unclosed", "share", False, "similarity", proportion=True,
           about="responses that end within their reasoning: no answer, which counts as incorrect"),
    Metric("no_reasoning", "share", None, "similarity", proportion=True,
           about="responses without reasoning, although the prompt asks for it"),
    Metric("answer_cut", "share", False, "similarity", proportion=True,
           about="answers after reasoning that reach the largest number of tokens of an answer"),
    Metric("reasoning_tokens", "tokens", None, "similarity", about="tokens before the answer"),
    Metric("reasoning_tokens_p95", "tokens", None, "similarity", needs=("reasoning_tokens",),
           corpus=lambda tokens: np.quantile(tokens, 0.95, axis=-1), about="95th percentile of the tokens before it"),
]  # fmt: skip

METRICS = [
    *(metric for name, unit in SIMILARITIES.items() for metric in _similarity_metrics(name, unit)),
    Metric("exact_match", "share", True, "similarity", proportion=True, headline=True,
           about="correct response, ignoring case, punctuation and whitespace (after SQuAD, Rajpurkar et al. 2016)"),
    Metric("token_f1", "score", True, "similarity",
           about="words shared with the most similar correct answer, 0 to 1 (SQuAD, Rajpurkar et al. 2016)"),
    Metric("chrf", "score", True, "similarity",
           about="character n-grams shared with the most similar correct answer, 0 to 100 (sacrebleu, Popović 2015)"),
    Metric("exact_match_closed", "share", True, "similarity", proportion=True,
           about="exact_match of the responses whose reasoning ends"),
    *SAMPLES,
    *RESPONSES,
]  # fmt: skip
_OF_TEXTS = (*SIMILARITIES, "exact_match", "token_f1", "chrf")
SCRIPT_METRICS = in_one_script([each for each in METRICS if each.name.startswith(_OF_TEXTS)])

_CHRF = CHRF()


def mean_row(rows: list[Result], pass_at: int | None, outcome: str) -> Result:
    """Return the result of an item from those of its samples; `outcome`: the metric that tells if one is correct."""
    names = dict.fromkeys(name for row in rows for name in row["metrics"])
    by_name = {name: [row["metrics"][name] for row in rows if name in row["metrics"]] for name in names}
    values = {name: fmean(numbers) for name, numbers in by_name.items()}
    matched = by_name.get(outcome, [])
    if pass_at and len(matched) >= pass_at:
        values["pass_at_k"] = pass_at_k(len(matched), int(sum(matched)), pass_at)
    if len(matched) > 1:
        values["sample_sd"] = stdev(matched)
    if matched:
        values["samples"] = float(len(matched))
    counts = Counter(flag for row in rows if row["flags"] for flag in row["flags"].split("; "))
    flags = [flag if ":" in flag else f"{flag}: {n} of {len(rows)} samples" for flag, n in counts.items()]
    return rows[0] | {"metrics": values, "flags": "; ".join(flags) or None}


def pass_at_k(n: int, n_correct: int, k: int) -> float:
    """Return the probability of at least one correct sample among k of n, drawn without replacement.

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 2), pass_at_k(4, 3, 2)
    (0.25, 0.5, 1.0)
    """
    return 1 - math.comb(n - n_correct, k) / math.comb(n, k)


def result_of(item: Item, request: Request, output: ParsedOutput, similarities: dict[str, list]) -> Result:
    """Return the row of an item; `similarities` by metric, of which the first in SIMILARITIES decides the choice."""
    correct = correct_options(item["choices"], item["gold"])
    values: dict[str, float] = {}
    flags = [output.flag]
    chosen: tuple[list | None, Choice | None] = (None, None)
    for name in SIMILARITIES:
        scores = similarities.get(name)
        if scores is None or output.text is None:
            continue
        if item["choices"]:
            # without similarities, none is chosen, which is incorrect if the gold is known
            choice = Choice([], False if correct else None)
            if any(score is not None for score in scores):
                choice = choose_option([float("-inf") if score is None else score for score in scores], correct)
            values |= _option_metrics(name, scores, correct, choice)
            chosen = chosen if chosen[1] else (scores, choice)
        elif known := [score for score in scores if score is not None]:
            values[f"{name}_correct"] = max(known)
        if output.text.strip() and all(score is None for score in scores):
            flags.append(f"no {name}")
    if output.text is not None:
        values |= answer_metrics(item, output.text)
    if "exact_match" in values and output.values and not output.values["unclosed"]:
        values["exact_match_closed"] = values["exact_match"]
    row = result_row(item, flags, request["text"], values | output.values, *chosen, output.text)
    if not item["choices"] and "exact_match" in values:
        row["correct"] = values["exact_match"] == 1.0
    return row


def answer_metrics(item: Item, response: str) -> dict[str, float]:
    """Return the metrics of a response as text, of a number exact_match only; {} if no correct answer is known."""
    # the correct options, also those that only equal one, or the accepted answers
    correct = correct_options(item["choices"], item["gold"])
    references = [item["choices"][i] for i in correct] if item["choices"] else correct_answers(item)
    if is_number(item):
        return {"exact_match": float(last_number(response) in map(last_number, references))}
    return text_metrics(scored_part(item, response), references) if references else {}


def script_values(item: Item, text: str, similarities: dict[str, list], language: str) -> dict[str, float]:
    """Return the values of an answer in one script, `similarities` those of transliterated texts."""
    if is_number(item):
        return {}
    correct = correct_options(item["choices"], item["gold"])
    references = [item["choices"][i] for i in correct] if item["choices"] else correct_answers(item)
    row = {"choices": [each and one_script(each, language) for each in item["choices"]]}
    row = item | row | ({} if item["target"] is None else {"target": one_script(item["target"], language)})
    response, references = one_script(text, language), [one_script(each, language) for each in references]
    values = text_metrics(scored_part(row, response), references) if references else {}
    output = ParsedOutput(text, None, {})
    values |= {
        name: value
        for name, value in result_of(item, {"text": ""}, output, similarities)["metrics"].items()
        if name.startswith(tuple(SIMILARITIES))
    }
    known = {metric.name for metric in SCRIPT_METRICS}
    return {f"{name}_script": value for name, value in values.items() if f"{name}_script" in known}


def _option_metrics(name: str, scores: list[float | None], correct: list[int], choice: Choice) -> dict[str, float]:
    known_scores = {i: score for i, score in enumerate(scores) if score is not None}
    values = {}
    if known_scores:
        values[f"{name}_mean"] = sum(known_scores.values()) / len(known_scores)
    if correct:
        for side, is_correct in (("correct", True), ("incorrect", False)):
            if own := [score for i, score in known_scores.items() if (i in correct) is is_correct]:
                values[f"{name}_{side}"] = max(own)
        gap = margin(list(known_scores.values()), [k for k, i in enumerate(known_scores) if i in correct])
        values |= {} if gap is None else {f"{name}_margin": gap}
    if choice.correct is not None:
        values[f"{name}_accuracy"] = float(choice.correct)
    if choice.tie:
        values[f"tie:{name}_accuracy"] = 1.0
    return values


def scored_part(item: Item, response: str) -> str:
    """Return the part of a response that is compared with the references as text.

    If a last word is requested (CALAME, Lopes et al. 2024), it is the first one: the model may continue after it.
    """
    if item["choices"] or "targets" in (item.get("extra") or {}) or len(item["target"].split()) != 1:
        return response
    return next((word for word in response.split() if normalize(word)), "")


def text_metrics(response: str, references: list[str]) -> dict[str, float]:
    """Compute exact_match (0 or 1), token_f1 (0 to 1) and chrf (0 to 100), each for its most similar reference.

    >>> text_metrics("Unha  mazá!", ["a casa", "unha mazá"])["exact_match"]
    1.0
    """
    return {
        "exact_match": float(any(matches(response, reference) for reference in references)),
        "token_f1": max(token_f1(response, reference) for reference in references),
        "chrf": _CHRF.sentence_score(response, references).score,
    }


def matches(response: str, reference: str) -> bool:
    """Return whether texts are equal after `normalize`; texts that contain only punctuation are compared unchanged."""
    normalized, normalized_reference = normalize(response), normalize(reference)
    return normalized == normalized_reference if normalized else response.strip() == reference.strip()


def token_f1(response: str, reference: str) -> float:
    """Compute the harmonic mean of precision and recall of the normalized words, as in SQuAD's evaluation.

    >>> token_f1("a mazá vermella", "unha mazá")  # 1 of 3 and 1 of 2
    0.4
    """
    words, reference_words = normalize(response).split(), normalize(reference).split()
    n_shared = sum((Counter(words) & Counter(reference_words)).values())
    return 2 * n_shared / (len(words) + len(reference_words)) if n_shared else 0.0


def normalize(text: str) -> str:
    """Apply NFKC and case folding, remove punctuation, collapse whitespace: SQuAD's, for Unicode, with articles.

    Invisible marks are removed as well, such as those of direction around Arabic and Hebrew texts.
    """
    folded = unicodedata.normalize("NFKC", INVISIBLE_MARKS.sub("", text)).casefold().replace("i\u0307", "i")  # İ
    return " ".join("".join(c for c in folded if unicodedata.category(c)[0] != "P").split())
