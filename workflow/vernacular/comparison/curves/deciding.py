"""Which metric of a task decides between runs of this size: signal, noise and decision accuracy of every stored metric.

A metric decides if the order of the curves at earlier checkpoints is that of their last one (DataDecide, arXiv
2504.11393; Signal and Noise, 2508.13144). One that is chosen and judged on the same curves is optimistic: with four
curves or more, it is chosen on one half of them and judged on the other, over halves in both directions.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from vernacular.comparison.curves.curve import Curve, common_axis
from vernacular.core.tables import finite_or_none, percent
from vernacular.metrics.metric import display_name
from vernacular.statistics import curves as statistics

MIN_CHECKPOINTS = 5  # at the same position in all curves
MIN_CURVES, CURVES_TO_SPLIT = 2, 4
_MAX_HALVES = 20
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
        columns = np.flatnonzero(~np.isnan(table).any(axis=0))
        found = table[:, columns]
        row = labels | {"metric": name, "axis": axis, "n_curves": len(longest), "n_common": len(columns)}
        row |= {key: metric[key] for key in ("unit", "higher_is_better", "headline")}
        row |= {"note": _not_applicable(name, metric, len(longest), len(columns)), "is_chosen": False}
        if row["note"] is None:
            tables[name] = found, [positions[i] for i in columns[:-1]]
            numbers = dict.fromkeys(("signal", "noise"), np.nan)
            if (found >= 0).all() and found[:, -MIN_CHECKPOINTS:].any():  # a share of a mean of any sign means nothing
                numbers["signal"] = statistics.signal(found[:, -1])
                numbers["noise"] = np.nanmean(statistics.relative_noise(found))
            numbers["signal_to_noise"] = numbers["signal"] / numbers["noise"] if numbers["noise"] else np.nan
            numbers["decision_accuracy"] = decisions(found).mean()
            row |= {key: finite_or_none(number) for key, number in numbers.items()}
        rows.append(row)
    if tables:
        _choose(rows, tables)
    return rows


def _not_applicable(name: str, metric: dict, n_curves: int, n_common: int) -> str | None:
    if metric["higher_is_better"] is None:
        return "neither direction is better"
    if name.endswith(("_token", "_per_token")):
        return "per token: moves with the tokenizer"
    if n_curves < MIN_CURVES:
        return f"{n_curves} series; a decision needs {MIN_CURVES}"
    if n_common < MIN_CHECKPOINTS:
        return f"{n_common} checkpoints with a value at the same position in all series; at least {MIN_CHECKPOINTS}"
    return None


def decisions(table: np.ndarray) -> np.ndarray:
    """Return the decision accuracy of each earlier checkpoint for the last: (M curves, K) -> (K - 1,)."""
    return np.array([statistics.decision_accuracy(table[:, k], table[:, -1]) for k in range(table.shape[1] - 1)])


def _halves(n: int) -> list[tuple[list[int], list[int]]]:
    """Return (curves to choose on, curves to judge on); of fewer than four curves, none."""
    if n < CURVES_TO_SPLIT:
        return []
    halves = list(combinations(range(n), n // 2))
    order = np.random.default_rng(0).permutation(len(halves))[:_MAX_HALVES]
    chosen = [(list(halves[i]), [each for each in range(n) if each not in halves[i]]) for i in order]
    return chosen + [(judged, own) for own, judged in chosen]


def _choose(rows: list[dict], tables: dict[str, tuple[np.ndarray, list[int]]]) -> None:
    """Mark the metric to look at, and state how well a metric chosen on other curves decides."""
    by_name = {row["metric"]: row for row in rows}

    def ratio(row: dict) -> float:
        return np.inf if row["signal"] and row["noise"] == 0 else row["signal_to_noise"] or 0.0

    def best(accuracy: Mapping[str, float]) -> str:  # of equal ones, that with less noise
        return max(accuracy, key=lambda name: (accuracy[name], ratio(by_name[name])))

    row = by_name[best({name: by_name[name]["decision_accuracy"] for name in tables})]
    judged = []
    for own, other in _halves(row["n_curves"]):
        name = best({name: decisions(table[own]).mean() for name, (table, _) in tables.items()})
        judged.append(decisions(tables[name][0][other]).mean())
    row["held_out_accuracy"] = float(np.mean(judged)) if judged else None
    others = [each for each in rows if each["headline"] and each["metric"] in tables and each is not row]
    if others and (until := _crossing(*(tables[each["metric"]] for each in (row, others[0])))) is not None:
        row["better_below"] = until
    row["is_chosen"] = row["decision_accuracy"] > _CHANCE and (not judged or row["held_out_accuracy"] > _CHANCE)
    if not row["is_chosen"]:
        row["note"] = "the best metric, no better than chance on other series: no metric decides"
    elif not judged:
        row["note"] = "chosen and judged on the same curves: optimistic"


def deciding_sentence(rows: Sequence[dict]) -> str:
    """Return which metric of a task to look at, of at most three tasks; "" if none decides."""
    parts = []
    for row in (row for row in rows if row["is_chosen"]):
        others = row["held_out_accuracy"] if row["held_out_accuracy"] is not None else row["decision_accuracy"]
        below = f", below {row['better_below']:,} {row['axis']}s" if row.get("better_below") else ""
        text = f"{row['evaluation']}: {display_name(row['metric'])}{below} ({percent(others, 0)} of decisions"
        parts.append(text + (")" if row["note"] is None else ", on the same series)"))
    more = f" and {len(parts) - _NAMED:,} more" if len(parts) > _NAMED else ""
    return f" Metric that decides first: {'; '.join(parts[:_NAMED])}{more}." if parts else ""


def _crossing(first: tuple[np.ndarray, list[int]], second: tuple[np.ndarray, list[int]]) -> int | None:
    """Return the position below which the first metric decides better, and from which on the second does not worse."""
    (table, positions), (other, others) = first, second
    if positions != others:
        return None
    gain = decisions(table) - decisions(other)
    behind = [k for k in range(1, len(gain)) if gain[:k].mean() > 0 and (gain[k:] <= 0).all()]
    return positions[behind[0]] if behind else None
