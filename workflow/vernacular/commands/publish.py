"""Command `publish`: a directory of a run's results for others, without paths of this machine."""

import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from vernacular.commands.common import missing_reason
from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import DataError, UserError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import without_local_paths
from vernacular.core.tables import to_frame
from vernacular.metrics.schema import RESULTS, TASK_RESULTS
from vernacular.summary.grid import to_arrow
from vernacular.summary.prompts import standard_errors
from vernacular.summary.provenance import dataset_sources
from vernacular.types import ALL_PROMPTS

try:
    from vernacular.interop.every_eval_ever import write_every_eval_ever
    from vernacular.interop.lm_eval_results import write_lm_eval_results
except ModuleNotFoundError:  # the package of export formats is optional
    write_every_eval_ever = write_lm_eval_results = None

_TABLES = ("*.csv", "*.xlsx")
_MODEL_PATHS = ("source", "adapter source")  # of the description of a model


def publish(args) -> str:
    """Write the report, the tables, and the results in the formats of lm-eval and Every Eval Ever, the latter per item.

    Raises:
        UserError: The folder is not empty, or a file contains a path of this machine.
        DataError: The directory contains no summary.
    """
    summary = args.results / "summary"
    if not (summary / "results.parquet").exists():
        raise DataError(f"{args.results}: no summary/results.parquet. Specify the directory of a finished run: results")
    if args.folder.exists() and (not args.folder.is_dir() or any(args.folder.iterdir())):
        raise UserError(f"{args.folder}: exists and is not empty. Choose another name, or remove it.")
    temporary = args.folder.with_name(f".{args.folder.name}.{os.getpid()}.tmp")
    try:
        shutil.copytree(args.results / "report", temporary / "report", ignore=shutil.ignore_patterns(".snakemake*"))
        (temporary / "tables").mkdir()
        for path in sorted(path for pattern in _TABLES for path in summary.glob(pattern)):
            shutil.copy(path, temporary / "tables")
        values, models = _published_values(summary / "results.parquet")
        metadata = {"models": models, "notes": [], "fingerprint": fingerprint([args.organization, models])}
        artifacts.write(temporary / "tables" / "results.parquet", RESULTS, to_arrow(values), metadata)
        if write_every_eval_ever:
            source = {"source_organization_name": args.organization, "evaluator_relationship": args.relationship}
            _write_exchange_files(args.results, temporary, values, models, source)
        _check_paths(temporary, [Path.cwd(), Path.home(), args.results.resolve().parent])
        if args.folder.exists():
            args.folder.rmdir()
        temporary.rename(args.folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    n_files = sum(path.is_file() for path in args.folder.rglob("*"))
    is_complete = (summary / "complete.txt").exists()
    note = "" if is_complete else "; some results are missing (tables/notes.csv)"
    return f"publish: {format_count(n_files, 'file')} in {args.folder}{note}"


def _published_values(path: Path) -> tuple[pd.DataFrame, list[dict]]:
    """Return all values and the descriptions of the models, without paths of this machine."""
    values = to_frame(artifacts.read(path, RESULTS))
    models = [
        {key: without_local_paths(value) if key in _MODEL_PATHS and value else value for key, value in model.items()}
        for model in artifacts.metadata(path)["models"]
    ]
    return values.assign(adapter=values["adapter"].map(without_local_paths, na_action="ignore")), models


def _write_exchange_files(
    results: Path, folder: Path, values: pd.DataFrame, models: list[dict], source: dict[str, str]
) -> None:
    datasets = {
        (row["task"], row["language"], row["limit"]): row
        for model in models
        for row in dataset_sources(artifacts.metadata(results / model["name"] / "metrics.parquet"))
    }
    path = results / "summary" / "prompts.parquet"  # of a run with comparisons
    prompts = artifacts.read(path, PROMPTS).to_pylist() if path.exists() else []
    write_lm_eval_results(folder / "lm_eval", standard_errors(values, prompts))
    runs = values[values["prompt"] != ALL_PROMPTS]  # a mean over prompts has no results per item
    evaluations = {name: list(dict.fromkeys(rows["evaluation"])) for name, rows in runs.groupby("model")}
    write_every_eval_ever(
        folder,
        values,
        models,
        list(datasets.values()),
        task_results=lambda model: _task_results(results / model / "tasks", evaluations[model]),
        source=source,
    )


def _task_results(directory: Path, evaluations: list[str]) -> Iterator[tuple[str, list[dict]]]:
    """Yield the evaluations of a model with their results per item."""
    for evaluation in evaluations:
        path = directory / f"{evaluation}.parquet"
        if not missing_reason(artifacts.metadata(path)):
            yield evaluation, artifacts.read(path, TASK_RESULTS).to_pylist(maps_as_pydicts="strict")


def _check_paths(folder: Path, private: list[Path]) -> None:
    """Raise UserError if a file contains the path of a private directory."""
    texts = {f"{path}/".encode() for path in private if len(path.parts) > 1}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in _contents(path):
            for text in texts:
                if text in part:
                    raise UserError(
                        f"{path.relative_to(folder)}: contains the path {text.decode()}. "
                        "Nothing is published; use relative paths in the config, and run snakemake again."
                    )


def _contents(path: Path) -> list[bytes]:
    """Return the bytes of a file; of a workbook, of the files in it."""
    if path.suffix != ".xlsx":
        return [path.read_bytes()]
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]
