"""Values of a judge: the verdicts that its texts name, or their expectation over the probabilities of all labels.

Of two responses, both orders are judged, and the value of an item is the mean of both: a judge that prefers what it
reads first, whichever it is, gives a tie. An item without a verdict in one of the orders has no value, and is counted.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from vernacular.core.errors import format_count
from vernacular.core.tables import percent
from vernacular.metrics.metric import Metric
from vernacular.metrics.similarity.outputs import ParsedOutput, parse_samples
from vernacular.metrics.spans import best_indices, by_item, logliks, probabilities
from vernacular.protocols.choice.parser import Answers, extract
from vernacular.protocols.lm_eval.metrics import to_metric
from vernacular.types import Request, Role

UNVALIDATED = "_unvalidated"  # at the end of the name of values that no label of a speaker supports


@dataclass(frozen=True)
class _Verdict:
    value: float  # of the first response
    decision: float  # the same, of the most probable verdict alone
    mass: float | None = None  # probability of all labels


def metric_name(judge: str, *, labeled: bool) -> str:
    """Return the name of a judge's value.

    >>> metric_name("tone", labeled=False), metric_name("tone", labeled=True)
    ('judge_tone_unvalidated', 'judge_tone')
    """
    return f"judge_{judge}" + ("" if labeled else UNVALIDATED)


def metrics(judgment) -> list[Metric]:
    """Return the metrics of a `JudgmentSpec` (config/specs.py)."""
    return [to_metric(definition) for definition in definitions(judgment)]


def definitions(judgment) -> list[dict]:
    """Return the metrics of a judge as metadata of results, which `to_metric` reads."""
    rubric, name = judgment.rubric, f"judge_{judgment.judge}"
    in_unit = all(0 <= value <= 1 for value in rubric.values)
    is_binary = set(rubric.values) <= {0, 1} and rubric.reads == "text" and not rubric.is_pair
    subject = f"preferred to the response of {judgment.baseline}" if rubric.is_pair else "value of the responses"
    metrics = [
        (metric_name(judgment.judge, labeled=judgment.labeled), "share" if in_unit else "score", True, is_binary,
         f"{subject}, by {judgment.model} with the rubric {judgment.name}"),
    ]  # fmt: skip
    if rubric.is_pair:
        metrics += [
            (f"{name}_first", "share", None, False, "preferred because it is shown first: half without position bias"),
            (f"{name}_consistent", "share", None, True, "the same verdict in both orders"),
            (f"{name}_tie", "share", None, True, "neither is preferred: a tie, or another verdict in each order"),
        ]
    if rubric.reads == "text":
        text = "judgments in which no verdict is found; these items have no value"
        metrics.append((f"{name}_unparsed", "share", None, not rubric.is_pair, text))
    else:
        metrics.append((f"{name}_mass", "share", None, False, "probability of all labels together, before they are 1"))
    names = ("name", "unit", "higher_is_better", "proportion", "about")
    common = {"metric_group": "similarity", "corpus": None, "needs": []}
    rows = [dict(zip(names, metric, strict=True)) | common for metric in metrics]
    return [row | {"headline": number == 0} for number, row in enumerate(rows)]


def values(judgment, requests: list[Request], outputs: list[dict]) -> dict[str, dict[str, float]]:
    """Return the values of each judged item by metric; `outputs`: of the judge, generations or scores."""
    read = _in_texts if judgment.rubric.reads == "text" else _in_scores
    return {item: _values(judgment, verdicts) for item, verdicts in read(judgment, requests, outputs)}


def _in_texts(judgment, requests, outputs) -> Iterator[tuple[str, list[_Verdict | str]]]:
    """Yield (item, its verdicts by order), or in place of a verdict the reason why there is none."""
    for item, texts in parse_samples(requests, outputs).items():
        yield item, [_in_text(judgment, text) for text in texts]


def _in_text(judgment, output: ParsedOutput) -> "_Verdict | str":
    if output.text is None:
        return "failed"
    index = find_label(judgment.rubric, output.text, judgment.answers, is_complete=not output.is_cut)
    return "unparsed" if index is None else _Verdict(*[judgment.rubric.values[index]] * 2)


def find_label(rubric, text: str, answers: Sequence[Answers], *, is_complete: bool = True) -> int | None:
    """Return the verdict that a text names; None if there is none, or not a single one."""
    if not rubric.pattern:
        return extract(text, rubric.texts, answers, is_complete=is_complete)[0]
    found = re.findall(rubric.pattern, text)
    folded = [label.strip().casefold() for label in rubric.texts]
    return folded.index(label) if found and (label := found[-1].strip().casefold()) in folded else None


def _in_scores(judgment, requests, outputs) -> Iterator[tuple[str, list[_Verdict | str]]]:
    """Yield as `_in_texts`, with expectations over the labels."""
    scale, orders = judgment.rubric.values, 1 + judgment.rubric.is_pair
    for item, spans in by_item(requests, outputs).items():
        verdicts: list[_Verdict | str] = []
        for order in range(orders):
            own = {
                str(Role("choice", role.index)): spans[name]
                for name in spans
                if (role := Role.parse(name)).rotation == order
            }
            scores = logliks(own, "choice", len(scale))
            if scores is None or max(scores) == -math.inf:
                verdicts.append("failed")
                continue
            weights = probabilities(scores)
            value = math.fsum(weight * value for weight, value in zip(weights, scale, strict=True))
            decision = fmean(scale[index] for index in best_indices(scores))
            verdicts.append(_Verdict(value, decision, math.fsum(map(math.exp, scores))))
        yield item, verdicts


def _values(judgment, verdicts: list[_Verdict | str]) -> dict[str, float]:
    name, rubric = f"judge_{judgment.judge}", judgment.rubric
    found = [verdict for verdict in verdicts if isinstance(verdict, _Verdict)]
    values = {}
    if rubric.reads == "text" and "failed" not in verdicts:
        values[f"{name}_unparsed"] = verdicts.count("unparsed") / len(verdicts)
    if len(found) < 1 + rubric.is_pair:
        return values
    first, second = found[0], found[-1]
    if rubric.reads != "text":
        values[f"{name}_mass"] = fmean(verdict.mass for verdict in found)
    main = metric_name(judgment.judge, labeled=judgment.labeled)
    if not rubric.is_pair:
        return values | {main: first.value}
    decisions = first.decision, 1 - second.decision  # on the judged model's response
    return values | {
        main: (first.value + 1 - second.value) / 2,
        f"{name}_first": (first.value + second.value) / 2,
        f"{name}_consistent": float(math.isclose(*decisions)),
        f"{name}_tie": float(math.isclose(sum(decisions), 1)),
    }


def notes(judgment, n_requested: int, by_item: dict[str, dict], skipped: dict[str, str], rows: list[dict]) -> list[str]:
    """Return sentences about the values of a judge (`by_item`) for one model and evaluation.

    `n_requested`: judged items; `skipped`: reason by item that was not; `rows`: values, as `aggregate` returns them.
    """
    name = f"judge {judgment.judge}"
    main = metric_name(judgment.judge, labeled=judgment.labeled)
    found = []
    if not judgment.labeled:
        found.append(f"{name} ({judgment.model}): unvalidated, no speaker has labeled these responses")
    if not judgment.reviewed:
        found.append(f"{name}: the rubric {judgment.name} is not reviewed by a speaker")
    n_unparsed = sum(values.get(f"judge_{judgment.judge}_unparsed", 0) > 0 for values in by_item.values())
    if n_unparsed:
        found.append(f"{name}: no verdict found on {n_unparsed} of {n_requested} items, which have no value")
    if n_failed := n_requested - n_unparsed - sum(main in values for values in by_item.values()):
        found.append(f"{name}: no output on {n_failed} of {n_requested} items, which have no value")
    for reason, count in Counter(skipped.values()).items():
        found.append(f"{name}: {format_count(count, 'item')} not judged: {reason}")
    for row in rows:
        is_bias = row["metric"] == f"judge_{judgment.judge}_first" and not row["category"] and row["ci_low"] is not None
        if is_bias and not row["ci_low"] <= 0.5 <= row["ci_high"]:
            side = "first" if row["value"] > 0.5 else "second"
            share = percent(max(row["value"], 1 - row["value"]), 0)
            text = f"prefers the response that is shown {side} ({share}); the value is the mean of both orders"
            found.append(f"{name}: position bias: {text}")
    return found
