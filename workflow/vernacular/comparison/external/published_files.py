"""The files of a publication (`vernacular publish`): its models, and their records in the format of Every Eval Ever.

Other groups wrote them, so that they may contain anything: each is read up to a limit, and checked against the schema
of what is read of it. Planning reads the records; it does not read the results per item (`publications.py`).
"""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vernacular.core import validate
from vernacular.core.errors import DataError, suggest
from vernacular.core.names import check_readable, quoted
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.data.readers import parse_object

_SCHEMA = WORKFLOW / "schemas" / "publication.schema.yaml"
_RECORDS = "data/vernacular/*/*/*.json"
_BOM = b"\xef\xbb\xbf"
_MAX_RECORD, _MAX_SAMPLES, _MAX_LINE = 50_000_000, 4_000_000_000, 50_000_000  # bytes


@dataclass(frozen=True)
class PublishedModel:
    """Files of one model of a publication: its record, with the content, and its results per item."""

    record: dict
    record_file: Path
    samples: Path | None  # None: without results per item

    @property
    def files(self) -> list[Path]:
        return [file for file in (self.record_file, self.samples) if file]


def is_publication(path: Path) -> bool:
    """Return whether `path` is a directory that `vernacular publish` wrote."""
    return (path / "data" / "vernacular").is_dir() and (path / "tables" / "results.parquet").is_file()


def published_models(path: Path) -> dict[str, PublishedModel]:
    """Return the files of each model of a publication, by its name.

    Raises DataError if a record cannot be read or is not valid, or a model has two.
    """
    models: dict[str, PublishedModel] = {}
    for file in sorted(path.glob(_RECORDS)):
        record = _read_record(file, path)
        name = record["model_info"]["name"]
        if name in models:
            other = display_path(models[name].record_file)
            raise DataError(f"{display_path(file)}: second record of model {quoted(name)}; the first is {other}.")
        samples = file.with_name(f"{file.stem}_samples.jsonl")
        has_samples = samples.exists() or samples.is_symlink()
        if has_samples:
            check_file(samples, path, _MAX_SAMPLES)
        models[name] = PublishedModel(record, file, samples if has_samples else None)
    if not models:
        raise DataError(f"{display_path(path)}: no records of models ({_RECORDS}).")
    return models


def published_signatures(path: Path, model: str) -> dict[tuple[str, str], str]:
    """Return the signatures of a model's values, by evaluation and metric."""
    return {
        (result["evaluation_name"], result["metric_config"]["metric_name"]): signature
        for result in published_models(path)[model].record["evaluation_results"]
        if (signature := result["metric_config"].get("additional_details", {}).get("signature"))
    }


def check_model(path: Path, model: str | None) -> str | None:
    """Return why the model of an entry of `external_results:` is not valid; None if it is."""
    if not is_publication(path):
        return None if model is None else "model requires a directory that `vernacular publish` wrote as the path."
    models = published_models(path)
    if model is not None and model not in models:
        return f'"{model}" is not in this publication.{suggest(model, models)}'
    return None


def published_lines(file: Path, root: Path) -> Iterator[tuple[str, dict]]:
    """Yield the lines of a file of results per item, each with its location for messages.

    `root` is the directory of the publication. Raises DataError, with file and line, if a line is not valid.
    """
    is_valid, schema, name = _line_validator(), validate.schema(_SCHEMA)["$defs"]["line"], display_path(file)
    with _opened(file, root, _MAX_SAMPLES) as content:
        for number, data in enumerate(iter(lambda: content.readline(_MAX_LINE + 1), b""), start=1):
            location = f"{name}, line {number}"
            if len(data) > _MAX_LINE:
                raise DataError(f"{location}: has more than {_MAX_LINE:,} bytes.")
            line = parse_object(data.removeprefix(_BOM) if number == 1 else data, location)
            if not is_valid(line):
                raise DataError(f"{location}: {validate.first_violation(line, schema) or 'not valid.'}")
            check_readable(line["evaluation_name"], location, "evaluation_name")
            yield location, line


@functools.cache
def _line_validator():
    """Return a function of a line; compiled, because jsonschema takes a quarter of a millisecond for each."""
    import fastjsonschema

    validator = fastjsonschema.compile(validate.schema(_SCHEMA)["$defs"]["line"])

    def is_valid(line: dict) -> bool:
        try:
            validator(line)
        except fastjsonschema.JsonSchemaValueException:
            return False
        return True

    return is_valid


def _read_record(file: Path, root: Path) -> dict:
    location = display_path(file)
    with _opened(file, root, _MAX_RECORD) as content:
        record = parse_object(content.read(_MAX_RECORD).removeprefix(_BOM), location)
    if problem := validate.first_violation(record, validate.schema(_SCHEMA)["$defs"]["record"]):
        raise DataError(f"{location}: {problem}")
    check_readable(record["model_info"]["name"], location, "model_info.name")
    ids = set()
    for result in record["evaluation_results"]:
        check_readable(result["evaluation_name"], location, "evaluation_name")
        check_readable(result["metric_config"]["metric_name"], location, "metric_name")
        if result["evaluation_result_id"] in ids:
            raise DataError(f"{location}: two values of {quoted(result['evaluation_result_id'])}.")
        ids.add(result["evaluation_result_id"])
    return record


@contextlib.contextmanager
def _opened(file: Path, root: Path, limit: int) -> Iterator[BinaryIO]:
    """Open a file of a publication; raise errors of the file system inside the block as DataError."""
    check_file(file, root, limit)
    try:
        with open(file, "rb") as content:
            yield content
    except OSError as error:
        raise DataError(f"{display_path(file)}: cannot be read ({error.strerror}).") from None


def check_file(file: Path, root: Path, limit: int) -> None:
    """Raise DataError unless `file` is a regular file of the publication, and not larger than `limit` bytes."""
    name = display_path(file)
    try:
        is_inside = file.resolve(strict=True).is_relative_to(root.resolve())
        is_file, size = file.is_file(), file.stat().st_size
    except RuntimeError:
        raise DataError(f"{name}: cannot be read (a loop of links).") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror}).") from None
    if not is_inside:  # the file of another user, or a device
        raise DataError(f"{name}: is a link to a file outside of the publication.")
    if not is_file:  # opening a pipe blocks until it has a writer
        raise DataError(f"{name}: is not a regular file.")
    if size > limit:
        raise DataError(f"{name}: has {size:,} bytes; expected at most {limit:,}.")
