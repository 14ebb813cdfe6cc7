"""Records: small JSON files that say what a model or encoder on this disk is, and how a model was asked."""

import json
from pathlib import Path

from vernacular.artifacts import replacing
from vernacular.errors import ArtifactError


def write_record(path, record: dict) -> None:
    _write(path, record)


def read_record(path) -> dict:
    """Raises ArtifactError naming the file if it is missing or damaged."""
    record = _read(path)
    if not isinstance(record, dict) or "name" not in record:
        raise ArtifactError(f"{path}: holds no model's record; delete it to rebuild.")
    return record


def write_asked(path, done: dict[str, dict[str, str]], failed: dict[str, dict[str, str]]) -> None:
    """What a job leaves: by model and evaluation how it was answered ("computed", …), or {"failed": the reason}."""
    names = dict.fromkeys([*done, *failed])
    wrong = {name: {e: {"failed": reason} for e, reason in failed.get(name, {}).items()} for name in names}
    _write(path, {name: done.get(name, {}) | wrong[name] for name in names})


def failures(path, name: str | None = None) -> dict:
    """Evaluation -> why one model could not answer it; or of all models, by name.

    Raises ArtifactError naming the file if it is missing or damaged.
    """
    asked = _read(path)
    if not isinstance(asked, dict) or not all(isinstance(of_model, dict) for of_model in asked.values()):
        raise ArtifactError(f"{path}: does not say what was asked; delete it to rebuild.")
    found = {
        model: {e: how["failed"] for e, how in of_model.items() if isinstance(how, dict) and "failed" in how}
        for model, of_model in asked.items()
    }
    if name is None:
        return found
    if name not in found:
        raise ArtifactError(f"{path}: does not say what {name} was asked; delete it to rebuild.")
    return found[name]


def _write(path, content: dict) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def _read(path):
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path}: there is no such file.") from None
    except (ValueError, RecursionError):
        raise ArtifactError(f"{path}: damaged; delete it to rebuild.") from None
