"""Data files of training curves: `curves` for all evaluations, and `e{i}/curves` with the points of one.

A point has a value, and differences to each of the references "previous", "best" and "last"; null where there is none.
The unrounded values are in `summary/curves.csv`.
"""

from pathlib import Path

from vernacular.comparison.curves.curve import AXES, curves_of
from vernacular.comparison.curves.schema import CURVE_PAIR_POINTS, CURVE_PAIRS, CURVE_STATISTICS, CURVES, REFERENCES
from vernacular.comparison.curves.schema import TASK_TRUST as TRUST
from vernacular.core import artifacts
from vernacular.core.tables import rows_of
from vernacular.report.data_files import FIELDS, INTERVAL, Row, record, round_significant, rounded, write_data_file
from vernacular.report.leaderboard import Index, ReportIndex

_STATISTICS = FIELDS["records"]["Statistics"]
_TRUST = [name for name in FIELDS["records"]["Trust"] if name not in ("evaluation", "metric", "verdict", "reason")]


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
        statistics = record("Statistics", {name: round_significant(row[name]) for name in _STATISTICS})
        key = _key(row, numbers, entry, index)
        entry["rows"][key] = Row.CurveValues(
            curve=key[0],
            metric=key[1],
            category=key[2],
            statistics=statistics,
            note=row["note"],
            points=[None] * length,
        )
    for row in rows_of(artifacts.read(summary / "curves.parquet", CURVES)):
        entry = _evaluation(evaluations, row, index)
        key = _key(row, numbers, entry, index)
        entry["rows"][key].points[position[row["model"]][1]] = _point(row)
        if row["chance_level"] is not None:
            entry["chance"][key[1:]] = round_significant(row["chance_level"])
    _add_pair_points(evaluations, summary, numbers, index)
    for number, entry in evaluations.items():
        chance = [
            Row.Chance(metric=metric, category=category, value=value)
            for (metric, category), value in sorted(entry["chance"].items())
        ]
        rows, pairs = list(entry["rows"].values()), list(entry["pairs"].values())
        content = {"rows": rows, "categories": entry["categories"].names, "chance": chance, "pairs": pairs}
        write_data_file(out, f"e{number}/curves", record("EvaluationCurves", content))
    write_data_file(out, "curves", _overview(summary, curves, checkpoints, numbers, index))
    return sorted(evaluations)


def _evaluation(evaluations: dict[int, dict], row: dict, index: ReportIndex) -> dict:
    number = index.evaluations.number(row["evaluation"])
    return evaluations.setdefault(number, {"rows": {}, "categories": Index([""]), "chance": {}, "pairs": {}})


def _key(row: dict, numbers: Index, entry: dict, index: ReportIndex) -> tuple[int, int, int]:
    """Return the numbers of the row's curve, metric and category."""
    metric = index.metric(row | {"headline": True})
    return numbers.number(row["curve"]), metric, entry["categories"].number(row["category"])


def _point(row: dict):
    differences = {
        reference: None
        if row[f"{reference}_difference"] is None
        else Row.Difference(**_difference(row, f"{reference}_"))
        for reference in REFERENCES
    }
    return Row.CurvePoint(**rounded(row, INTERVAL | {"n": "n"}), **differences)


def _difference(row: dict, prefix: str = "") -> dict:
    columns = {"value": "difference", "low": "difference_low", "high": "difference_high", "p": "p_holm"}
    return rounded(row, {name: prefix + column for name, column in columns.items()})


def _add_pair_points(evaluations: dict[int, dict], summary: Path, numbers: Index, index: ReportIndex) -> None:
    """Add a Row.CurvePair per pair of curves, metric, category and axis."""
    for row in rows_of(artifacts.read(summary / "curve_pair_points.parquet", CURVE_PAIR_POINTS)):
        entry = _evaluation(evaluations, row, index)
        pair = Row.CurvePair(
            baseline=numbers.number(row["baseline"]),
            candidate=numbers.number(row["candidate"]),
            metric=index.metric(row | {"headline": True}),
            category=entry["categories"].number(row["category"]),
            axis=row["axis"],
            points=[],
        )
        point = Row.PairPoint(x=row["x"], **_difference(row))
        entry["pairs"].setdefault(pair._replace(points=None), pair).points.append(point)


def _overview(summary: Path, curves: list, checkpoints: dict, numbers: Index, index: ReportIndex) -> dict:
    """Return the curves with their positions, the verdicts on tasks, and the areas between pairs of curves."""
    trust, areas = summary / "task_trust.parquet", []
    for row in rows_of(artifacts.read(summary / "curve_pairs.parquet", CURVE_PAIRS)):
        if not row["category"]:
            area = Row.Area(
                baseline=numbers.number(row["baseline"]),
                candidate=numbers.number(row["candidate"]),
                evaluation=index.evaluations.number(row["evaluation"]),
                metric=index.metric(row | {"headline": True}),
                **{name: row[name] for name in ("axis", "from_x", "to_x")},
                **rounded(row, {"value": "area", "low": "area_low", "high": "area_high", "p": "p_holm"}),
                better=None if row["better"] is None else numbers.number(row["better"]),
            )
            areas.append(area)
    overview = {
        "curves": [_curve(curve, checkpoints, index) for curve in curves],
        "sentence": artifacts.metadata(trust)["sentence"],
        "trust": [_verdict(row, index) for row in rows_of(artifacts.read(trust, TRUST))],
        "areas": areas,
    }
    return record("Curves", overview)


def _curve(curve, checkpoints: dict, index: ReportIndex) -> dict:
    axes = [Row.Axis(name=axis, positions=curve.positions[axis]) for axis in AXES if axis in curve.positions]
    content = {
        "name": curve.name,
        "models": [index.models.number(model) for model in curve.models],
        "checkpoints": [checkpoints[model]["name"] for model in curve.models],
        "axis": curve.axis,
        "positions": axes,
    }
    return record("Curve", content)


def _verdict(row: dict, index: ReportIndex) -> dict:
    verdict = {
        "evaluation": index.evaluations.number(row["evaluation"]),
        "metric": index.metric(row | {"headline": True}),
        "verdict": row["verdict"],
        "reason": row["reason"],
        **{name: round_significant(row[name]) for name in _TRUST},
    }
    return record("Trust", verdict)
