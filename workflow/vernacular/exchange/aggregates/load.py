"""Which files hold aggregates, and their values, by the reader of their format."""

import json
from pathlib import Path

from vernacular.core.errors import DataError, first_of, format_count
from vernacular.core.paths import display_path
from vernacular.data.readers import located_rows, parse_json, read_text
from vernacular.exchange.aggregates import euroeval, every_eval_ever, lighteval, lm_eval, olmo_eval
from vernacular.exchange.aggregates.rows import Aggregate, aggregate

_READERS = (every_eval_ever, lighteval, lm_eval, olmo_eval, euroeval)
_FORMATS = "Every Eval Ever, EuroEval, lm-eval, lighteval, olmo-eval"
_MAX_BYTES, _MAX_ROWS = 50_000_000, 100_000


def is_aggregates(file: Path) -> bool:
    """Return whether a file, an object of JSON or a line for each, is of a format of values without items."""
    if file.suffix not in (".json", ".jsonl") or not file.is_file() or file.stat().st_size > _MAX_BYTES:
        return False
    with open(file, "rb") as content:
        first = content.read() if file.suffix == ".json" else next((line for line in content if line.strip()), b"")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):  # reported where the file is read
        return False
    return isinstance(record, dict) and any(reader.fits(record) for reader in _READERS)


def read_aggregates(file: Path) -> tuple[list[Aggregate], list[str]]:
    """Return the values of a file, and a note on those that are not used.

    Raises:
        DataError: The file, or a line of it, is of no known format.
    """
    name = display_path(file)
    used: list[Aggregate] = []
    unusable: list[str] = []
    for location, content in located_rows(file, "jsonl", name=name) if file.suffix == ".jsonl" else _content(file):
        reader = next((each for each in _READERS if each.fits(content)), None)
        if reader is None:
            keys = first_of(list(content), 8)
            raise DataError(f"{location}: not a file of results of {_FORMATS} (keys: {keys or 'none'}).")
        for found in (aggregate(name, **stated) for stated in reader.read(content)):
            (unusable if isinstance(found, str) else used).append(found)
        if len(used) + len(unusable) > _MAX_ROWS:
            raise DataError(f"{name}: has more than {_MAX_ROWS:,} values.")
    if unusable:
        count = f"{format_count(len(unusable), 'value')} not used ({first_of(unusable, 4)})"
        return used, [f"{name}: {count}: no number, or outside of the range of the metric."]
    return used, [] if used else [f"{name}: no values."]


def _content(file: Path) -> list[tuple[str, dict]]:
    name = display_path(file)
    content = parse_json(read_text(file, name, "json"), name)  # with NaN, which Python's writers write
    if not isinstance(content, dict):
        raise DataError(f"{name}: expected an object of results of {_FORMATS}, got a {type(content).__name__}.")
    return [(name, content)]
