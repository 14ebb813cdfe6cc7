"""Records: small JSON files that describe models and encoders on this disk, and the status of inference jobs."""

import json
from dataclasses import asdict
from pathlib import Path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import fingerprint
from vernacular.core.metadata import Outcome

_DAMAGED = "{}: damaged, or of another version; delete it to rebuild."


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


def write_status(path, models: dict[str, dict[str, Outcome]]) -> None:
    """Write the status of an inference job: the outcomes of its evaluations, by model and evaluation."""
    entries = {name: {e: asdict(outcome) for e, outcome in outcomes.items()} for name, outcomes in models.items()}
    _write(path, {"models": entries})


def read_status(path) -> dict[str, dict[str, Outcome]]:
    """Return the outcomes of an inference job by model and evaluation; raise ArtifactError as `read_record` does."""
    try:
        models = _read(path)["models"]
        return {name: {e: Outcome(**entry) for e, entry in entries.items()} for name, entries in models.items()}
    except (LookupError, AttributeError, TypeError):
        raise ArtifactError(_DAMAGED.format(path)) from None


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
        raise ArtifactError(_DAMAGED.format(path))
    return content


def backup_path(path: Path) -> Path:
    """Return where the last record is kept, because Snakemake deletes an output before its job recreates it."""
    return path.parent / ".known" / path.name
