"""Each model's place in a column: who is best, who is not told apart from the best, and shared places.

One column is one headline metric of one evaluation. All pairs of its models are tested on the items both have, with
Holm over the tests of the column: over those against the best for `shares_best`, over all pairs for `place`.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.pairwise import RESAMPLES, compare_sides
from vernacular.metrics.metric import Metric
from vernacular.statistics.multiple import holm, places
from vernacular.statistics.paired import ALPHA


def standings(
    items: Items,
    sides: dict[str, Side],
    metrics: list[Metric],
    facts: dict,
    *,
    compared: Sequence[dict] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[dict]:
    """Rows per STANDINGS of one evaluation; nothing where fewer than two models have a value.

    `compared`: rows of `compare_sides` for this evaluation, so that no pair is tested twice. The best is by each
    model's own value. A model that shares no items with it is not told apart from it.
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
                "p_value": _known(p),  # the best has none against itself
                "p_holm": _known(adjusted),
                "shares_best": bool(not adjusted < ALPHA),
                "place": int(place),
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
