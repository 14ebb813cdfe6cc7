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


def write_asked(path, done: dict[str, dict[str, str]], failed: dict[str, dict[str, str]]) -> None:
    """Write the status of an inference job: by model and evaluation, "computed" etc., or {"failed": reason}."""
    names = dict.fromkeys([*done, *failed])
    wrong = {name: {e: {"failed": reason} for e, reason in failed.get(name, {}).items()} for name in names}
    _write(path, {"models": {name: done.get(name, {}) | wrong[name] for name in names}})


def failures(path, name: str | None = None) -> dict:
    """Return {evaluation: reason} of the failures of one model; without a `name`, of all models by name.

    Raises:
        ArtifactError: The file is missing or damaged, or has no entry for the model.
    """
    found = {
        model: {e: how["failed"] for e, how in of_model.items() if isinstance(how, dict) and "failed" in how}
        for model, of_model in _read(path).get("models", {}).items()
    }
    if name is None:
        return found
    if name not in found:
        raise ArtifactError(f'{path}: no entry for model "{name}"; delete it to rebuild.')
    return found[name]


def add_failures(path, name: str, failed: dict[str, str]) -> None:
    """Add failed evaluations of one model, {evaluation: reason}, to the status of an inference job."""
    models = _read(path).get("models", {})
    _write(path, {"models": models | {name: models.get(name, {}) | {e: {"failed": why} for e, why in failed.items()}}})


def _write(path, content: dict) -> None:
    content = {**content, "sha256": fingerprint(content)}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def _read(path) -> dict:
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        digest = content.pop("sha256")
        whole = digest == fingerprint(content)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: file not found.") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise ArtifactError(f"{path}: damaged, or of another version; delete it to rebuild.")
    return content
