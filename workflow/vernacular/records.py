"""Records: small JSON files that say what a model or encoder on this disk is."""

import json
from pathlib import Path

from vernacular.artifacts import replacing
from vernacular.errors import ArtifactError


def write_record(path, record: dict) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def read_record(path) -> dict:
    """Raises ArtifactError naming the file if it is missing or damaged."""
    try:
        record = json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path}: there is no such file.") from None
    except ValueError:
        raise ArtifactError(f"{path}: damaged; delete it to rebuild.") from None
    if not isinstance(record, dict) or "name" not in record:
        raise ArtifactError(f"{path}: holds no model's record; delete it to rebuild.")
    return record
