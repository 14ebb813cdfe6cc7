"""Functions shared by several commands: reading items, settings of a model, consistency checks of inputs."""

from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.metadata import OutputsMetadata
from vernacular.core.model_record import ModelRecord, read_model
from vernacular.data.schema import ITEMS
from vernacular.protocols.schema import REQUESTS


def items_in(path: Path) -> list[dict]:
    return artifacts.read(path, ITEMS).to_pylist(maps_as_pydicts="strict")


def inference_record(path: Path, spec: dict) -> dict:
    """Return a model's record, combined with the settings with which it is evaluated."""
    record = read_model(path)
    return record | spec["models"][record.name]


def check_recorded(path: Path, record: ModelRecord) -> None:
    """Raise ArtifactError if a model's or encoder's record lacks the hashes of its files, which a job verifies."""
    if record.contents is None and record.server is None and record.unavailable is None:
        raise ArtifactError(f"{path}: hashes of the model's files not found. Delete this file and run snakemake again.")


def check_inputs(
    items: Path, requests: Path, outputs: Path, output_metadata: OutputsMetadata, model: ModelRecord
) -> None:
    """Raise ArtifactError unless `outputs` are this model's outputs of these requests, built from these items."""
    check, request_metadata = artifacts.check_input_fingerprint, artifacts.metadata(requests, REQUESTS)
    check(requests, request_metadata.items.fingerprint, artifacts.metadata(items, ITEMS).fingerprint, "items")
    check(outputs, output_metadata.requests, request_metadata.fingerprint, "requests")
    check(outputs, output_metadata.model.fingerprint, model.fingerprint, "models")


def checkpoints_in(spec: dict) -> dict[str, dict]:
    """Return the positions of the checkpoints of a spec by model, in the order of training; {} without series."""
    return {checkpoint["model"]: checkpoint for checkpoint in spec.get("checkpoints", [])}
