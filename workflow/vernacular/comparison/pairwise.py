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
from vernacular.core.errors import format_count
from vernacular.core.tables import finite_or_none
from vernacular.metrics.metric import Metric
from vernacular.statistics import paired
from vernacular.statistics.intervals import cluster_codes, resample_statistic

RESAMPLES = 10_000
# a corpus statistic is recomputed in each resample, and the resamples only serve to estimate a standard error
CORPUS_RESAMPLES = 1_000  # headline metrics: standard error accurate to about 2 %
SECONDARY_RESAMPLES = 250  # other metrics: to about 4 %
MIN_RESAMPLES = 1_000
MAX_DRAWS = 50_000_000  # items drawn in total: beyond 5,000 items, intervals are stable with fewer resamples
_CELLS = 8_000_000  # differences of items computed together (64 MB)
MCNEMAR = "exact McNemar, mid-p"
SIGN_FLIP_CLUSTERED = "exact sign-flip by cluster, mid-p"
PERMUTATION = "sign-flip permutation"
PERMUTATION_CLUSTERED = "sign-flip permutation by cluster"
BOOTSTRAP = "paired bootstrap, t of the difference over its standard error"
Pair = tuple[str, str]  # baseline, candidate


def compare_sides(
    items: Items,
    sides: dict[str, Side],
    pairs: Iterable[Pair],
    metrics: list[Metric],
    metadata: dict,
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
        subsets = {"": shared}
        if categories:
            labels = sorted({label for label in items.categories[shared] if label})
            subsets |= {name: shared & (items.categories == name) for name in labels}
        for category, mask in subsets.items():
            subset_metrics = [m for m in metrics if not m.of_dataset and (m.headline or not category)]
            rows += _compare_subset(items, sides, group, subset_metrics, mask, category, seed, resamples)
    return [row | metadata for row in rows]


def _by_shared_items(sides: dict[str, Side], pairs: Iterable[Pair]) -> list[tuple[np.ndarray, list[Pair]]]:
    """Group pairs by the items that both sides have with the same texts; usually one group."""
    groups: dict[bytes, tuple[np.ndarray, list[Pair]]] = {}
    for baseline, candidate in pairs:
        baseline_side, candidate_side = sides[baseline], sides[candidate]
        shared = baseline_side.present & candidate_side.present & (baseline_side.text_id == candidate_side.text_id)
        groups.setdefault(shared.tobytes(), (shared, []))[1].append((baseline, candidate))
    return list(groups.values())


def _compare_subset(
    items, sides, pairs: list[Pair], metrics, mask: np.ndarray, category: str, seed, resamples
) -> list[dict]:
    """Return the rows of the given pairs over the items selected by the (N,) `mask`."""
    indices = np.flatnonzero(mask)
    codes = cluster_codes(items.clusters[indices], len(indices))
    rows: dict[tuple[Pair, str], dict] = {}
    for pair in pairs:
        shared_metrics = [m for m in metrics if all(sides[model].value_mask(m)[indices].any() for model in pair)]
        for metric in shared_metrics or [metric for metric in metrics if metric.headline]:
            rows[pair, metric.name] = _count_row(items, sides, pair, metric, indices, category)
    by_name = {metric.name: metric for metric in metrics}
    means = [(pair, by_name[name]) for pair, name in rows if not by_name[name].corpus]
    n_resamples = _limit_resamples(resamples, len(indices))
    step = max(1, _CELLS // max(1, len(indices)))  # pairs and metrics at a time, as many as fit in memory
    for start in range(0, len(means) if len(indices) else 0, step):
        _add_means(rows, means[start : start + step], sides, indices, codes, seed, n_resamples)
    draws_cache: dict[tuple, np.ndarray] = {}
    for (pair, name), row in rows.items():
        if by_name[name].corpus and row["n"]:
            _add_corpus(row, pair, by_name[name], sides, indices, codes, seed, resamples, draws_cache)
    return list(rows.values())


def _limit_resamples(resamples: int, n: int) -> int:
    return max(min(resamples, MIN_RESAMPLES), min(resamples, MAX_DRAWS // max(1, n)))


def _count_row(items: Items, sides, pair: Pair, metric: Metric, indices: np.ndarray, category: str) -> dict:
    """Return a row with its counts; values are filled in later."""
    baseline, candidate = (sides[model] for model in pair)
    in_category = items.categories == category if category else np.ones(len(items.ids), dtype=bool)
    masks = [side.value_mask(metric) & in_category for side in (baseline, candidate)]
    shared = indices[masks[0][indices] & masks[1][indices]]
    row = dict.fromkeys(COMPARISONS.schema.names) | {
        "baseline": pair[0],
        "candidate": pair[1],
        "category": category,
        "metric": metric.name,
        "unit": metric.unit,
        "higher_is_better": metric.higher_is_better,
        "headline": metric.headline,
        "n": len(shared),
        "n_baseline": int(masks[0].sum()),
        "n_candidate": int(masks[1].sum()),
        "note": _note(baseline, candidate, masks),
    }
    values = [side.value(metric.name)[shared] for side in (baseline, candidate)]
    if metric.proportion and paired.is_binary(*values):
        before, after = (side == 1 for side in values)
        counts = {
            "both_correct": before & after,
            "both_incorrect": ~before & ~after,
            "baseline_only_correct": before & ~after,
            "candidate_only_correct": after & ~before,
        }
        row |= {name: int(mask.sum()) for name, mask in counts.items()}
        noisy = np.maximum(*(np.nan_to_num(side.value("within_noise")[shared]) for side in (baseline, candidate)))
        n_noisy = int(noisy[before != after].sum()) if metric.headline else 0
        if n_noisy and n_noisy >= abs(int(after.sum() - before.sum())):
            text = f"float noise can decide it: {format_count(n_noisy, 'item')} that one side alone answers within it"
            row["note"] = "; ".join(filter(None, (row["note"], text)))
        row["net_gain"] = row["candidate_only_correct"] - row["baseline_only_correct"]
    return row


def _note(baseline: Side, candidate: Side, masks: list[np.ndarray]) -> str | None:
    """Return a note on the items that are not compared, or None."""
    parts = []
    differing = masks[0] & masks[1] & (baseline.text_id != candidate.text_id)
    if count := int(differing.sum()):
        parts.append(f"{format_count(count, 'item')} excluded: different prompt, options or correct answer")
    for name, mask, other_mask in (("baseline", *masks), ("candidate", *masks[::-1])):
        if count := int((mask & ~other_mask).sum()):
            parts.append(f"{format_count(count, 'item')} with a value for the {name} only")
    return "; ".join(parts) or None


def _add_means(rows, means: list[tuple[Pair, Metric]], sides, indices, codes, seed: int, resamples: int) -> None:
    """Add means and their differences to `rows`."""
    differences = np.empty((len(indices), len(means)))
    binary = np.empty(len(means), dtype=bool)  # means of several samples are none
    for column, (pair, metric) in enumerate(means):
        baseline, candidate = (sides[model].value(metric.name)[indices] for model in pair)
        differences[:, column] = _difference(baseline, candidate)
        binary[column] = metric.proportion and paired.is_binary(baseline, candidate)
    result = paired.mean_differences(differences, codes, binary, resamples=resamples, seed=seed)
    for column, (pair, metric) in enumerate(means):
        row = rows[pair, metric.name]
        baseline, candidate = (sides[model].value(metric.name)[indices] for model in pair)  # of all pairs: too large
        shared = ~np.isnan(baseline) & ~np.isnan(candidate)
        if not shared.any():
            continue
        shared_codes = codes[shared]
        unclustered = len(np.unique(shared_codes)) == len(shared_codes)
        n_clusters = int(result.n_clusters[column])
        tests = (MCNEMAR, SIGN_FLIP_CLUSTERED) if binary[column] else (PERMUTATION, PERMUTATION_CLUSTERED)
        row["test"] = tests[0] if unclustered else tests[1]
        found = (each[column] for each in (result.value, result.low, result.high, result.p, result.se))
        means_of_sides = [side[shared].mean() for side in (baseline, candidate)]
        _add_numbers(row, means_of_sides, *found, n_clusters, is_undefined=n_clusters == 0)


def _add_numbers(
    row: dict, values: list[float], difference, low, high, p, se, n_clusters: int, *, is_undefined: bool
) -> None:
    """Add the values of both sides and their difference, and to the note why there is no interval."""
    smallest = paired.minimum_detectable_difference(se, n_clusters - 1)
    names = ("baseline_value", "candidate_value", "difference", "ci_low", "ci_high", "p_value")
    numbers = zip(names, (*values, difference, low, high, p), strict=True)
    row |= {name: finite_or_none(number) for name, number in numbers}
    row["minimum_detectable_difference"] = finite_or_none(smallest)
    reason = None
    if is_undefined:
        reason = (
            "infinite value of an item, or undefined in more than a fifth of the resamples: no interval and no test"
        )
    elif n_clusters < 2:
        reason = "one cluster of items: no interval and no test"
    elif not se > 0:
        differs = "all items differ by the same amount" if row["difference"] else "no item differs"
        reason = f"{differs}: no interval"
    row["note"] = "; ".join(filter(None, (row["note"], reason))) or None


def _difference(baseline: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return (n,) candidate - baseline, NaN if a side is missing; all NaN if a value is infinite."""
    difference = paired.item_differences(candidate, baseline)
    infinite = np.isinf(baseline) & ~np.isnan(candidate) | np.isinf(candidate) & ~np.isnan(baseline)
    return np.full(len(baseline), np.nan) if infinite.any() else difference


def _add_corpus(
    row, pair: Pair, metric: Metric, sides, indices, codes, seed: int, resamples: int, draws_cache: dict
) -> None:
    """Add a corpus statistic to `row`; `draws_cache` holds each model's resamples for other pairs on the same items."""
    shared = sides[pair[0]].value_mask(metric)[indices] & sides[pair[1]].value_mask(metric)[indices]
    shared_indices = indices[shared]
    shared_codes = np.unique(codes[shared], return_inverse=True)[1]
    n_clusters = int(shared_codes.max()) + 1
    n_resamples = min(resamples, CORPUS_RESAMPLES if metric.headline else SECONDARY_RESAMPLES)
    values, draws = [], []
    for model in pair:
        arrays = [array[shared_indices] for array in sides[model].inputs(metric)]
        key = (model, metric.name, shared.tobytes())
        if key not in draws_cache:
            rng = np.random.default_rng(seed)  # the same resamples for each side
            draws_cache[key] = resample_statistic(metric.corpus, arrays, shared_codes, n_clusters, n_resamples, rng)
        values.append(float(metric.corpus(*arrays)))
        draws.append(draws_cache[key])
    with np.errstate(invalid="ignore"):  # inf - inf
        difference, difference_draws = values[1] - values[0], draws[1] - draws[0]
    low, high, p, se = paired.corpus_difference(difference, difference_draws, n_clusters)
    row["test"] = BOOTSTRAP
    is_undefined = n_clusters >= 2 and bool(np.isnan(se))
    _add_numbers(row, values, difference, low, high, p, se, n_clusters, is_undefined=is_undefined)
