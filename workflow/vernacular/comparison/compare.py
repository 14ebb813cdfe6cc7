"""All comparisons of several models: pairs, rankings per metric, and aggregates over tasks.

Each evaluation is aligned once and all its pairs are compared on the same resamples; evaluations are independent and
processed in parallel. A column is one headline metric of one evaluation. All pairs of its models are tested on the
items that both have, with Holm's correction over the tests of the column: over those against the best model for
`in_best_group`, over all pairs for `rank`.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

from vernacular.comparison.align import Items, Side, align
from vernacular.comparison.overall import overall
from vernacular.comparison.pairwise import RESAMPLES, Pair, compare_sides
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.statistics.paired import ALPHA, holm, places
from vernacular.types import SETTING


def rankings(
    items: Items,
    sides: dict[str, Side],
    metrics: list[Metric],
    facts: dict,
    *,
    compared: Sequence[dict] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[dict]:
    """Return RANKINGS rows of one evaluation; none for metrics with values of fewer than two models.

    `compared` holds rows of `compare_sides` for this evaluation, whose pairs are not tested again. The best model is
    determined by each model's own value. A model without items in common with it counts as not significantly different.
    """
    headline = [metric for metric in metrics if metric.headline and metric.higher_is_better is not None]
    done = {frozenset((row["baseline"], row["candidate"])) for row in compared}
    pairs = [pair for pair in combinations(sorted(sides), 2) if frozenset(pair) not in done]
    rest = compare_sides(items, sides, pairs, headline, facts, seed=seed, resamples=resamples, categories=False)
    tested = [row for row in [*compared, *rest] if not row["category"]]
    rows = []
    for metric in headline:
        own = {model: value for model in sorted(sides) if (value := _value(sides[model], metric)) is not None}
        if len(own) >= 2:
            column = [row for row in tested if row["metric"] == metric.name]
            rows += _column(metric, own, column)
    return [facts | row for row in rows]


def _value(side: Side, metric: Metric) -> float | None:
    known = side.known(metric)
    if not known.any():
        return None
    arrays = [array[known] for array in side.needed(metric)]
    value = float(metric.corpus(*arrays)) if metric.corpus else float(arrays[0].mean())
    return value if np.isfinite(value) else None


def _column(metric: Metric, own: dict[str, float], tested: list[dict]) -> list[dict]:
    models = list(own)
    sign = 1 if metric.higher_is_better else -1
    best = max(models, key=lambda model: sign * own[model])
    against: dict[tuple[str, str], tuple[float, float]] = {}  # (model, other): difference model - other, p
    for row in tested:
        difference, p = (float("nan") if row[name] is None else row[name] for name in ("difference", "p_value"))
        against[row["candidate"], row["baseline"]] = difference, p
        against[row["baseline"], row["candidate"]] = -difference, p
    unknown = (float("nan"), float("nan"))
    to_best = [against.get((model, best), unknown) for model in models]
    corrected = holm([p for _, p in to_best])
    rows = []
    for model, (difference, p), adjusted, place in zip(
        models, to_best, corrected, _places(models, against, sign), strict=True
    ):
        rows.append(
            {
                "model": model,
                "metric": metric.name,
                "best": best,
                "difference": 0.0 if model == best else _known(difference),
                "p_value": _known(p),  # null for the best model itself
                "p_holm": _known(adjusted),
                "in_best_group": bool(not adjusted < ALPHA),
                "rank": int(place),
            }
        )
    return rows


def _places(models: list[str], against: dict, sign: int) -> np.ndarray:
    pairs = [(i, j) for i in range(len(models)) for j in range(i)]
    found = [against.get((models[i], models[j]), (float("nan"), float("nan"))) for i, j in pairs]
    better = np.zeros((len(models), len(models)), dtype=bool)
    for (i, j), (difference, _), p in zip(pairs, found, holm([p for _, p in found]), strict=True):
        if p < ALPHA and difference:
            winner, loser = (i, j) if sign * difference > 0 else (j, i)
            better[winner, loser] = True
    return places(better)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Found:
    comparisons: list[dict]  # rows per COMPARISONS
    rankings: list[dict]  # rows per RANKINGS
    overall: list[dict]  # rows per OVERALL


def compare_all(
    pairs: list[Pair],
    results: Mapping[str, Mapping[str, pa.Table]],
    evaluations: Mapping[str, dict],
    *,
    signatures: Mapping[str, Mapping[tuple[str, str], str]] | None = None,
    outsiders: Iterable[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
    threads: int = 1,
) -> Found:
    """Compare pairs of models on every evaluation that both have.

    Args:
        results: model -> evaluation -> TASK_RESULTS; a table without rows is an evaluation that was not possible
        evaluations: evaluation -> task, language, protocol, shots, seed, style
        signatures: model -> (evaluation, metric) -> signature, as in the model's METRICS; differences are noted
        outsiders: names in `results` of external results, which are compared in pairs but not ranked
    """
    outsiders = set(outsiders)

    def work(evaluation: str):
        what = evaluations[evaluation]
        metrics = PROTOCOL_METRICS[what["protocol"]].METRICS
        facts = {"evaluation": evaluation} | {name: what[name] for name in SETTING}
        items, sides = align({model: tables[evaluation] for model, tables in results.items() if evaluation in tables})
        there = [pair for pair in pairs if pair[0] in sides and pair[1] in sides]
        compared = compare_sides(items, sides, there, metrics, facts, seed=seed, resamples=resamples)
        ranked = {model: side for model, side in sides.items() if model not in outsiders}
        placed = rankings(items, ranked, metrics, facts, compared=compared, seed=seed, resamples=resamples)
        return compared, placed, (facts, metrics, items, ranked)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        found = list(pool.map(work, evaluations))
    rows = with_families([row for compared, _, _ in found for row in compared])
    for row in rows:
        _sign(row, signatures or {})
    return Found(
        rows, [row for _, placed, _ in found for row in placed], overall([each for *_, each in found], seed=seed)
    )


def _sign(row: dict, signatures: Mapping) -> None:
    """Set the signature that the sides share, or the only one (external results have none); note a difference."""
    at = (row["evaluation"], row["metric"])
    one, other = (signatures.get(row[side], {}).get(at) for side in ("baseline", "candidate"))
    row["signature"] = one or other
    if one and other and one != other:
        row["signature"] = None
        note = f"different signatures: {one} and {other}"
        row["note"] = "; ".join(part for part in (row["note"], note) if part)


def with_families(rows: list[dict]) -> list[dict]:
    """Add `n_tests`, `p_holm`, `significant` and `better` to the rows; without a p-value, nothing is significant."""
    families: dict[tuple, list[dict]] = {}
    for row in rows:
        row |= {"p_holm": None, "n_tests": None}
        if row["headline"] and not row["category"] and row["p_value"] is not None:
            families.setdefault((row["baseline"], row["candidate"]), []).append(row)
    for family in families.values():
        for row, adjusted in zip(family, holm([row["p_value"] for row in family]), strict=True):
            row |= {"p_holm": float(adjusted), "n_tests": len(family)}
    for row in rows:
        p = row["p_value"] if row["n_tests"] is None else row["p_holm"]
        row["significant"] = p is not None and p < ALPHA
        row["better"] = _better(row)
    return rows


def _better(row: dict) -> str | None:
    if not row["significant"] or row["higher_is_better"] is None or not row["difference"]:
        return None
    return "candidate" if (row["difference"] > 0) == row["higher_is_better"] else "baseline"
