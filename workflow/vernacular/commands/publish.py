"""Command `publish`: a directory of a run's results for others, without paths, addresses of servers, and keys."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa

from vernacular.commands.common import missing_reason
from vernacular.commands.private_texts import check_nothing_private
from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import DataError, UserError, format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.core.publication import publishable
from vernacular.core.tables import to_frame
from vernacular.interop.every_eval_ever import write_every_eval_ever
from vernacular.interop.lm_eval_results import write_lm_eval_results
from vernacular.metrics.schema import RESULTS, TASK_RESULTS
from vernacular.summary.grid import to_arrow
from vernacular.summary.prompts import standard_errors
from vernacular.summary.provenance import dataset_sources
from vernacular.types import ALL_PROMPTS

_TABLES = ("*.csv", "*.xlsx")
_SOURCES = ("source", "adapter source")  # of the description of a model


def publish(args) -> str:
    """Write the report, the tables, and the results in the formats of lm-eval and Every Eval Ever, the latter per item.

    Raises:
        UserError: The folder is not empty, or a file contains a private text.
        DataError: The directory contains no summary.
    """
    summary = args.results / "summary"
    if not (summary / "results.parquet").exists():
        raise DataError(f"{args.results}: no summary/results.parquet. Specify the directory of a finished run: results")
    if args.folder.exists() and (not args.folder.is_dir() or any(args.folder.iterdir())):
        raise UserError(f"{args.folder}: exists and is not empty. Choose another name, or remove it.")
    temporary = args.folder.with_name(f".{args.folder.name}.{os.getpid()}.tmp")
    try:
        shutil.copytree(
            args.results / "report", temporary / "report", ignore=shutil.ignore_patterns(".snakemake*", ".vernacular*")
        )
        (temporary / "tables").mkdir()
        for path in sorted(path for pattern in _TABLES for path in summary.glob(pattern)):
            shutil.copy(path, temporary / "tables")
        values = to_frame(artifacts.read(summary / "results.parquet", RESULTS))
        values = values.assign(adapter=values["adapter"].map(publishable, na_action="ignore"))
        recorded = artifacts.metadata(summary / "results.parquet")
        described = recorded["models"]
        models, prompts = publishable(described), _prompt_rows(summary / "prompts.parquet")
        metadata = {"models": models, "notes": [], "fingerprint": fingerprint([args.organization, models])}
        artifacts.write(temporary / "tables" / "results.parquet", RESULTS, to_arrow(values), metadata)
        artifacts.write(temporary / "tables" / "prompts.parquet", PROMPTS, prompts, metadata)
        source = {"source_organization_name": args.organization, "evaluator_relationship": args.relationship}
        _write_exchange_files(args.results, temporary, values, models, prompts, source)
        sources = [model[key] for model in described for key in _SOURCES if model.get(key)]
        roots = [Path.cwd(), Path.home(), args.results.resolve().parent]
        unknown = check_nothing_private(temporary, roots, sources, recorded.get("api_key_env", []))
        if args.folder.exists():
            args.folder.rmdir()
        temporary.rename(args.folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    n_files = sum(path.is_file() for path in args.folder.rglob("*"))
    is_complete = (summary / "complete.txt").exists()
    note = "" if is_complete else "; some results are missing (tables/notes.csv)"
    note += f"; not searched for the key in {', '.join(unknown)} (not set, or too short)" if unknown else ""
    return f"publish: {format_count(n_files, 'file')} in {args.folder}{note}"


def _prompt_rows(path: Path) -> list[dict]:
    """Return the means over prompts, which a run with comparisons has."""
    return artifacts.read(path, PROMPTS).to_pylist() if path.exists() else []


def _write_exchange_files(
    results: Path, folder: Path, values: pd.DataFrame, models: list[dict], prompts: list[dict], source: dict[str, str]
) -> None:
    datasets = {
        (row["task"], row["language"], row["limit"]): row
        for model in models
        for row in dataset_sources(artifacts.metadata(results / model["name"] / "metrics.parquet"))
    }
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


def _task_results(directory: Path, evaluations: list[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the evaluations of a model with their results per item."""
    for evaluation in evaluations:
        path = directory / f"{evaluation}.parquet"
        if not missing_reason(artifacts.metadata(path)):
            yield evaluation, artifacts.read(path, TASK_RESULTS)
