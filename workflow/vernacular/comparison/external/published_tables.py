"""The tables of a publication (`vernacular publish`), and the hashes of its items, for a leaderboard of several.

Other groups wrote them: files are read up to a limit, and names and values are checked before they become rows.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from vernacular.comparison.external.publications import checked_lines
from vernacular.comparison.external.published_files import check_file, published_models
from vernacular.comparison.schema import PROMPTS
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, DataError
from vernacular.core.names import check_readable, quoted
from vernacular.core.paths import display_path
from vernacular.core.tables import CELL_LIMIT, rows_of, to_frame
from vernacular.metrics.metric import value_problem
from vernacular.metrics.schema import RESULTS
from vernacular.protocols.evaluate import declared_metrics

_MAX_BYTES, _MAX_ROWS = 1_000_000_000, 1_000_000
_NAMES = ("model", "evaluation", "task", "language", "protocol", "metric")
_OPTIONAL_NAMES = ("style", "prompt", "base", "baseline", "unit", "metric_group", "series", "curve")  # may be empty
_COUNTS = ("shots", "n", "n_flagged", "n_ties")


@dataclass(frozen=True)
class PublishedTables:
    """Values of a publication, rows per PROMPTS, and {evaluation: {item: hash of its texts}}."""

    values: pd.DataFrame
    prompts: list[dict]
    hashes: dict[str, dict[str, str]]


def read_tables(directory: Path) -> PublishedTables:
    """Read the tables of a publication. Raises DataError, with file and reason, if one is not valid."""
    check_readable(directory.name, display_path(directory.parent), "directory name")
    values = _read(directory, "results.parquet", RESULTS)
    rows = rows_of(values)
    location = display_path(directory / "tables" / "results.parquet")
    _check_rows(rows, location)
    for row in rows:
        if problem := _value_problem(row):
            raise DataError(f"{location}: {row['model']}, {row['evaluation']}: {problem}")
    protocols = {row["evaluation"]: row["protocol"] for row in rows}
    return PublishedTables(to_frame(values), _read_prompts(directory), _read_hashes(directory, protocols))


def _read_prompts(directory: Path) -> list[dict]:
    file = directory / "tables" / "prompts.parquet"
    if not (file.exists() or file.is_symlink()):  # a publication of an earlier version
        return []
    rows = rows_of(_read(directory, file.name, PROMPTS))
    _check_rows(rows, display_path(file))
    for row in rows:
        for noun in ("prompts", "evaluations"):
            for name in [None] if row[noun] is None else row[noun]:
                check_readable(name, display_path(file), noun)
    return rows


def _read(directory: Path, name: str, kind: artifacts.Kind) -> pa.Table:
    file = directory / "tables" / name
    check_file(file, directory, _MAX_BYTES)
    try:
        table = artifacts.read(file, kind, allow_moved=True)
    except ArtifactError as error:  # its advice is for files of a run
        reason = str(error).removeprefix(f"{file}: ").removesuffix("; delete it to rebuild.").removesuffix(".")
        raise DataError(f"{display_path(file)}: {reason}.") from None
    if table.num_rows > _MAX_ROWS:
        raise DataError(f"{display_path(file)}: has {table.num_rows:,} rows; expected at most {_MAX_ROWS:,}.")
    return table


def _check_rows(rows: list[dict], location: str) -> None:
    """Raise DataError unless all names and texts can be in tables and pages; each distinct one is checked once."""
    for column in rows[0] if rows else ():
        cells = dict.fromkeys(row[column] for row in rows if not isinstance(row[column], list))  # in their order
        if column in _NAMES:
            for cell in cells:
                check_readable(cell, location, column)
        for cell in cells if column not in _NAMES else ():
            if column in _OPTIONAL_NAMES and cell:
                check_readable(cell, location, column)
            if isinstance(cell, str) and len(cell) > CELL_LIMIT:
                raise DataError(f"{location}: {column} {quoted(cell)} has more than {CELL_LIMIT:,} characters.")


def _value_problem(row: dict) -> str | None:
    """Return why a row of results is impossible; None if it is possible."""
    metric = declared_metrics(row["protocol"]).get(row["metric"])
    if metric and row["unit"] != metric.unit:
        return f"expected {metric.unit} as the unit of {metric.name}, got {quoted(row['unit'])}."
    for name in _COUNTS:
        if row[name] is not None and row[name] < 0:
            return f"{name}: expected at least 0, got {row[name]}."
    for name in ("value", "chance_level", "majority_baseline"):
        if row[name] is not None and (problem := value_problem(row["metric"], row[name], row["unit"], metric)):
            return f"{name}: {problem}"
    if None not in (row["ci_low"], row["ci_high"]) and not row["ci_low"] <= row["ci_high"]:  # one may be NaN
        return f"ci_low: expected at most ci_high, {row['ci_high']}, got {row['ci_low']}."
    return None


def _read_hashes(directory: Path, protocols: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return {evaluation: {item: hash of its texts}}, from the lines of all models; {} without results per item."""
    hashes: dict[str, dict[str, str]] = {}
    if not (directory / "data").exists():
        return hashes
    for model in published_models(directory).values():
        for location, _, line in checked_lines(directory, model, protocols):
            items, digest = hashes.setdefault(line["evaluation_name"], {}), line.get("sample_hash")
            if digest is not None and items.setdefault(line["sample_id"], digest) != digest:
                raise DataError(f"{location}: sample_hash differs from that of another model's line of this item.")
    return hashes
