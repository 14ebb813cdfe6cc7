"""Sides of comparisons: results of the models of a run, and external results that stage `external` has matched."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.schema import MATCHED
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.tables import csv_text, values_of
from vernacular.metrics.schema import METRICS, TASK_RESULTS

Signatures = dict[tuple[str, str], str]  # of a side, by evaluation and metric
_OUTCOMES = [name for name in TASK_RESULTS.schema.names if name != "metrics"]
_to_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would create an encoder for every cell


class Results(Mapping):
    """TASK_RESULTS of one model by evaluation, read from its directory on each access."""

    def __init__(self, directory: Path, evaluations: list[str]):
        self.paths = {evaluation: directory / "tasks" / f"{evaluation}.parquet" for evaluation in evaluations}

    def __getitem__(self, evaluation: str) -> pa.Table:
        return artifacts.read(self.paths[evaluation], TASK_RESULTS)

    def __contains__(self, evaluation) -> bool:  # the inherited method would read the file
        return evaluation in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def matched_results(path: Path) -> dict[str, pa.Table]:
    """Return external results as TASK_RESULTS by evaluation, of those that matched."""
    table = artifacts.read(path, MATCHED)
    names = table["evaluation"].unique().to_pylist()
    return {name: table.filter(pc.equal(table["evaluation"], name)).select(TASK_RESULTS.schema.names) for name in names}


def model_results(directory: Path, spec) -> dict[str, Results]:
    """Return the results of each model of a spec; `directory`: with one directory per model."""
    return {model: Results(directory / model, list(spec.evaluations)) for model in spec.models}


def read_sides(directory: Path, spec, matched: Path | None) -> dict[str, Mapping[str, pa.Table]]:
    """Return the results of each model and of all external results of a spec; `matched`: directory of the latter."""
    external = {name: matched_results(matched / f"{name}.parquet") for name in spec.external}
    return model_results(directory, spec) | external


def outcomes(tables: Mapping[str, pa.Table], evaluation: str) -> pa.Table:
    """Return the results of a side without the values per item, four fifths of the memory."""
    if isinstance(tables, Results):
        return artifacts.read(tables.paths[evaluation], TASK_RESULTS, columns=_OUTCOMES)
    return tables[evaluation]


def sides_files(directory: Path, spec, matched: Path | None) -> list[Path]:
    """Return the files of all sides: those of metrics stand for the results per item, as one job writes them."""
    models = [directory / model / "metrics.parquet" for model in spec.models]
    return [*models, *(matched / f"{name}.parquet" for name in spec.external)]


def signatures_of(directory: Path, models: list[str]) -> dict[str, Signatures]:
    """Return the signature of each value, by model."""
    return {model: _signatures(directory / model / "metrics.parquet") for model in models}


def _signatures(path: Path) -> Signatures:
    table = artifacts.read(path, METRICS)
    columns = (table.column(name).to_pylist() for name in ("evaluation", "metric", "signature"))
    return {(evaluation, metric): signature for evaluation, metric, signature in zip(*columns, strict=True)}


def write_table(path: Path, kind: artifacts.Kind, rows, metadata: dict) -> None:
    """Write rows as an artifact, and the same as CSV beside it."""
    artifacts.write(path, kind, rows, metadata)
    csv_beside(path, artifacts.read(path, kind))


def csv_beside(path: Path, table: pa.Table) -> None:
    """Write a table with its lists as JSON; NaN is an empty cell. Without pandas, whose import takes half a second."""
    columns = []
    for field in table.schema:
        values = values_of(table[field.name])
        if pa.types.is_list(field.type):
            values = [None if value is None else _to_json(value) for value in values]
        columns.append([None if value != value else value for value in values])
    with replacing(path.with_suffix(".csv")) as temporary:
        temporary.write_text(csv_text(table.column_names, zip(*columns, strict=True)), encoding="utf-8", newline="")
