"""Functions shared by several commands: reading and checking inputs, and what states why results are missing."""

import logging
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.core.metadata import OutputsMetadata
from vernacular.core.records import read_record, write_record
from vernacular.data.schema import ITEMS
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.lm_eval.metrics import to_metric
from vernacular.protocols.schema import REQUESTS
from vernacular.types import ModelRecord

log = logging.getLogger("vernacular")


def items_in(path: Path) -> list[dict]:
    return artifacts.read(path, ITEMS).to_pylist(maps_as_pydicts="strict")


def inference_record(path: Path, spec: dict) -> dict:
    """Return a model's record, combined with the settings with which it is evaluated."""
    record = read_record(path)
    return record | spec["models"][record["name"]]


def check_recorded(path: Path, record: ModelRecord) -> None:
    """Raise ArtifactError if a model's or encoder's record lacks the hashes of its files, which a job verifies."""
    if not {"contents", "unavailable"} & record.keys():
        raise ArtifactError(f"{path}: hashes of the model's files not found. Delete this file and run snakemake again.")


def check_inputs(items: Path, requests: Path, outputs: Path, output_metadata: OutputsMetadata, model: dict) -> None:
    """Raise ArtifactError unless `outputs` are this model's outputs of these requests, built from these items."""
    check, request_metadata = artifacts.check_input_fingerprint, artifacts.metadata(requests, REQUESTS)
    check(requests, request_metadata.items.fingerprint, artifacts.metadata(items, ITEMS).fingerprint, "items")
    check(outputs, output_metadata.requests, request_metadata.fingerprint, "requests")
    check(outputs, output_metadata.model.fingerprint, model["fingerprint"], "models")


def checkpoints_in(spec: dict) -> dict[str, dict]:
    """Return the positions of the checkpoints of a spec by model, in the order of training; {} without series."""
    return {checkpoint["model"]: checkpoint for checkpoint in spec.get("checkpoints", [])}


def failure_of(args) -> str | None:
    """Return why an attempt of this command has ended: it then tries nothing but writes what states this reason."""
    return getattr(args, "failure", None)


def raise_failure(args) -> None:
    """Raise the reason why an attempt of this command has ended as ModelError; see `failure_of`."""
    if reason := failure_of(args):
        raise ModelError(reason)


def write_unavailable(args, reason: str) -> str:
    """Write a record that states why a model or encoder is unavailable; return one line about it."""
    spec = args.spec
    log.error(reason)
    source = spec.get("adapter") or spec["source"]
    write_record(args.out, {"name": spec["name"], "source": source, "unavailable": reason})
    return f"{args.command}: {spec['name']}: unavailable ({reason})"


def tool_metrics(directory: Path, models: list[str], evaluation: str) -> list[Metric]:
    """Return the metrics of an evaluation that any model's results in `directory` define; [] if none does."""
    paths = (directory / model / "tasks" / f"{evaluation}.parquet" for model in models)
    definitions = next((found for path in paths if (found := artifacts.metadata(path, TASK_RESULTS).metrics)), [])
    return [to_metric(definition) for definition in definitions]


def tool_documents(directory: Path, models: list[str], evaluation: str) -> str | None:
    """Return a hash of the documents that another tool has read for an evaluation; None without, or if unavailable."""
    for model in models:
        metadata = artifacts.metadata(directory / model / "tasks" / f"{evaluation}.parquet", TASK_RESULTS)
        if metadata.dataset and metadata.dataset.source.tasks is not None:
            return metadata.dataset.source.sha256
    return None
