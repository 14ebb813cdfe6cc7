"""All comparisons of several models: pairs, rankings per metric, and aggregates over tasks.

Each evaluation is aligned once and all its pairs are compared on the same resamples; evaluations are independent and
processed in parallel. A column is one headline metric of one evaluation. Its models are ranked by paired tests on the
items that both models have. Holm's correction is over the tests of the column: over those against the best model for
`in_best_group`, and over all pairs for `rank`. Earlier checkpoints of a series are tested against the best model only,
and have no rank: the number of tests grows with the number of checkpoints, not with the square of it, and does not
weaken those of other models.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

from vernacular.comparison.align import Items, Side, align
from vernacular.comparison.over_prompts import comparison_rows as mean_rows
from vernacular.comparison.over_prompts import group_rows, prompt_groups, replaced
from vernacular.comparison.overall import overall, with_normalized_values
from vernacular.comparison.pairwise import RESAMPLES, Pair, compare_sides
from vernacular.core.tables import finite_or_none
from vernacular.metrics.classification import GOLD, with_classes
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import metrics_in
from vernacular.statistics.paired import ALPHA, competition_ranks, holm, significantly_better
from vernacular.types import OPTIONS_ONLY, SETTING


@dataclass(frozen=True)
class ComparisonResults:
    comparisons: list[dict]  # rows per COMPARISONS
    rankings: list[dict]  # rows per RANKINGS
    overall: list[dict]  # rows per OVERALL
    prompts: list[dict]  # rows per PROMPTS


def compare_all(
    pairs: list[Pair],
    results: Mapping[str, Mapping[str, pa.Table]],
    evaluations: Mapping[str, dict],
    *,
    signatures: Mapping[str, Mapping[tuple[str, str], str]] | None = None,
    tool_metrics: Mapping[str, list[Metric]] | None = None,
    unranked: Iterable[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
    threads: int = 1,
) -> ComparisonResults:
    """Compare pairs of models on every evaluation that both have, rank all models, and aggregate over tasks.

    Args:
        results: model -> evaluation -> TASK_RESULTS; a table without rows is an evaluation that was not possible
        evaluations: evaluation -> task, language, protocol, shots, seed, style
        signatures: model -> (evaluation, metric) -> signature, as in the model's METRICS; differences are noted
        tool_metrics: evaluation -> its metrics that not the protocol defines, but another tool, or a judge
        unranked: models that are tested against the best of each column only: earlier checkpoints of a series
    """
    unranked, drawn = set(unranked), {"seed": seed, "resamples": resamples}
    grouped = {name for group in prompt_groups(evaluations) for name in group.evaluations}

    def compare_evaluation(evaluation: str):
        aligned = _aligned(evaluation, evaluations[evaluation], results, tool_metrics)
        metadata, metrics, items, sides = aligned
        comparison_rows = _compare_pairs(pairs, aligned, **drawn)
        compared = {"comparisons": comparison_rows, "unranked": unranked}
        ranking_rows = rankings(items, sides, metrics, metadata, **compared, **drawn)
        if evaluation not in grouped:  # of a whole run, all values of all models do not fit in memory
            sides = {model: with_normalized_values(side, metrics) for model, side in sides.items()}
        return comparison_rows, ranking_rows, (metadata, metrics, items, sides)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        results_by_evaluation = list(pool.map(compare_evaluation, evaluations))
    by_name = {metadata["evaluation"]: content for *_, (metadata, *content) in results_by_evaluation}
    prompts, group_rankings, first_runs = _compare_groups(evaluations, by_name)
    means = mean_rows(prompts, pairs)
    singles = [row for comparison_rows, _, _ in results_by_evaluation for row in comparison_rows]
    rows = add_significance([*singles, *means], replaced(means, prompts))
    for row in rows:
        _add_signature(row, signatures or {}, first_runs.get(row["evaluation"], row["evaluation"]))
    return ComparisonResults(
        rows,
        [row for _, ranking_rows, _ in results_by_evaluation for row in ranking_rows] + group_rankings,
        overall([each for *_, each in results_by_evaluation if not each[0]["style"].endswith(OPTIONS_ONLY)], seed=seed),
        prompts,
    )


def compare_pairs(
    pairs: list[Pair],
    results: Mapping[str, Mapping[str, pa.Table]],
    evaluations: Mapping[str, dict],
    *,
    signatures: Mapping[str, Mapping[tuple[str, str], str]] | None = None,
    tool_metrics: Mapping[str, list[Metric]] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    threads: int = 1,
) -> list[dict]:
    """Return rows per COMPARISONS of pairs that are not ranked: with external results. Arguments: see `compare_all`."""
    own = {side: results[side] for pair in pairs for side in pair}

    def compare_evaluation(evaluation: str) -> list[dict]:
        aligned = _aligned(evaluation, evaluations[evaluation], own, tool_metrics)
        return _compare_pairs(pairs, aligned, seed=seed, resamples=resamples)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        rows = add_significance([row for found in pool.map(compare_evaluation, evaluations) for row in found])
    for row in rows:
        _add_signature(row, signatures or {}, row["evaluation"])
    return rows


def _aligned(evaluation: str, spec: dict, results: Mapping, tool_metrics: Mapping | None) -> tuple:
    """Return (columns of the evaluation, its metrics, items, sides by model), from all results that have it."""
    metrics = [*metrics_in(spec["protocol"], spec["language"]), *(tool_metrics or {}).get(evaluation, [])]
    names = {name for metric in with_classes(metrics, [GOLD]) for name in metric.inputs}
    tables = ((model, tables[evaluation]) for model, tables in results.items() if evaluation in tables)
    items, sides = align(tables, names)
    metrics = with_classes(metrics, {name for side in sides.values() for name in side.values})
    return {"evaluation": evaluation} | {name: spec[name] for name in SETTING}, metrics, items, sides


def _compare_pairs(pairs: list[Pair], aligned: tuple, **drawn) -> list[dict]:
    metadata, metrics, items, sides = aligned
    available_pairs = [pair for pair in pairs if pair[0] in sides and pair[1] in sides]
    return compare_sides(items, sides, available_pairs, metrics, metadata, **drawn)


def _compare_groups(evaluations: Mapping, by_name: Mapping) -> tuple[list, list, dict]:
    """Return (PROMPTS rows, RANKINGS rows, a run of each group by its ID) of evaluations with several prompts."""
    prompt_rows, ranking_rows, first_runs = [], [], {}
    for group in prompt_groups(evaluations):
        aligned = {run: by_name[run][1:] for run in group.evaluations}
        metrics = by_name[group.evaluations[0]][0]
        models = sorted({model for _, sides in aligned.values() for model in sides})
        rows = group_rows(group, aligned, metrics, models)
        first_runs[group.setting["evaluation"]] = group.evaluations[0]
        for metric in metrics:
            metric_rows = [row for row in rows if row["metric"] == metric.name and row["value"] is not None]
            values = {row["model"]: row["value"] for row in metric_rows if row["baseline"] is None}
            if metric.headline and metric.higher_is_better is not None and len(values) >= 2:
                pairs = [
                    {**row, "candidate": row["model"], "difference": row["value"]}
                    for row in metric_rows
                    if row["baseline"] is not None
                ]
                ranking_rows += [group.setting | row for row in rank_by_metric(metric, values, pairs)]
        prompt_rows += rows
    return prompt_rows, ranking_rows, first_runs


def _add_signature(row: dict, signatures: Mapping, evaluation: str) -> None:
    """Set the signature that the sides share, or the only one (external results have none); note a difference."""
    key = (evaluation, row["metric"])
    baseline, candidate = (signatures.get(row[side], {}).get(key) for side in ("baseline", "candidate"))
    row["signature"] = baseline or candidate
    if baseline and candidate and baseline != candidate:
        note = f"different signatures: {baseline} and {candidate}"
        row |= {"signature": None, "note": "; ".join(filter(None, (row["note"], note)))}


def correct_by_pair(rows: list[dict], is_in_family: Callable[[dict], bool] = lambda row: True) -> None:
    """Add `p_holm` and `n_tests` to the rows; a family are the tests of a pair over all items, if a condition holds."""
    families: dict[tuple, list[dict]] = {}
    for row in rows:
        row |= {"p_holm": None, "n_tests": None}
        if not row["category"] and row["p_value"] is not None and is_in_family(row):
            families.setdefault((row["baseline"], row["candidate"]), []).append(row)
    for family in families.values():
        for row, adjusted in zip(family, holm([row["p_value"] for row in family]), strict=True):
            row |= {"p_holm": float(adjusted), "n_tests": len(family)}


_SINGLE = ("baseline", "candidate", "evaluation", "metric")


def add_significance(rows: list[dict], outside: Iterable[tuple] = ()) -> list[dict]:
    """Add `n_tests`, `p_holm`, `significant` and `better` to the rows; without a p-value, nothing is significant.

    `outside`: (baseline, candidate, evaluation, metric) of rows that are not in a family, as single prompts of a mean.
    """
    correct_by_pair(rows, lambda row: row["headline"] and tuple(row.get(name) for name in _SINGLE) not in outside)
    for row in rows:
        p = row["p_value"] if row["n_tests"] is None else row["p_holm"]
        row |= {"significant": p is not None and p < ALPHA, "better": None}
        if row["significant"] and row["higher_is_better"] is not None and row["difference"]:
            row["better"] = "candidate" if (row["difference"] > 0) == row["higher_is_better"] else "baseline"
    return rows


def rankings(
    items: Items,
    sides: dict[str, Side],
    metrics: list[Metric],
    metadata: dict,
    *,
    comparisons: Sequence[dict] = (),
    unranked: Collection[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[dict]:
    """Return RANKINGS rows of one evaluation; none for metrics with values of fewer than two models.

    Models in `unranked` are tested against the best model only, and have no rank.

    `comparisons` holds rows of `compare_sides` for this evaluation, whose pairs are not tested again. The best model is
    determined by each model's own value. A model without items in common with it counts as not significantly different.
    """
    headline_metrics = [metric for metric in metrics if metric.headline and metric.higher_is_better is not None]
    values_by_metric = {
        metric.name: {m: value for m in sorted(sides) if (value := _model_value(sides[m], metric)) is not None}
        for metric in headline_metrics
    }
    best = {_best(metric, values) for metric in headline_metrics if (values := values_by_metric[metric.name])}
    compared_pairs = {frozenset((row["baseline"], row["candidate"])) for row in comparisons}
    pairs = [
        pair
        for pair in combinations(sorted(sides), 2)
        if frozenset(pair) not in compared_pairs and (best & {*pair} or not {*pair} & {*unranked})
    ]
    new_comparisons = compare_sides(
        items, sides, pairs, headline_metrics, metadata, seed=seed, resamples=resamples, categories=False
    )
    all_comparisons = [row for row in [*comparisons, *new_comparisons] if not row["category"]]
    rows = []
    for metric in headline_metrics:
        values = values_by_metric[metric.name]
        if len(values) >= 2:
            metric_rows = [row for row in all_comparisons if row["metric"] == metric.name]
            rows += rank_by_metric(metric, values, metric_rows, unranked)
    return [metadata | row for row in rows]


def _best(metric: Metric, values: dict[str, float]) -> str:
    return max(values, key=lambda model: (1 if metric.higher_is_better else -1) * values[model])


def _model_value(side: Side, metric: Metric) -> float | None:
    mask = side.value_mask(metric)
    if not mask.any():
        return None
    return finite_or_none(metric.value([array[mask] for array in side.inputs(metric)]))


def rank_by_metric(
    metric: Metric, values: dict[str, float], comparisons: list[dict], unranked: Collection[str] = ()
) -> list[dict]:
    """Return a RANKINGS row, without the columns of the evaluation, per model that has a value.

    `comparisons`: COMPARISONS rows of pairs of these models, of this metric. `unranked`: models without a rank.
    """
    models, best = list(values), _best(metric, values)
    differences: dict[tuple[str, str], tuple[float, float]] = {}  # (model, other): difference model - other, p
    for row in comparisons:
        difference, p = (float("nan") if row[name] is None else row[name] for name in ("difference", "p_value"))
        differences[row["candidate"], row["baseline"]] = difference, p
        differences[row["baseline"], row["candidate"]] = -difference, p
    unknown = (float("nan"), float("nan"))
    vs_best = [differences.get((model, best), unknown) for model in models]
    adjusted_p = holm([p for _, p in vs_best])
    ranked = [model for model in models if model not in unranked]
    ranks = dict(zip(ranked, _rank_models(ranked, differences, 1 if metric.higher_is_better else -1), strict=True))
    return [
        {
            "model": model,
            "metric": metric.name,
            "best": best,
            "difference": 0.0 if model == best else finite_or_none(difference),
            "p_value": finite_or_none(p),  # null for the best model itself
            "p_holm": finite_or_none(p_holm),
            "in_best_group": bool(not p_holm < ALPHA),
            "rank": None if model in unranked else int(ranks[model]),
        }
        for model, (difference, p), p_holm in zip(models, vs_best, adjusted_p, strict=True)
    ]


def _rank_models(models: list[str], differences: dict, direction: int) -> np.ndarray:
    pairs = [(i, j) for i in range(len(models)) for j in range(i)]
    tests = [differences.get((models[i], models[j]), (float("nan"), float("nan"))) for i, j in pairs]
    signed = [direction * difference for difference, _ in tests]
    return competition_ranks(significantly_better(len(models), pairs, signed, [p for _, p in tests]))
