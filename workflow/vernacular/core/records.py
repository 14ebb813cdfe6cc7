"""Records: small JSON files that say what a model or encoder on this disk is, and how a model was asked."""

import json
from pathlib import Path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import fingerprint


def write_record(path, record: dict) -> None:
    """Write a record to `{its name}.json`."""
    _write(path, record)


def read_record(path) -> dict:
    """Raises ArtifactError naming the file if it is missing, damaged, or another model's."""
    record = _read(path)
    if record.get("name") != Path(path).name.removesuffix(".json"):
        raise ArtifactError(f"{path}: holds the record of {record.get('name')}; delete it to rebuild.")
    return record


def write_asked(path, done: dict[str, dict[str, str]], failed: dict[str, dict[str, str]]) -> None:
    """What a job leaves: by model and evaluation how it was answered ("computed", …), or {"failed": the reason}."""
    names = dict.fromkeys([*done, *failed])
    wrong = {name: {e: {"failed": reason} for e, reason in failed.get(name, {}).items()} for name in names}
    _write(path, {"models": {name: done.get(name, {}) | wrong[name] for name in names}})


def failures(path, name: str | None = None) -> dict:
    """Evaluation -> why one model could not answer it; or of all models, by name.

    Raises ArtifactError naming the file if it is missing or damaged.
    """
    found = {
        model: {e: how["failed"] for e, how in of_model.items() if isinstance(how, dict) and "failed" in how}
        for model, of_model in _read(path).get("models", {}).items()
    }
    if name is None:
        return found
    if name not in found:
        raise ArtifactError(f"{path}: does not say what {name} was asked; delete it to rebuild.")
    return found[name]


def add_failures(path, name: str, failed: dict[str, str]) -> None:
    """Add evaluations of one model that turned out to have failed, and why, to what a job left."""
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
        raise ArtifactError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise ArtifactError(f"{path}: damaged, or of another version; delete it to rebuild.")
    return content
