"""Data files of training curves: `curves` for all evaluations, and `e{i}/curves` with the points of one.

A point is [value, low, high, n], followed by [difference, low, high, p] to each of the references "previous", "best"
and "last"; null where there is none. The unrounded values are in `summary/curves.csv`.
"""

from pathlib import Path

from vernacular.comparison.curves.curve import AXES, curves_of
from vernacular.comparison.curves.schema import CURVE_PAIR_POINTS, CURVE_PAIRS, CURVE_STATISTICS, CURVES, REFERENCES
from vernacular.comparison.curves.schema import TASK_TRUST as TRUST
from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.report.data_files import round_all, round_significant, write_data_file
from vernacular.report.leaderboard import Index, ReportIndex

_STATISTICS = (
    "last", "last_low", "last_high", "last_x", "best", "best_x", "best_optimism", "slope", "slope_low", "slope_high",
    "monotonicity", "monotonicity_low", "monotonicity_high", "noise", "above_chance_since", "as_good_as_last_since",
    "learned_50", "learned_90", "learned_90_stay", "n_checkpoints", "n_missing",
)  # fmt: skip
_TRUST = (
    "n_curves", "monotonicity", "monotonicity_low", "monotonicity_high", "signal_to_noise", "signal_to_noise_low",
    "signal_to_noise_high", "rank_consistency", "decision_accuracy", "decision_accuracy_low", "decision_accuracy_high",
)  # fmt: skip


def write_curves(out: Path, results: Path, checkpoints: dict[str, dict], index: ReportIndex) -> list[int]:
    """Write the data files of the curves; return the numbers of the evaluations that have some.

    checkpoints: model -> series, curve, name, step, tokens, words, in the order of training.
    """
    summary = results / "summary"
    curves = curves_of(checkpoints)
    numbers = Index(curve.name for curve in curves)
    position = {model: (c, k) for c, curve in enumerate(curves) for k, model in enumerate(curve.models)}
    evaluations: dict[int, dict] = {}
    for row in rows_of(artifacts.read(summary / "curve_statistics.parquet", CURVE_STATISTICS)):
        entry = _evaluation(evaluations, row, index)
        length = len(curves[numbers.number(row["curve"])].models)
        statistics = {name: _rounded(row[name]) for name in _STATISTICS}
        key = (row["curve"], index.metric(row | {"headline": True}), entry["categories"].number(row["category"]))
        entry["rows"][key] = [*key, statistics, row["note"], [None] * length]
    for row in rows_of(artifacts.read(summary / "curves.parquet", CURVES)):
        entry = _evaluation(evaluations, row, index)
        key = (row["curve"], index.metric(row | {"headline": True}), entry["categories"].number(row["category"]))
        line = entry["rows"][key]
        line[-1][position[row["model"]][1]] = _point(row)
        if row["chance_level"] is not None:
            entry["chance"][f"{key[1]} {key[2]}"] = round_significant(row["chance_level"])
    _add_pair_points(evaluations, summary, numbers, index)
    for number, entry in evaluations.items():
        rows = [[numbers.number(curve), *rest] for curve, *rest in entry["rows"].values()]
        names = entry["categories"].names
        content = {"rows": rows, "categories": names, "chance": sorted(entry["chance"].items())}
        write_data_file(out, f"e{number}/curves", content | {"pairs": list(entry["pairs"].values())})
    write_data_file(out, "curves", _overview(summary, curves, checkpoints, numbers, index))
    return sorted(evaluations)


def _evaluation(evaluations: dict[int, dict], row: dict, index: ReportIndex) -> dict:
    number = index.evaluations.number(row["evaluation"])
    return evaluations.setdefault(number, {"rows": {}, "categories": Index([""]), "chance": {}, "pairs": {}})


def _point(row: dict) -> list:
    point = [*round_all([row["value"], row["ci_low"], row["ci_high"]]), row["n"]]
    for reference in REFERENCES:
        names = ("difference", "difference_low", "difference_high", "p_holm")
        numbers = [row[f"{reference}_{name}"] for name in names]
        point.append(None if numbers[0] is None else round_all(numbers, 4))
    return point


def _add_pair_points(evaluations: dict[int, dict], summary: Path, numbers: Index, index: ReportIndex) -> None:
    """Add [baseline, candidate, metric, category, axis, [[x, difference, low, high, p], …]] per pair of curves."""
    for row in rows_of(artifacts.read(summary / "curve_pair_points.parquet", CURVE_PAIR_POINTS)):
        entry = _evaluation(evaluations, row, index)
        sides = numbers.number(row["baseline"]), numbers.number(row["candidate"])
        key = (*sides, index.metric(row | {"headline": True}), entry["categories"].number(row["category"]), row["axis"])
        names = ("difference", "difference_low", "difference_high", "p_holm")
        point = [row["x"], *round_all([row[name] for name in names], 4)]
        entry["pairs"].setdefault(key, [*key, []])[-1].append(point)


def _overview(summary: Path, curves: list, checkpoints: dict, numbers: Index, index: ReportIndex) -> dict:
    """Return the curves with their positions, the verdicts on tasks, and the areas between pairs of curves."""
    trust, areas = summary / "task_trust.parquet", []
    for row in rows_of(artifacts.read(summary / "curve_pairs.parquet", CURVE_PAIRS)):
        if not row["category"]:
            better = None if row["better"] is None else numbers.number(row["better"])
            sides = [numbers.number(row["baseline"]), numbers.number(row["candidate"])]
            where = [index.evaluations.number(row["evaluation"]), index.metric(row | {"headline": True})]
            area = round_all([row["area"], row["area_low"], row["area_high"], row["p_holm"]], 4)
            areas.append([*sides, *where, row["axis"], row["from_x"], row["to_x"], *area, better])
    return {
        "curves": [
            {
                "name": curve.name,
                "models": [index.models.number(model) for model in curve.models],
                "checkpoints": [checkpoints[model]["name"] for model in curve.models],
                "axis": curve.axis,
                "positions": [[axis, curve.positions[axis]] for axis in AXES if axis in curve.positions],
            }
            for curve in curves
        ],
        "sentence": artifacts.metadata(trust)["sentence"],
        "trust": [
            {
                "evaluation": index.evaluations.number(row["evaluation"]),
                "metric": index.metric(row | {"headline": True}),
                "verdict": row["verdict"],
                "reason": row["reason"],
                **{name: _rounded(row[name]) for name in _TRUST},
            }
            for row in rows_of(artifacts.read(trust, TRUST))
        ],
        "areas": areas,
    }


def _rounded(value):
    return value if isinstance(value, int) else round_significant(value)
