"""Records: small JSON files that describe models and encoders on this disk, and the status of inference jobs."""

import json
from pathlib import Path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import fingerprint


def write_record(path, record: dict) -> None:
    """Write a record to `path`, which ends in `{record name}.json`."""
    _write(path, record)


def read_record(path) -> dict:
    """Read a record; raise ArtifactError if the file is missing, damaged, or of another model."""
    record = _read(path)
    expected = Path(path).name.removesuffix(".json")
    if record.get("name") != expected:
        raise ArtifactError(
            f'{path}: expected the record of "{expected}", got that of "{record.get("name")}"; delete it to rebuild.'
        )
    return record


def write_status(path, outcomes: dict[str, dict[str, str]], failed: dict[str, dict[str, str]]) -> None:
    """Write the status of an inference job: by model and evaluation, "computed" etc., or {"failed": reason}."""
    names = dict.fromkeys([*outcomes, *failed])
    failed_entries = {name: {e: {"failed": reason} for e, reason in failed.get(name, {}).items()} for name in names}
    _write(path, {"models": {name: outcomes.get(name, {}) | failed_entries[name] for name in names}})


def failures(path, name: str | None = None) -> dict:
    """Return {evaluation: reason} of the failures of one model; without a `name`, of all models by name.

    Raises:
        ArtifactError: The file is missing or damaged, or has no entry for the model.
    """
    failed = {
        model: {
            e: outcome["failed"] for e, outcome in entries.items() if isinstance(outcome, dict) and "failed" in outcome
        }
        for model, entries in _read(path).get("models", {}).items()
    }
    if name is None:
        return failed
    if name not in failed:
        raise ArtifactError(f'{path}: no entry for model "{name}"; delete it to rebuild.')
    return failed[name]


def outcomes(path) -> dict[str, dict]:
    """Return how each evaluation was completed, or {"failed": reason}, by model. Raises ArtifactError if damaged."""
    return _read(path).get("models", {})


def add_failures(path, name: str, failed: dict[str, str]) -> None:
    """Add failed evaluations of one model, {evaluation: reason}, to the status of an inference job."""
    models = _read(path).get("models", {})
    entries = {e: {"failed": reason} for e, reason in failed.items()}
    _write(path, {"models": models | {name: models.get(name, {}) | entries}})


def _write(path, content: dict) -> None:
    content = {**content, "sha256": fingerprint(content)}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def _read(path) -> dict:
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        digest = content.pop("sha256")
        is_intact = digest == fingerprint(content)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: file not found.") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise ArtifactError(f"{path}: damaged, or of another version; delete it to rebuild.")
    return content


def write_with_copy(path: Path, record: dict) -> None:
    """Write a record, and a copy for `last_record`, because Snakemake deletes an output before its job recreates it."""
    for each in (_copy_of(path), path):
        write_record(each, record)


def last_record(path: Path) -> dict | None:
    """Return the last record that was written to `path` with a copy, also if it was deleted; None if there is none."""
    try:
        return read_record(_copy_of(path))
    except ArtifactError:
        return None


def _copy_of(path: Path) -> Path:
    return path.parent / ".known" / path.name
