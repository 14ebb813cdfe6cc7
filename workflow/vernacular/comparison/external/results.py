"""External results: the texts that identify an item, and the model's scores, prediction or correctness.

User files are CSV, TSV or JSONL with one item per line:

* the item: `item_id` as in this workflow's results, or its text in any of `prompt`, `context`, `question`, `sentence`,
  `text`, with its `choices` or `options` (a list, or separated by `|`) if it has any;
* the output: `prediction` (the option's text, its letter for the protocol letters, or the generated text), `correct` (1
  or 0, true or false), or both; with both, `correct` counts;
* `evaluation`, if one file holds several.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vernacular.core.errors import DataError
from vernacular.core.names import check_readable
from vernacular.core.paths import display_path
from vernacular.data.columns import replace_surrogates
from vernacular.data.readers import detect_format, located_rows

TEXT_COLUMNS = ("context", "prompt", "question", "sentence", "text")
COLUMNS = {*TEXT_COLUMNS, "item_id", "choices", "options", "prediction", "correct", "evaluation"}
_BOOLEANS = {"1": True, "1.0": True, "true": True, "yes": True, "0": False, "0.0": False, "false": False, "no": False}


@dataclass(frozen=True)
class ExternalResult:
    """External result of one item."""

    location: str  # file and line, for messages
    texts: tuple[str, ...]  # all texts of the item in the file: fields, prompt, options, in order
    item_id: str | None = None  # as in this workflow's results
    continuations: tuple[tuple[str, str], ...] = ()  # (context, continuation) of each scored option
    scores: tuple[float, ...] | None = None  # log-likelihood (nats) of each of `continuations`
    greedy: bool | None = None  # single continuations only: each token is the most probable one
    prediction: str | None = None
    correct: bool | None = None


def read_results(path: Path) -> dict[str | None, list[ExternalResult]]:
    """Read a user file: results by evaluation, None for lines that do not name one.

    Raises DataError with file, line and column.
    """
    results: dict[str | None, list[ExternalResult]] = {}
    for location, row in read_rows(path):
        _check_columns(location, row)
        texts = [as_text(row[name]) for name in TEXT_COLUMNS if name in row]
        texts += _parse_options(row.get("choices")) + _parse_options(row.get("options"))
        result = ExternalResult(
            location,
            tuple(text for text in texts if text.strip()),
            item_id=as_text(row.get("item_id")) or None,
            prediction=as_text(row["prediction"]) if row.get("prediction") is not None else None,
            correct=_parse_bool(location, row.get("correct")),
        )
        if evaluation := as_text(row.get("evaluation")) or None:
            check_readable(evaluation, location, "evaluation")
        results.setdefault(evaluation, []).append(result)
    return results


def read_rows(path: Path) -> Iterator[tuple[str, dict]]:
    """Yield (file and line, row) of a CSV, TSV or JSONL file; a file with another extension is read as CSV."""
    return located_rows(path, detect_format(path) or "csv", name=display_path(path))


def _check_columns(location: str, row: dict) -> None:
    columns = ", ".join(map(str, row))
    if "item_id" not in row and not any(name in row for name in TEXT_COLUMNS):
        raise DataError(
            f"{location}: no item: expected one of the columns item_id, {', '.join(TEXT_COLUMNS)}, got {columns}."
        )
    if "prediction" not in row and "correct" not in row:
        raise DataError(f"{location}: no output: expected a column prediction or correct, got {columns}.")


def _parse_options(cell) -> list[str]:
    if isinstance(cell, list):
        return [as_text(option) for option in cell]
    return [option.strip() for option in as_text(cell).split("|")]


def _parse_bool(location: str, cell) -> bool | None:
    text = as_text(cell).strip().casefold()
    if not text:
        return None
    if text not in _BOOLEANS:
        raise DataError(f"{location}: correct: expected 1, 0, true, false or an empty value, got {cell!r}.")
    return _BOOLEANS[text]


def as_text(cell) -> str:
    """Convert a cell to text; lone surrogates, which JSON can hold and Parquet cannot, become U+FFFD."""
    return replace_surrogates("" if cell is None else str(cell))


def result_files(path: Path) -> list[Path]:
    """Return the result files at `path`. Raises DataError if there are none, or of several types."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{display_path(path)}: file or directory not found.")
    parquet = sorted((path / "tasks").glob("*.parquet")) or sorted(path.glob("*.parquet"))
    samples = sorted(path.rglob("samples_*.jsonl"))
    tables = [file for pattern in ("*.csv", "*.tsv", "*.jsonl") for file in sorted(path.glob(pattern))]
    groups = [files for files in (parquet, samples, [file for file in tables if file not in samples]) if files]
    if not groups:
        raise DataError(
            f"{display_path(path)}: no results found (expected .parquet, samples_*.jsonl, .csv, .tsv or .jsonl)."
        )
    if len(groups) > 1:
        names = " and ".join(files[0].name for files in groups)
        raise DataError(
            f"{display_path(path)}: results of several types ({names}). Specify one file, or separate them."
        )
    return groups[0]
