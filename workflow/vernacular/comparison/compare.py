"""All comparisons of several models: pairs, rankings per metric, and aggregates over tasks.

Each evaluation is aligned once and all its pairs are compared on the same resamples; evaluations are independent and
processed in parallel. Models are ranked by paired tests on the items that both models have (`significance`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

from vernacular.comparison.align import Items, Side, align
from vernacular.comparison.curves.deciding import deciding_among_models
from vernacular.comparison.over_prompts import comparison_rows as mean_rows
from vernacular.comparison.over_prompts import group_rows, prompt_groups, replaced
from vernacular.comparison.overall import overall, with_normalized_values
from vernacular.comparison.pairwise import RESAMPLES, Pair, compare_sides
from vernacular.core.metadata import INFILLING
from vernacular.core.tables import finite_or_none
from vernacular.metrics.classification import GOLD, with_classes
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import metrics_in
from vernacular.statistics.significance import TEST, Column, add_significance, corrected, rank
from vernacular.types import OPTIONS_ONLY, SETTING

_INFILLED = f"|likelihood:{INFILLING}"  # in a signature


@dataclass(frozen=True)
class ComparisonResults:
    comparisons: list[dict]  # rows per COMPARISONS
    rankings: list[dict]  # rows per RANKINGS
    overall: list[dict]  # rows per OVERALL
    prompts: list[dict]  # rows per PROMPTS
    deciding: list[dict]  # rows per DECIDING_METRICS of models, not of series


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
    signed = (signatures or {}).items()
    infilled = {(model, name) for model, own in signed for (name, _), text in own.items() if _INFILLED in str(text)}
    grouped = {name for group in prompt_groups(evaluations) for name in group.evaluations}

    def compare_evaluation(evaluation: str):
        aligned = _aligned(evaluation, evaluations[evaluation], results, tool_metrics)
        metadata, metrics, items, sides = aligned
        comparison_rows = _compare_pairs(pairs, aligned, **drawn)
        compared = {"comparisons": comparison_rows, "unranked": unranked}
        # log-likelihoods and those of words that are filled in have no common order
        groups = [{m: s for m, s in sides.items() if ((m, evaluation) in infilled) == own} for own in (False, True)]
        columns = [each for own in groups for each in columns_of(items, own, metrics, metadata, **compared, **drawn)]
        sides = groups[0] or sides
        ranked = {model: side for model, side in sides.items() if model not in unranked}
        is_test = metadata["style"].endswith(OPTIONS_ONLY)
        deciding = [] if is_test else deciding_among_models(items, ranked, metrics, metadata)
        if evaluation not in grouped:  # of a whole run, all values of all models do not fit in memory
            sides = {model: with_normalized_values(side, metrics) for model, side in sides.items()}
        return comparison_rows, columns, deciding, (metadata, metrics, items, sides)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        results_by_evaluation = list(pool.map(compare_evaluation, evaluations))
    by_name = {metadata["evaluation"]: content for *_, (metadata, *content) in results_by_evaluation}
    prompts, group_columns, first_runs = _compare_groups(evaluations, by_name)
    columns = [column for _, columns, *_ in results_by_evaluation for column in columns] + group_columns
    rows = [row for comparison_rows, *_ in results_by_evaluation for row in comparison_rows] + mean_rows(prompts, pairs)
    found = corrected(rows, columns, replaced(prompts))
    for row in add_significance(rows, found):
        _add_signature(row, signatures or {}, first_runs.get(row["evaluation"], row["evaluation"]))
    return ComparisonResults(
        rows,
        [row for column in columns for row in rank(column, found)],
        overall([each for *_, each in results_by_evaluation if not each[0]["style"].endswith(OPTIONS_ONLY)], seed=seed),
        prompts,
        [row for *_, deciding, _ in results_by_evaluation for row in deciding],
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
    names = {name for metric in with_classes(metrics, [GOLD]) for name in metric.inputs} | {"within_noise"}
    tables = ((model, tables[evaluation]) for model, tables in results.items() if evaluation in tables)
    items, sides = align(tables, names)
    metrics = with_classes(metrics, {name for side in sides.values() for name in side.values})
    return {"evaluation": evaluation} | {name: spec[name] for name in SETTING}, metrics, items, sides


def _compare_pairs(pairs: list[Pair], aligned: tuple, **drawn) -> list[dict]:
    metadata, metrics, items, sides = aligned
    available_pairs = [pair for pair in pairs if pair[0] in sides and pair[1] in sides]
    return compare_sides(items, sides, available_pairs, metrics, metadata, **drawn)


def _compare_groups(evaluations: Mapping, by_name: Mapping) -> tuple[list, list, dict]:
    """Return (PROMPTS rows, columns, a run of each group by its ID) of evaluations with several prompts."""
    prompt_rows, columns, first_runs = [], [], {}
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
                tests = [row | {"candidate": row["model"], "difference": row["value"], "category": ""}
                         for row in metric_rows if row["baseline"] is not None]  # fmt: skip
                columns.append(Column(group.setting, metric.name, metric.higher_is_better, values, tests))
        prompt_rows += rows
    return prompt_rows, columns, first_runs


def _add_signature(row: dict, signatures: Mapping, evaluation: str) -> None:
    """Set the signature that the sides share, or the only one (external results have none); note a difference."""
    key = (evaluation, row["metric"])
    baseline, candidate = (signatures.get(row[side], {}).get(key) for side in ("baseline", "candidate"))
    row["signature"] = baseline or candidate
    if baseline and candidate and baseline != candidate:
        note = f"different signatures: {baseline} and {candidate}"
        row |= {"signature": None, "note": "; ".join(filter(None, (row["note"], note)))}


def columns_of(
    items: Items,
    sides: dict[str, Side],
    metrics: list[Metric],
    metadata: dict,
    *,
    comparisons: Sequence[dict] = (),
    unranked: Collection[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Column]:
    """Return the columns of one evaluation, with the tests of all pairs; none for values of fewer than two models.

    Models in `unranked` are tested against the best model only. `comparisons` holds rows of `compare_sides` for this
    evaluation, whose pairs are not tested again. The best model is determined by each model's own value.
    """
    headline_metrics = [metric for metric in metrics if metric.headline]
    columns = []
    for metric in headline_metrics:
        values = {m: value for m in sorted(sides) if (value := _model_value(sides[m], metric)) is not None}
        if metric.higher_is_better is not None and len(values) >= 2:
            columns.append(Column(metadata, metric.name, metric.higher_is_better, values, [], unranked))
    best = {column.best for column in columns}
    compared_pairs = {frozenset((row["baseline"], row["candidate"])) for row in comparisons}
    pairs = [
        pair
        for pair in combinations(sorted(sides), 2)
        if columns and frozenset(pair) not in compared_pairs and (best & {*pair} or not {*pair} & {*unranked})
    ]
    new_comparisons = compare_sides(
        items, sides, pairs, headline_metrics, metadata, seed=seed, resamples=resamples, categories=False
    )
    for column in columns:  # of many models: no more than the tests need
        column.tests.extend(
            {name: row[name] for name in TEST}
            for row in [*comparisons, *new_comparisons]
            if row["metric"] == column.metric
            and not row["category"]
            and {row["baseline"], row["candidate"]} <= {*sides}
        )
    return columns


def _model_value(side: Side, metric: Metric) -> float | None:
    mask = side.value_mask(metric)
    if not mask.any():
        return None
    return finite_or_none(metric.value([array[mask] for array in side.inputs(metric)]))
