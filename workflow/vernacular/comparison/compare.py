"""All comparisons of several models: pairs, rankings per metric, and aggregates over tasks.

Each evaluation is aligned once and all its pairs are compared on the same resamples; evaluations are independent and
processed in parallel. A column is one headline metric of one evaluation. Its models are ranked by paired tests
(`rankings.py`).
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from vernacular.comparison.align import align
from vernacular.comparison.over_prompts import group_rows
from vernacular.comparison.overall import overall, with_normalized_values
from vernacular.comparison.pairwise import RESAMPLES, Pair, compare_sides
from vernacular.comparison.prompt_groups import prompt_groups
from vernacular.comparison.prompt_means import comparison_rows as mean_rows
from vernacular.comparison.prompt_means import replaced
from vernacular.comparison.rankings import rank_by_metric, rankings
from vernacular.metrics.metric import Metric
from vernacular.protocols.evaluate import PROTOCOL_METRICS
from vernacular.statistics.paired import ALPHA, holm
from vernacular.types import SETTING


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
    external_names: Iterable[str] = (),
    unranked: Iterable[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
    threads: int = 1,
) -> ComparisonResults:
    """Compare pairs of models on every evaluation that both have.

    Args:
        results: model -> evaluation -> TASK_RESULTS; a table without rows is an evaluation that was not possible
        evaluations: evaluation -> task, language, protocol, shots, seed, style
        signatures: model -> (evaluation, metric) -> signature, as in the model's METRICS; differences are noted
        tool_metrics: evaluation -> its metrics, where not the protocol but another tool defines them
        external_names: names in `results` of external results, which are compared in pairs but not ranked
        unranked: models that are tested against the best of each column only: earlier checkpoints of a series
    """
    external_names, unranked = set(external_names), set(unranked)
    grouped = {name for group in prompt_groups(evaluations) for name in group.evaluations}

    def compare_evaluation(evaluation: str):
        spec = evaluations[evaluation]
        own_metrics = PROTOCOL_METRICS.get(spec["protocol"])
        metrics = own_metrics.METRICS if own_metrics else (tool_metrics or {}).get(evaluation, [])
        metadata = {"evaluation": evaluation} | {name: spec[name] for name in SETTING}
        names = {name for metric in metrics for name in metric.inputs}
        tables = ((model, tables[evaluation]) for model, tables in results.items() if evaluation in tables)
        items, sides = align(tables, names)
        available_pairs = [pair for pair in pairs if pair[0] in sides and pair[1] in sides]
        comparison_rows = compare_sides(
            items, sides, available_pairs, metrics, metadata, seed=seed, resamples=resamples
        )
        ranked_sides = {model: side for model, side in sides.items() if model not in external_names}
        ranking_rows = rankings(
            items, ranked_sides, metrics, metadata, comparisons=comparison_rows, unranked=unranked, seed=seed,
            resamples=resamples,
        )  # fmt: skip
        if evaluation not in grouped:  # of a whole run, all values of all models do not fit in memory
            ranked_sides = {model: with_normalized_values(side, metrics) for model, side in ranked_sides.items()}
        return comparison_rows, ranking_rows, (metadata, metrics, items, ranked_sides)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        results_by_evaluation = list(pool.map(compare_evaluation, evaluations))
    by_name = {metadata["evaluation"]: content for *_, (metadata, *content) in results_by_evaluation}
    prompts, group_rankings, first_runs = _compare_groups(evaluations, by_name, external_names)
    means = mean_rows(prompts, pairs)
    singles = [row for comparison_rows, _, _ in results_by_evaluation for row in comparison_rows]
    rows = add_significance([*singles, *means], replaced(means, prompts))
    for row in rows:
        _add_signature(row, signatures or {}, first_runs.get(row["evaluation"], row["evaluation"]))
    return ComparisonResults(
        rows,
        [row for _, ranking_rows, _ in results_by_evaluation for row in ranking_rows] + group_rankings,
        overall([evaluation for *_, evaluation in results_by_evaluation], seed=seed),
        prompts,
    )


def _compare_groups(evaluations: Mapping, by_name: Mapping, external_names: set) -> tuple[list, list, dict]:
    """Return (PROMPTS rows, RANKINGS rows, a run of each group by its ID) of evaluations with several prompts."""
    prompt_rows, ranking_rows, first_runs = [], [], {}
    for group in prompt_groups(evaluations):
        aligned = {run: by_name[run][1:] for run in group.evaluations}
        metrics = by_name[group.evaluations[0]][0]
        models = sorted({model for _, sides in aligned.values() for model in sides} - external_names)
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
        row["signature"] = None
        note = f"different signatures: {baseline} and {candidate}"
        row["note"] = "; ".join(part for part in (row["note"], note) if part)


def add_significance(rows: list[dict], outside: Iterable[tuple] = ()) -> list[dict]:
    """Add `n_tests`, `p_holm`, `significant` and `better` to the rows; without a p-value, nothing is significant.

    `outside`: (baseline, candidate, evaluation, metric) of rows that are not in a family, as single prompts of a mean.
    """
    families: dict[tuple, list[dict]] = {}
    for row in rows:
        row |= {"p_holm": None, "n_tests": None}
        key = (row["baseline"], row["candidate"], row.get("evaluation"), row.get("metric"))
        if row["headline"] and not row["category"] and row["p_value"] is not None and key not in outside:
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
