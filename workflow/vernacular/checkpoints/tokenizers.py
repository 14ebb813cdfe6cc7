"""Tokenizers of models behind a server: the files of a tokenizer alone, from any source of a model."""

import os
import shutil
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.checkpoints.files import check_tokenizer
from vernacular.checkpoints.resolve import locate
from vernacular.core.errors import ModelError
from vernacular.core.hub_snapshot import snapshot
from vernacular.core.model_record import ModelRecord

PATTERNS = [pattern for pattern in inputs.PATTERNS if pattern != "*.safetensors"]


def tokenizer_files(directory: Path) -> list[str]:
    """Return the names of the files in `directory` that a tokenizer is read from, without indexes of weights."""
    names = sorted(entry.name for entry in os.scandir(directory) if entry.is_file())
    return [
        name
        for name in names
        if any(fnmatchcase(name, pattern) for pattern in PATTERNS) and not name.endswith(".index.json")
    ]


def resolve_tokenizer(name: str, source: str, conversion_dir: Path) -> ModelRecord:
    """Copy the tokenizer at `source` to a directory of its own in `conversion_dir`; return the record of its files.

    Raises:
        ModelError: The source is not found, or has no tokenizer.
    """
    if source.startswith(("package:", ".", "/", "~")) or ".gguf" in source:
        path, revision, is_gguf = locate(source)
    else:
        repository, _, commit = source.partition("@")
        errors = {"error_class": ModelError, "missing_file_error": ModelError}
        path = snapshot(repository, commit or None, PATTERNS, repo_type="model", **errors)
        revision, is_gguf = path.name, False
    conversion_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=conversion_dir, prefix=".tokenizer.") as temporary:
        copy = Path(temporary) / "tokenizer"
        copy.mkdir()
        if is_gguf:
            from vernacular.checkpoints.gguf_conversion import read_tokenizer

            read_tokenizer(path).save_pretrained(copy)
        elif path.is_dir():
            for file in tokenizer_files(path):
                shutil.copyfile(path / file, copy / file)
        check_tokenizer(name, copy)
        identity = inputs.identity(inputs.record_of(copy))
        directory = conversion_dir / f"tokenizer.{identity[:12]}"
        if not directory.exists() or inputs.identity(inputs.record_of(directory)) != identity:
            shutil.rmtree(directory, ignore_errors=True)
            os.replace(copy, directory)
    location, contents = str(directory.resolve()), inputs.record_of(directory)
    return ModelRecord(
        name=name, source=source, directory=location, revision=revision, fingerprint=identity, contents=contents
    )
