"""External results: the texts that identify an item, and the model's scores, prediction or correctness.

User files are CSV, TSV or JSONL with one item per line:

* the item: `item_id` as in this workflow's results, or its text in any of `prompt`, `context`, `question`, `sentence`,
  `text`, with its `choices` (a list, or separated by `|`) if it has any;
* the output: `prediction` (the option's text, its letter for the protocol letters, or the generated text), `correct` (1
  or 0, true or false), or both; with both, `correct` counts;
* `evaluation`, if one file holds several.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vernacular.core.errors import DataError
from vernacular.core.paths import display_path
from vernacular.data.columns import sound
from vernacular.data.readers import form_of, located_rows

TEXTS = ("context", "prompt", "question", "sentence", "text")
_TRUTH = {"1": True, "1.0": True, "true": True, "yes": True, "0": False, "0.0": False, "false": False, "no": False}


@dataclass(frozen=True)
class Answer:
    """External result of one item."""

    where: str  # file and line, for messages
    texts: tuple[str, ...]  # all texts of the item in the file: fields, prompt, options, in order
    item_id: str | None = None  # as in this workflow's results
    asked: tuple[tuple[str, str], ...] = ()  # (context, continuation) of each scored option
    scores: tuple[float, ...] | None = None  # log-likelihood (nats) of each of `asked`
    greedy: bool | None = None  # single continuations only: each token is the most probable one
    prediction: str | None = None
    correct: bool | None = None


def answers_in(path: Path) -> dict[str | None, list[Answer]]:
    """Read a user file: results by evaluation, None for lines that do not name one.

    Raises DataError with file, line and column.
    """
    found: dict[str | None, list[Answer]] = {}
    for where, row in rows_in(path):
        _check_columns(where, row)
        texts = [as_text(row[name]) for name in TEXTS if name in row] + _options(row.get("choices"))
        answer = Answer(
            where,
            tuple(text for text in texts if text.strip()),
            item_id=as_text(row.get("item_id")) or None,
            prediction=as_text(row["prediction"]) if row.get("prediction") is not None else None,
            correct=_truth(where, row.get("correct")),
        )
        found.setdefault(as_text(row.get("evaluation")) or None, []).append(answer)
    return found


def rows_in(path: Path) -> Iterator[tuple[str, dict]]:
    """Yield (file and line, row) of a CSV, TSV or JSONL file; a file with another extension is read as CSV."""
    return located_rows(path, form_of(path) or "csv", name=display_path(path))


def _check_columns(where: str, row: dict) -> None:
    found = ", ".join(map(str, row))
    if "item_id" not in row and not any(name in row for name in TEXTS):
        raise DataError(f"{where}: no item: expected one of the columns item_id, {', '.join(TEXTS)}, got {found}.")
    if "prediction" not in row and "correct" not in row:
        raise DataError(f"{where}: no output: expected a column prediction or correct, got {found}.")


def _options(cell) -> list[str]:
    if isinstance(cell, list):
        return [as_text(option) for option in cell]
    return [option.strip() for option in as_text(cell).split("|")]


def _truth(where: str, cell) -> bool | None:
    text = as_text(cell).strip().casefold()
    if not text:
        return None
    if text not in _TRUTH:
        raise DataError(f"{where}: correct: expected 1, 0, true, false or an empty value, got {cell!r}.")
    return _TRUTH[text]


def as_text(cell) -> str:
    """Convert a cell to text; lone surrogates, which JSON can hold and Parquet cannot, become U+FFFD."""
    return sound("" if cell is None else str(cell))


def files_in(path: Path) -> list[Path]:
    """Return the result files at `path`. Raises DataError if there are none, or of several types."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{display_path(path)}: file or directory not found.")
    parquet = sorted((path / "tasks").glob("*.parquet")) or sorted(path.glob("*.parquet"))
    samples = sorted(path.rglob("samples_*.jsonl"))
    others = [each for pattern in ("*.csv", "*.tsv", "*.jsonl") for each in sorted(path.glob(pattern))]
    kinds = [files for files in (parquet, samples, [each for each in others if each not in samples]) if files]
    if not kinds:
        raise DataError(
            f"{display_path(path)}: no results found (expected .parquet, samples_*.jsonl, .csv, .tsv or .jsonl)."
        )
    if len(kinds) > 1:
        names = " and ".join(files[0].name for files in kinds)
        raise DataError(
            f"{display_path(path)}: results of several types ({names}). Specify one file, or separate them."
        )
    return kinds[0]
