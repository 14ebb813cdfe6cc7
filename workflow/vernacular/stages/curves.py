"""Command `curves`: per-item results of the checkpoints of series -> training curves, and trust in tasks."""

from pathlib import Path

import pyarrow as pa

from vernacular.comparison.curves.deciding import deciding_sentence
from vernacular.comparison.curves.schema import ALL
from vernacular.comparison.curves.tables import curve_tables, sentence
from vernacular.config.specs import CurvesSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.model_record import recorded_model
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.protocols.lm_eval.metrics import tool_metrics

_VALUE_COLUMNS = ["evaluation", "category", "metric", "value", "ci_low", "ci_high", "n", "chance_level", "unit",
                  "headline", "higher_is_better"]  # fmt: skip


class Curves(Stage):
    """Compute training curves of series, and which tasks can be trusted."""

    spec: CurvesSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    out: Path  # directory of the tables


def curves(args: Curves) -> str:
    """Write the curve tables: points, statistics, trust in tasks, and pairs of curves."""
    checkpoints, evaluations = args.spec.positions, args.spec.evaluations
    metrics = {model: args.results / model / "metrics.parquet" for model in checkpoints}
    values = {model: _Values(path) for model, path in metrics.items()}

    def results(model: str, evaluation: str) -> pa.Table:
        return artifacts.read(args.results / model / "tasks" / f"{evaluation}.parquet", TASK_RESULTS)

    tables = curve_tables(
        checkpoints,
        {name: vars(spec) for name, spec in evaluations.items()},
        results,
        lambda model, evaluation: values[model][evaluation],
        tool_metrics={name: tool_metrics(args.results, list(checkpoints), name) for name in evaluations},
    )
    text = sentence(tables["task_trust"], _size(values)) + deciding_sentence(tables["deciding_metrics"])
    metadata = {"fingerprint": artifacts.input_fingerprint(to_json(args.spec), *metrics.values()), "sentence": text}
    for name, kind in ALL.items():
        path = artifacts.write(args.out / f"{name}.parquet", kind, tables[name], metadata)
        write_csv(path.with_suffix(".csv"), to_frame(artifacts.read(path, kind)))
    n_curves = len({checkpoint["curve"] for checkpoint in checkpoints.values()})
    counts = f"{format_count(n_curves, 'curve')} of {format_count(len(checkpoints), 'checkpoint')}"
    return f"curves: {counts} in {args.out}" + (f"\ncurves: {text}" if text else "")


class _Values:
    """METRICS rows of a model by evaluation, then by (category, metric); ("", "") has the reason if there are none."""

    def __init__(self, path: Path):
        table, metadata = artifacts.read_all(path, METRICS)
        self.parameters = recorded_model(metadata).parameters
        self._rows: dict[str, dict] = {}
        for row in table.select(_VALUE_COLUMNS).to_pylist():
            self._rows.setdefault(row["evaluation"], {})[row["category"], row["metric"]] = row
        for evaluation, results in metadata.evaluations.items():
            if not results.outcome.is_complete:
                self._rows.setdefault(evaluation, {})["", ""] = {"note": results.outcome.reason}

    def __getitem__(self, evaluation: str) -> dict:
        return self._rows.get(evaluation, {})


def _size(values: dict[str, _Values]) -> str | None:
    """Return the size of the models for readers: "135M parameters", or a range; None if it is unknown.

    >>> from types import SimpleNamespace
    >>> _size({"a": SimpleNamespace(parameters=70_426_624), "b": SimpleNamespace(parameters=1_011_781_632)})
    '70M to 1.0B parameters'
    """
    sizes = sorted({value.parameters for value in values.values() if value.parameters})
    texts = []
    for size in sizes[:1] + sizes[-1:]:
        number, unit = (size / 1e9, "B") if size >= 1e9 else (size / 1e6, "M") if size >= 1e6 else (size / 1e3, "k")
        texts.append(f"{number:.1f}{unit}" if number < 10 else f"{number:.0f}{unit}")
    return f"{' to '.join(dict.fromkeys(texts))} parameters" if texts else None
