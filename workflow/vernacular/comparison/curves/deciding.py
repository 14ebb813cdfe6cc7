"""Which metric of a task decides between runs of this size: signal, noise and decision accuracy of every stored metric.

A metric decides if the order of the curves at earlier checkpoints is that of their last one (DataDecide, arXiv
2504.11393; Signal and Noise, 2508.13144); of models without checkpoints, if their order on one half of the items is
that on the other half. One that is chosen and judged on the same curves, or models, is optimistic: with four or more,
it is chosen on one half of them and judged on the other, over halves in both directions.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from vernacular.comparison.align import Items, Side
from vernacular.comparison.curves.curve import Curve, common_axis
from vernacular.core.errors import format_count
from vernacular.core.tables import finite_or_none, percent
from vernacular.metrics.metric import Metric, display_name
from vernacular.statistics import curves as statistics
from vernacular.statistics.intervals import cluster_codes

MIN_CHECKPOINTS = 5  # at the same position in all curves
MIN_CURVES, CURVES_TO_SPLIT = 2, 4
MIN_ITEMS, MIN_CLUSTERS = 100, 20  # that all models have, of those without checkpoints
_MAX_HALVES = 20
ITEM = "item"  # the axis of models without checkpoints
_CHANCE, _NAMED = 0.5, 3


def deciding_rows(curves: Sequence[Curve], values: Mapping[str, Mapping[tuple[str, str], dict]], labels: dict) -> list:
    """Return DECIDING_METRICS rows of one evaluation, a row per stored metric over all items.

    Args:
        curves: Those of all series; of each series, the one with the most checkpoints takes part.
        values: Model -> (category, metric) -> METRICS row.
        labels: Columns of the evaluation.
    """
    longest: dict[str, Curve] = {}
    for curve in curves:
        longest[curve.series] = max(longest.get(curve.series, curve), curve, key=lambda each: len(each.models))
    axis, positions, models = common_axis(list(longest.values()))
    metrics: dict[str, dict] = {}
    for rows in values.values():
        for (category, name), row in rows.items():
            if name and not category:
                metrics.setdefault(name, row)
    rows, tables = [], {}
    for name, metric in metrics.items():
        known = [(values[model].get(("", name)) or {}).get("value") for column in models for model in column]
        table = np.array([np.nan if value is None else value for value in known], float).reshape(len(models), -1)
        columns = np.flatnonzero(np.isfinite(table).all(axis=0))
        found = table[:, columns]
        row = labels | {"metric": name, "axis": axis, "n_curves": len(longest), "n_common": len(columns)}
        row |= {key: metric[key] for key in ("unit", "higher_is_better", "headline")}
        few = f"{len(columns)} checkpoints with a value at the same position in all series; at least {MIN_CHECKPOINTS}"
        row |= {"note": _not_applicable(row, few if len(columns) < MIN_CHECKPOINTS else None), "is_chosen": False}
        if row["note"] is None:
            tables[name] = found[:, :-1], found[:, -1:], [positions[i] for i in columns[:-1]]
            has_noise = (found >= 0).all() and found[:, -MIN_CHECKPOINTS:].any()
            row |= _numbers(found[:, -1], np.nanmean(statistics.relative_noise(found)) if has_noise else np.nan)
            row["decision_accuracy"] = float(decisions(*tables[name][:2]).mean())
        rows.append(row)
    if tables:
        _choose(rows, tables)
    return rows


def deciding_among_models(items: Items, sides: Mapping[str, Side], metrics: Sequence[Metric], labels: dict) -> list:
    """Return DECIDING_METRICS rows of one evaluation for models that are no series, by halves of the items.

    The noise is the standard error of a value over its items, from the differences of the halves.
    """
    sides = [side for side in sides.values() if side.present.any()]
    if len(sides) < MIN_CURVES:
        return []
    codes, generator = cluster_codes(items.clusters, len(items.ids)), np.random.default_rng(0)
    is_first = [generator.permutation(codes.max() + 1)[codes] % 2 == 0 for _ in range(_MAX_HALVES)]
    rows, tables = [], {}
    for metric in (each for each in metrics if not each.of_dataset):
        shared = np.logical_and.reduce([side.value_mask(metric) for side in sides])
        row = labels | {"metric": metric.name, "axis": ITEM, "n_curves": len(sides), "n_common": int(shared.sum())}
        row |= {key: getattr(metric, key) for key in ("unit", "higher_is_better", "headline")}
        n_clusters = len(np.unique(codes[shared]))
        found = f"{row['n_common']} items in {format_count(n_clusters, 'cluster')} with a value of all models"
        is_few = row["n_common"] < MIN_ITEMS or n_clusters < MIN_CLUSTERS
        few = f"{found}; at least {MIN_ITEMS} in {MIN_CLUSTERS}" if is_few else None
        row |= {"note": _not_applicable(row, few), "is_chosen": False}
        if row["note"] is None:
            masks = np.array([shared, *(shared & half for half in is_first), *(shared & ~half for half in is_first)])
            with np.errstate(invalid="ignore", divide="ignore"):
                values = np.array([_values(side.inputs(metric), metric, masks) for side in sides])
                early, late = np.split(values[:, 1:], 2, axis=1)
                noise = np.sqrt(((early - late) ** 2).mean(1)) / 2 / values[:, 0]
            if not np.isfinite(values).all():  # an impossible text, or a correlation with what is constant
                row["note"] = "undefined or infinite on half of the items for a model"
            else:
                tables[metric.name] = early, late, []
                row |= _numbers(values[:, 0], np.mean(noise) if (values > 0).all() else np.nan)
                row["decision_accuracy"] = float(decisions(early, late).mean())
        rows.append(row)
    if tables:
        _choose(rows, tables)
    return rows


def _values(arrays: list[np.ndarray], metric: Metric, masks: np.ndarray) -> list[float]:
    """Return the value over the items of each mask: (N,) each, (K, N) -> (K,)."""
    if metric.corpus:
        return [metric.value([array[mask] for array in arrays]) for mask in masks]
    return masks @ np.where(masks[0], arrays[0], 0.0) / masks.sum(1)


def _not_applicable(row: dict, few: str | None) -> str | None:
    if row["higher_is_better"] is None:
        return "neither direction is better"
    if row["metric"].endswith(("_token", "_per_token", "token_perplexity")):
        return "per token: moves with the tokenizer"
    if row["n_curves"] < MIN_CURVES:
        return f"{row['n_curves']} series; a decision needs {MIN_CURVES}"
    return few


def _numbers(finals: np.ndarray, noise: float) -> dict:
    """Return signal, noise and their ratio; null without a noise, as of values whose mean may have any sign."""
    signal = statistics.signal(finals) if np.isfinite(noise) else np.nan
    numbers = {"signal": signal, "noise": noise, "signal_to_noise": signal / noise if noise else np.nan}
    return {key: finite_or_none(number) for key, number in numbers.items()}


def decisions(early: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Return the decision accuracy of each column for the one of `late`: (M, K), (M, K or 1) -> (K,)."""
    return statistics.decision_accuracy(early.T, late.T)


def _halves(n: int) -> list[tuple[list[int], list[int]]]:
    """Return (curves to choose on, curves to judge on); of fewer than four curves, none."""
    if n < CURVES_TO_SPLIT:
        return []
    generator = np.random.default_rng(0)
    if math.comb(n, n // 2) > 10_000:
        halves = [generator.permutation(n)[: n // 2].tolist() for _ in range(_MAX_HALVES)]
    else:
        halves = list(combinations(range(n), n // 2))
        halves = [list(halves[i]) for i in generator.permutation(len(halves))[:_MAX_HALVES]]
    chosen = [(own, [each for each in range(n) if each not in own]) for own in halves]
    return chosen + [(judged, own) for own, judged in chosen]


def _choose(rows: list[dict], tables: dict[str, tuple[np.ndarray, np.ndarray, list[int]]]) -> None:
    """Mark the metric to look at, and state how well a metric chosen on other curves, or models, decides.

    `tables`: early and late values of each metric, and the positions of the early ones.
    """
    by_name = {row["metric"]: row for row in rows}

    def ratio(row: dict) -> float:
        return np.inf if row["signal"] and row["noise"] == 0 else row["signal_to_noise"] or 0.0

    def best(accuracy: Mapping[str, float]) -> str:  # of equal ones, that with less noise
        return max(accuracy, key=lambda name: (accuracy[name], ratio(by_name[name])))

    row = by_name[best({name: by_name[name]["decision_accuracy"] for name in tables})]
    judged = []
    for own, other in _halves(row["n_curves"]):
        name = best({name: decisions(early[own], late[own]).mean() for name, (early, late, _) in tables.items()})
        judged.append(decisions(*(table[other] for table in tables[name][:2])).mean())
    row["held_out_accuracy"] = float(np.mean(judged)) if judged else None
    others = [each for each in rows if each["headline"] and each["metric"] in tables and each is not row]
    if others and (until := _crossing(*(tables[each["metric"]] for each in (row, others[0])))) is not None:
        row["better_below"] = until
    row["is_chosen"] = row["decision_accuracy"] > _CHANCE and (not judged or row["held_out_accuracy"] > _CHANCE)
    noun = "models" if row["axis"] == ITEM else "series"
    if not row["is_chosen"]:
        row["note"] = f"the best metric, no better than chance on other {noun}: no metric decides"
    elif not judged:
        row["note"] = f"chosen and judged on the same {noun}: optimistic"


def deciding_sentence(rows: Sequence[dict]) -> str:
    """Return which metric of a task to look at, of at most three tasks; "" if none decides."""
    parts = []
    for row in (row for row in rows if row["is_chosen"]):
        others = row["held_out_accuracy"] if row["held_out_accuracy"] is not None else row["decision_accuracy"]
        below = f", below {row['better_below']:,} {row['axis'].removesuffix('s')}s" if row.get("better_below") else ""
        text = f"{row['evaluation']}: {display_name(row['metric'])}{below} ({percent(others, 0)} of decisions"
        parts.append(text + (")" if row["note"] is None else ", on the same series)"))
    more = f" and {len(parts) - _NAMED:,} more" if len(parts) > _NAMED else ""
    return f" Metric that decides first: {'; '.join(parts[:_NAMED])}{more}." if parts else ""


def _crossing(first: tuple, second: tuple) -> int | None:
    """Return the position below which the first metric decides better, and from which on the second does not worse."""
    (*table, positions), (*other, others) = first, second
    if positions != others or not positions:
        return None
    gain = decisions(*table) - decisions(*other)
    behind = [k for k in range(1, len(gain)) if gain[:k].mean() > 0 and (gain[k:] <= 0).all()]
    return positions[behind[0]] if behind else None
