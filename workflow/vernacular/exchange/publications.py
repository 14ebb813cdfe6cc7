"""Publications of other groups (`vernacular publish`) as external results, from their files of Every Eval Ever.

A model of a publication has a record, and a file with one line per item and metric. An item counts if its ID,
prompt, options and correct answers are those of this run; its values are used as they were published. The tables of a
publication, and the hashes of its items, are read for a leaderboard of several.

Other groups wrote them, so that they may contain anything: each file is read up to a limit and checked against the
schema of what is read of it, and names and values are checked before they become rows. Planning reads the records only.
"""

import contextlib
import functools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from string import ascii_uppercase
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from vernacular.core import artifacts, validate
from vernacular.core.errors import ArtifactError, DataError, first_of, format_count, suggest
from vernacular.core.names import check_readable, quoted
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.tables import CELL_LIMIT, rows_of, to_frame
from vernacular.data.readers import parse_object
from vernacular.exchange.classify import MIN_MATCHED_SHARE, SUPPORTED_PROTOCOLS, TOO_FEW, ExternalResult, build_row
from vernacular.metrics.metric import value_problem
from vernacular.metrics.schema import RESULTS, as_table
from vernacular.protocols.evaluate import declared_metrics
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import is_number

if TYPE_CHECKING:
    import pandas as pd

_SCHEMA = WORKFLOW / "schemas" / "publication.schema.yaml"
_RECORDS = "data/vernacular/*/*/*.json"
_BOM = b"\xef\xbb\xbf"
_MAX_RECORD, _MAX_SAMPLES, _MAX_LINE = 50_000_000, 4_000_000_000, 50_000_000  # bytes
_MAX_BYTES, _MAX_ROWS = 1_000_000_000, 1_000_000  # of a table
_NAMES = ("model", "evaluation", "task", "language", "protocol", "metric")
_OPTIONAL_NAMES = ("style", "prompt", "base", "baseline", "unit", "metric_group", "series", "curve")  # may be empty
_COUNTS = ("shots", "n", "n_flagged", "n_ties")
_UNITS = {"proportion": "share"}  # of Every Eval Ever
_Lines = dict[str, dict]  # by metric


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


def load_publication(path: Path, model: str | None, references: dict) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the results of one model as TASK_RESULTS tables by evaluation, and notes; see `load_external_results`.

    Args:
        model: Its name in the publication; None if the publication has only one.

    Raises DataError if no evaluation is one of `references`, or a file cannot be read or is not valid.
    """
    models = published_models(path)
    model = next(iter(models)) if model is None and len(models) == 1 else model
    if model not in models:
        raise DataError(f'{display_path(path)}: model "{model}" not found.{suggest(model, models)}')
    tables, notes, unknown = {}, [], []
    for evaluation, items in _read_lines(path, models[model], references).items():
        if evaluation not in references:
            unknown.append(evaluation)
            continue
        own = as_table(references[evaluation].rows).drop_columns(["metrics"]).to_pylist()
        by_id = {row["item_id"]: row for row in own}
        both = [(by_id[item], lines) for item, lines in items.items() if item in by_id]
        rows = [_row(own, lines) for own, lines in both if _fits(own, lines)]
        message = f"{display_path(path)}: {model}: {len(rows)} of {format_count(len(items), 'item')} match "
        message += f"the {format_count(len(by_id), 'item')} of {evaluation}"
        if len(rows) < MIN_MATCHED_SHARE * len(by_id):  # those that were selected may be the easy ones
            notes.append(f"{message}: {TOO_FEW} The data or the prompts may differ, or items are missing.")
        else:
            numbers = {item["item_id"] for item in references[evaluation].items if is_number(item)}
            protocol = references[evaluation].protocol
            n = sum([_follow_output(row, protocol) for row in rows if row["item_id"] not in numbers])
            message += f"; {n} with other scores than follow from their outputs, which are used" if n else ""
            tables[evaluation] = as_table(rows)
            notes.append(f"{message}.")
    if unknown:
        count = format_count(len(unknown), "unknown evaluation")
        notes.append(f"{display_path(path)}: {model}: {count}: {first_of(unknown)}")
    if not tables:
        raise DataError("\n".join(notes) or f"{display_path(path)}: {model}: no results per item.")
    return tables, notes


def _read_lines(path: Path, model: PublishedModel, references: dict) -> dict[str, dict[str, _Lines]]:
    """Return the lines of each item by evaluation, item and metric."""
    protocols = {evaluation: reference.protocol for evaluation, reference in references.items()}
    evaluations: dict[str, dict[str, _Lines]] = {}
    for _, metric, line in checked_lines(path, model, protocols):
        items = evaluations.setdefault(line["evaluation_name"], {})
        items.setdefault(line["sample_id"], {})[metric] = line
    return evaluations


def checked_lines(path: Path, model: PublishedModel, protocols: dict[str, str]) -> Iterator[tuple[str, str, dict]]:
    """Yield (location for messages, metric, line) of the results per item of a model.

    Args:
        path: The directory of the publication.
        protocols: Protocols of evaluations, whose metrics are known.

    Raises DataError, with file and line, if a line is not valid, contradicts another one, or has an impossible value.
    """
    if model.samples is None and "detailed_evaluation_results" in model.record:
        raise DataError(f"{display_path(model.record_file)}: the file of its results per item is missing.")
    results = {result["evaluation_result_id"]: result for result in model.record["evaluation_results"]}
    known = {evaluation: declared_metrics(protocol) for evaluation, protocol in protocols.items()}
    texts: dict[tuple[str, str], int] = {}  # hash of what all lines of an item share
    metrics: dict[tuple[str, str], set[str]] = {}
    for location, line in published_lines(model.samples, path) if model.samples else ():
        evaluation, result = line["evaluation_name"], results.get(line["evaluation_result_id"])
        if result is None or result["evaluation_name"] != evaluation:
            raise DataError(f"{location}: evaluation_result_id is not one of {evaluation} in the model's record.")
        metric, item = result["metric_config"]["metric_name"], (evaluation, line["sample_id"])
        if metric in metrics.setdefault(item, set()):
            raise DataError(f"{location}: second line of this item and of {metric} in {evaluation}.")
        metrics[item].add(metric)
        shared = hash(json.dumps([line["input"], line["output"], line.get("sample_hash")], sort_keys=True))
        if texts.setdefault(item, shared) != shared:
            raise DataError(f"{location}: input or output differs from that of another line of this item.")
        unit, score = result["metric_config"].get("metric_unit"), line["evaluation"]["score"]
        own = known.get(evaluation, {}).get(metric)
        if problem := value_problem(metric, score, _UNITS.get(unit, unit), own, per_item=True):
            raise DataError(f"{location}: evaluation.score: {problem}")
        if own and own.unit == "share" and line["evaluation"]["is_correct"] != (score == 1):
            raise DataError(f"{location}: evaluation.is_correct contradicts the score, {score} of {metric}.")
        yield location, metric, line


def _fits(own: dict, lines: _Lines) -> bool:
    """Return whether published lines have the texts of this run's row."""
    texts = next(iter(lines.values()))["input"]
    correct = [own["choices"][i] for i in own["gold"] if i < len(own["choices"])]
    return (texts["raw"], texts.get("choices") or [], texts["reference"]) == (own["prompt"], own["choices"], correct)


def _row(own: dict, lines: _Lines) -> dict:
    """Return the TASK_RESULTS row of an item from its lines, one per metric."""
    first = next(iter(lines.values()))
    prediction, details = first["output"]["raw"][0], first.get("metadata") or {}
    predicted = [index for index, choice in enumerate(own["choices"]) if choice == prediction]
    return {
        **{name: own[name] for name in ("item_id", "cluster_id", "category", "prompt", "choices", "gold")},
        "option_scores": None,
        "prediction": prediction,
        "predicted_indices": predicted if len(predicted) == 1 else None,
        "correct": first["evaluation"]["is_correct"] if own["choices"] else None,
        "tie": details.get("tie") == "True",
        "metrics": {metric: float(line["evaluation"]["score"]) for metric, line in lines.items()},
        "flags": details.get("flags"),
    }


_Value = tuple[str, str, str]  # model, evaluation, metric


def _follow_output(row: dict, protocol: str) -> bool:
    """Replace what follows from the output of a row; return whether the published scores were others."""
    if protocol not in SUPPORTED_PROTOCOLS or (row["flags"] or "").startswith("error"):
        return False
    result = ExternalResult("", (), item_id=row["item_id"], prediction=row["prediction"])
    found, _ = build_row(row, result, protocol)
    has_options = PROTOCOLS[protocol].external == "options"
    if has_options and row["tie"]:
        labels = ascii_uppercase if PROTOCOLS[protocol].letters else row["choices"]
        correct = {labels[i] for i in row["gold"]}
        found["metrics"] = {"accuracy": float({*(row["prediction"] or "").split(" | ")} <= correct)}
    elif has_options and found["flags"]:
        row |= {"metrics": {}, "correct": None, "flags": found["flags"]}
        return True
    own = {name: value for name, value in found["metrics"].items() if name in row["metrics"]}
    differs = {name: own[name] for name in own if not math.isclose(row["metrics"][name], own[name], abs_tol=1e-6)}
    row["metrics"] |= differs
    if "accuracy" in differs:
        row["correct"] = bool(differs["accuracy"])
    return bool(differs)


@dataclass(frozen=True)
class PublishedTables:
    """Values of a publication, means over prompts, and {evaluation: {item: hash of its texts}}.

    `computed`: values that are means of the results per item, {value: why another one was stated, None if none was};
    the others are as their publisher states them.
    """

    values: "pd.DataFrame"
    prompts: list[dict]
    hashes: dict[str, dict[str, str]]
    computed: dict[_Value, str | None]


def read_tables(directory: Path, prompts: artifacts.Kind) -> PublishedTables:
    """Read the tables of a publication. Raises DataError, with file and reason, if one is not valid.

    `prompts`: the kind of its table of means over prompts.
    """
    check_readable(directory.name, display_path(directory.parent), "directory name")
    values = _read(directory, "results.parquet", RESULTS)
    rows = rows_of(values)
    location = display_path(directory / "tables" / "results.parquet")
    _check_rows(rows, location)
    for row in rows:
        if problem := _value_problem(row):
            raise DataError(f"{location}: {row['model']}, {row['evaluation']}: {problem}")
    protocols = {row["evaluation"]: row["protocol"] for row in rows}
    hashes, scores = _read_items(directory, protocols)
    computed = _recompute(rows, scores)
    values = pa.Table.from_pylist(rows, schema=values.schema)
    return PublishedTables(to_frame(values), _read_prompts(directory, prompts), hashes, computed)


def _recompute(rows: list[dict], scores: dict[_Value, list[float]]) -> dict[_Value, str | None]:
    """Replace values over all items that are means, by the means of `scores`; see `PublishedTables.computed`."""
    computed: dict[_Value, str | None] = {}
    for row in rows:
        metric = declared_metrics(row["protocol"]).get(row["metric"])
        own = scores.get(key := (row["model"], row["evaluation"], row["metric"]))
        if not own or metric is None or metric.corpus or row["category"]:
            continue
        value, n, computed[key] = fmean(own), len(own), None
        if row["n"] != n or row["value"] is None or not math.isclose(row["value"], value, rel_tol=1e-6, abs_tol=1e-9):
            stated = "no value" if row["value"] is None else f"{row['value']:.6g}"
            computed[key] = f"{stated} of n = {row['n']} is stated, and its {n} results per item give {value:.6g}"
            row |= {"value": value, "n": n, "ci_low": None, "ci_high": None}
    return computed


def _read_prompts(directory: Path, kind: artifacts.Kind) -> list[dict]:
    file = directory / "tables" / "prompts.parquet"
    if not (file.exists() or file.is_symlink()):  # a publication of an earlier version
        return []
    rows = rows_of(_read(directory, file.name, kind))
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
        for cell in dict.fromkeys(row[column] for row in rows if not isinstance(row[column], list)):  # in their order
            if column in _NAMES or (column in _OPTIONAL_NAMES and cell):
                check_readable(cell, location, column)
            if column not in _NAMES and isinstance(cell, str) and len(cell) > CELL_LIMIT:
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


def _read_items(directory: Path, protocols: dict[str, str]) -> tuple[dict, dict[_Value, list[float]]]:
    """Return ({evaluation: {item: hash of its texts}}, results per item of each value), of all models."""
    hashes: dict[str, dict[str, str]] = {}
    scores: dict[_Value, list[float]] = {}
    if not (directory / "data").exists():
        return hashes, scores
    for name, model in published_models(directory).items():
        for location, metric, line in checked_lines(directory, model, protocols):
            evaluation = line["evaluation_name"]
            items, digest = hashes.setdefault(evaluation, {}), line.get("sample_hash")
            if digest is not None and items.setdefault(line["sample_id"], digest) != digest:
                raise DataError(f"{location}: sample_hash differs from that of another model's line of this item.")
            scores.setdefault((name, evaluation, metric), []).append(float(line["evaluation"]["score"]))
    return hashes, scores
