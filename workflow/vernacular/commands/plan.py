"""Command `plan`: what numbers of items and prompts can show, before a run or from an earlier one."""

import math
from pathlib import Path

from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import UserError, check_at_least, check_known, format_count
from vernacular.statistics.over_prompts import Components, accuracy_components, clusters_needed, design_table


def plan(args) -> str:
    """Print standard errors and smallest differences of designs; in points for shares, else in the metric's unit.

    Raises:
        UserError: An option is not valid, or the run has no means over prompts, or none of the evaluation and metric.
        ArtifactError: The table of prompts does not exist or is damaged.
    """
    check_at_least(1, items=min(args.items), items_per_cluster=args.items_per_cluster)
    check_at_least(0, sd_prompts=args.sd_prompts)
    if args.results:
        of_value, of_difference, per_cluster, scale = _from_run(args)
    else:
        of_value, of_difference = accuracy_components(args.sd_prompts / 100, args.items_per_cluster)
        per_cluster, scale = args.items_per_cluster, 100
        print(
            f"assumed: accuracy 0.55, {per_cluster:g} item(s) per cluster, prompts (with their seeds) that differ by\n"
            f"a standard deviation of {args.sd_prompts:g} points and agree on 78 % of the items, models that agree on\n"
            "68 %. With --results, components of an earlier run are used."
        )
    counts = [max(2, round(items / per_cluster)) for items in args.items]
    designs = design_table(of_value, of_difference, counts)
    prompts = list(dict.fromkeys(design.prompts for design in designs))
    unit = "points" if scale == 100 else "the unit of the metric"
    _print(f"standard error of a mean, in {unit}", args.items, prompts, [scale * design.se for design in designs])
    title = f"smallest paired difference found with a power of 0.8, in {unit}\n"
    title += "(1 and 2 prompts: a difference with these prompts, not with prompts like them)"
    _print(title, args.items, prompts, [scale * design.smallest_difference for design in designs])
    if args.se is not None:
        _print_needed(of_value, prompts, args.se, scale, per_cluster)
    return f"plan: {format_count(len(designs), 'design')}"


def _from_run(args) -> tuple[Components, Components | None, float, float]:
    """Return the components of a value and of a difference, the items per cluster, and the scale of the unit."""
    path = Path(args.results) / "summary" / "prompts.parquet"
    rows = [row for row in artifacts.read(path, PROMPTS).to_pylist() if row["variance_items"] is not None]
    if not rows:
        raise UserError(f"{path}: no means over prompts; run an evaluation with prompts: all first.")
    names = list(dict.fromkeys(row["evaluation"] for row in rows))
    evaluation = args.evaluation or names[0]
    check_known("evaluation", evaluation, names, f"{path}: ")
    selected = [row for row in rows if row["evaluation"] == evaluation]
    headline = [row for row in selected if row["headline"]] or selected
    metric = args.metric or headline[0]["metric"]
    check_known("metric", metric, {row["metric"] for row in selected}, f"{path}: {evaluation}: ")
    selected = [row for row in selected if row["metric"] == metric]
    values = [row for row in selected if row["baseline"] is None]
    differences = [row for row in selected if row["baseline"] is not None]
    first = values[0]
    print(f"components of {evaluation}, {metric}: means over {format_count(len(values), 'model')}")
    of_difference = mean_components(differences) if differences else None
    scale = 100 if first["unit"] == "share" else 1
    return mean_components(values), of_difference, first["n"] / first["n_clusters"], scale


def mean_components(rows: list[dict]) -> Components:
    """Return the means of the components of PROMPTS rows: one estimate from few prompts is rough."""
    names = {(0,): "variance_items", (1,): "variance_prompts", (0, 1): "variance_items_prompts"}
    variances = {effect: sum(row[name] for row in rows) / len(rows) for effect, name in names.items()}
    return Components((rows[0]["n_clusters"], rows[0]["n_prompts"]), variances)


def _print_needed(of_value: Components, prompts: list[int], se: float, scale: float, per_cluster: float) -> None:
    """Print the number of items that gives a standard error, for each number of prompts."""
    if not se > 0:
        raise UserError(f"--se: expected a number above 0, got {se:g}.")
    print(f"\nitems for a standard error of {se:g}")
    for count in prompts:
        clusters = clusters_needed(of_value, count, se / scale)
        needed = f"{math.ceil(clusters * per_cluster):,}" if math.isfinite(clusters) else "no number is enough"
        print(f"{f'{count} prompts' if count > 1 else '1 prompt':>11}  {needed}")


def _print(title: str, items: list[int], prompts: list[int], values: list[float]) -> None:
    """Print one table, items down and prompts across."""
    print(f"\n{title}")
    print(f"{'items':>8}  " + "".join(f"{f'{count} prompts' if count > 1 else '1 prompt':>11}" for count in prompts))
    for row, count in enumerate(items):
        numbers = values[row * len(prompts) : (row + 1) * len(prompts)]
        print(f"{count:>8}  " + "".join(f"{'-' if math.isnan(number) else f'{number:.2f}':>11}" for number in numbers))
