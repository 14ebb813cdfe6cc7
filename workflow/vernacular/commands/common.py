"""Functions shared by several commands: reading items, settings of a model, consistency checks of inputs."""

import logging
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.core.records import read_record, write_record
from vernacular.data.schema import ITEMS
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


def check_inputs(items: Path, requests: Path, outputs: Path, output_metadata: dict, model: dict) -> None:
    """Raise ArtifactError unless `outputs` are this model's outputs of these requests, built from these items."""
    check, request_metadata = artifacts.check_input_fingerprint, artifacts.metadata(requests)
    check(requests, request_metadata["items"]["fingerprint"], artifacts.metadata(items)["fingerprint"], "items")
    check(outputs, output_metadata.get("requests"), request_metadata["fingerprint"], "requests")
    check(outputs, output_metadata["model"]["fingerprint"], model["fingerprint"], "models")


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
