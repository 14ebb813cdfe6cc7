"""Paired comparison of two models on the same items: differences, intervals and tests, per metric and by category.

The metrics are those that the protocol declares (`protocols.evaluate.PROTOCOL_METRICS[protocol].METRICS`): a comparison
uses the numbers of the results table, over the items that both sides have a value for. Means are resampled for all
pairs of models and all metrics together (`statistics.paired`). A corpus statistic is computed once per model on each of
the same resamples, and subtracted.

An item counts only if both sides have its ID with the same prompt, options and gold; other items are excluded and
counted in the note. By category, only headline metrics are compared.
"""

from collections.abc import Iterable

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.schema import COMPARISONS
from vernacular.core.errors import counted
from vernacular.metrics.metric import Metric
from vernacular.statistics.intervals import cluster_codes, resampled
from vernacular.statistics.paired import corpus_difference, mean_differences, minimum_detectable_difference

RESAMPLES = 10_000
# a corpus statistic is recomputed in each resample, and the resamples only serve to estimate a standard error
CORPUS_RESAMPLES = 1_000  # headline metrics: standard error accurate to about 2 %
OTHER_RESAMPLES = 250  # other metrics: to about 4 %
FEWEST_RESAMPLES = 1_000
DRAWS = 50_000_000  # items drawn in total: beyond 5,000 items, intervals are stable with fewer resamples

MCNEMAR = "exact McNemar, mid-p"
CLUSTERED = "exact sign-flip by cluster, mid-p"
PERMUTED = "sign-flip permutation"
PERMUTED_CLUSTERS = "sign-flip permutation by cluster"
BOOTSTRAP = "paired bootstrap, t of the difference over its standard error"

Pair = tuple[str, str]  # baseline, candidate


def compare_sides(
    items: Items,
    sides: dict[str, Side],
    pairs: Iterable[Pair],
    metrics: list[Metric],
    facts: dict,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    categories: bool = True,
) -> list[dict]:
    """Return COMPARISONS rows of one evaluation for pairs of its sides; family, Holm and signature are not filled in.

    A metric without values on one side gives no row. If that applies to all metrics, the headline metrics are listed
    with n 0.
    """
    rows = []
    for shared, group in _by_shared_items(sides, pairs):
        places = {"": shared}
        if categories:
            named = sorted({label for label in items.categories[shared] if label})
            places |= {name: shared & (items.categories == name) for name in named}
        for category, where in places.items():
            shown = [metric for metric in metrics if metric.headline or not category]
            rows += _part(items, sides, group, shown, where, category, seed, resamples)
    return [row | facts for row in rows]


def _by_shared_items(sides: dict[str, Side], pairs: Iterable[Pair]) -> list[tuple[np.ndarray, list[Pair]]]:
    """Group pairs by the items that both sides have with the same texts; usually one group."""
    groups: dict[bytes, tuple[np.ndarray, list[Pair]]] = {}
    for baseline, candidate in pairs:
        one, other = sides[baseline], sides[candidate]
        shared = one.has & other.has & (one.text == other.text)
        groups.setdefault(shared.tobytes(), (shared, []))[1].append((baseline, candidate))
    return list(groups.values())


def _part(items, sides, pairs: list[Pair], metrics, where: np.ndarray, category: str, seed, resamples) -> list[dict]:
    """Return the rows of the given pairs over the items selected by the (N,) mask `where`."""
    at = np.flatnonzero(where)
    codes = cluster_codes(items.clusters[at], len(at))
    rows: dict[tuple[Pair, str], dict] = {}
    for pair in pairs:
        sides_known = [[sides[model].known(metric)[at].any() for model in pair] for metric in metrics]
        present = [metric for metric, known in zip(metrics, sides_known, strict=True) if all(known)]
        for metric in present or [metric for metric in metrics if metric.headline]:
            rows[pair, metric.name] = _counted(items, sides, pair, metric, at, category)
    by_name = {metric.name: metric for metric in metrics}
    means = [(pair, by_name[name]) for pair, name in rows if not by_name[name].corpus]
    if means and len(at):
        _add_means(rows, means, sides, at, codes, seed, _affordable(resamples, len(at)))
    drawn: dict[tuple, np.ndarray] = {}
    for (pair, name), row in rows.items():
        if by_name[name].corpus and row["n"]:
            _add_corpus(row, pair, by_name[name], sides, at, codes, seed, resamples, drawn)
    return list(rows.values())


def _counted(items: Items, sides, pair: Pair, metric: Metric, at: np.ndarray, category: str) -> dict:
    """Return a row with its counts; values are filled in later."""
    one, other = (sides[model] for model in pair)
    in_category = items.categories == category if category else np.ones(len(items.ids), dtype=bool)
    known = [side.known(metric) & in_category for side in (one, other)]
    both = at[known[0][at] & known[1][at]]
    row = dict.fromkeys(COMPARISONS.schema.names) | {
        "baseline": pair[0],
        "candidate": pair[1],
        "category": category,
        "metric": metric.name,
        "unit": metric.unit,
        "higher_is_better": metric.higher_is_better,
        "headline": metric.headline,
        "n": len(both),
        "n_baseline": int(known[0].sum()),
        "n_candidate": int(known[1].sum()),
        "note": _note(one, other, known),
    }
    if metric.proportion:
        was, now = one.value(metric.name)[both] == 1, other.value(metric.name)[both] == 1
        improved, regressed = int((now & ~was).sum()), int((was & ~now).sum())
        row |= {"both_correct": int((was & now).sum()), "both_incorrect": int((~was & ~now).sum())}
        row |= {
            "baseline_only_correct": regressed,
            "candidate_only_correct": improved,
            "net_gain": improved - regressed,
        }
    return row


def _note(one: Side, other: Side, known: list[np.ndarray]) -> str | None:
    """Return a note on the items that are not compared, or None."""
    parts = []
    differing = known[0] & known[1] & (one.text != other.text)
    if count := int(differing.sum()):
        parts.append(f"{counted(count, 'item')} excluded: different prompt, options or correct answer")
    for name, mine, theirs in (("baseline", *known), ("candidate", *known[::-1])):
        if count := int((mine & ~theirs).sum()):
            parts.append(f"{counted(count, 'item')} with a value for the {name} only")
    return "; ".join(parts) or None


def _add_means(rows, means: list[tuple[Pair, Metric]], sides, at, codes, seed: int, resamples: int) -> None:
    taken = [
        (rows[pair, metric.name], metric, *(sides[model].value(metric.name)[at] for model in pair))
        for pair, metric in means
    ]
    differences = np.column_stack([_difference(was, now) for _, _, was, now in taken])
    right_wrong = np.array([metric.proportion for _, metric in means])
    found = mean_differences(differences, codes, right_wrong, resamples=resamples, seed=seed)
    for column, (row, metric, was, now) in enumerate(taken):
        both = ~np.isnan(was) & ~np.isnan(now)
        if not both.any():
            continue
        mine = codes[both]
        alone = len(np.unique(mine)) == len(mine)
        k = int(found.n_clusters[column])
        tests = (MCNEMAR, CLUSTERED) if metric.proportion else (PERMUTED, PERMUTED_CLUSTERS)
        row |= {
            "baseline_value": _finite(was[both].mean()),
            "candidate_value": _finite(now[both].mean()),
            "difference": _finite(found.value[column]),
            "ci_low": _finite(found.low[column]),
            "ci_high": _finite(found.high[column]),
            "p_value": _finite(found.p[column]),
            "test": tests[0] if alone else tests[1],
            "minimum_detectable_difference": _finite(minimum_detectable_difference(found.se[column], k)),
        }
        _explain(row, k, spread=found.se[column] > 0, undefined=k == 0)


def _difference(was: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return (n,) now - was, NaN if a side is missing; all NaN if one is infinite and would hide the other items."""
    with np.errstate(invalid="ignore"):
        difference = now - was
    infinite = np.isinf(was) & ~np.isnan(now) | np.isinf(now) & ~np.isnan(was)
    return np.full(len(was), np.nan) if infinite.any() else difference


def _add_corpus(row, pair: Pair, metric: Metric, sides, at, codes, seed: int, resamples: int, drawn: dict) -> None:
    """Add a corpus statistic to `row`; `drawn` caches each model's resamples for other pairs on the same items."""
    both = sides[pair[0]].known(metric)[at] & sides[pair[1]].known(metric)[at]
    use = at[both]
    mine = np.unique(codes[both], return_inverse=True)[1]
    k = int(mine.max()) + 1
    times = min(resamples, CORPUS_RESAMPLES if metric.headline else OTHER_RESAMPLES)
    values, draws = [], []
    for model in pair:
        arrays = [array[use] for array in sides[model].needed(metric)]
        key = (model, metric.name, both.tobytes())
        if key not in drawn:
            rng = np.random.default_rng(seed)  # the same resamples for each side
            drawn[key] = resampled(metric.corpus, arrays, mine, k, times, rng, metric.vectorised)
        values.append(float(metric.corpus(*arrays)))
        draws.append(drawn[key])
    with np.errstate(invalid="ignore"):  # inf - inf
        difference, moved = values[1] - values[0], draws[1] - draws[0]
    low, high, p, se = corpus_difference(difference, moved, k)
    row |= {
        "baseline_value": _finite(values[0]),
        "candidate_value": _finite(values[1]),
        "difference": _finite(difference),
        "ci_low": _finite(low),
        "ci_high": _finite(high),
        "p_value": _finite(p),
        "test": BOOTSTRAP,
        "minimum_detectable_difference": _finite(minimum_detectable_difference(se, k)),
    }
    _explain(row, k, spread=se > 0, undefined=k >= 2 and bool(np.isnan(se)))


def _explain(row: dict, k: int, *, spread: bool, undefined: bool) -> None:
    """Append to the note why there is no interval."""
    why = None
    if undefined:
        why = "infinite value of an item, or undefined in a resample: no interval and no test"
    elif k < 2:
        why = "one cluster of items: no interval and no test"
    elif not spread:
        why = (
            "all items differ by the same amount: no interval" if row["difference"] else "no item differs: no interval"
        )
    if why:
        row["note"] = "; ".join(part for part in (row["note"], why) if part)


def _affordable(resamples: int, n: int) -> int:
    return max(min(resamples, FEWEST_RESAMPLES), min(resamples, DRAWS // max(1, n)))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
