"""State of the files that results depend on: data files by content, and those of a recorded model by its record."""

import functools
import os
from pathlib import Path

from vernacular.checkpoints import inputs
from vernacular.checkpoints.deleted import is_deleted
from vernacular.config.load import Config
from vernacular.core.contents import stamp
from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import file_fingerprint, fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.core.records import read_record
from vernacular.data.treebank.patterns import local_files as treebank_files
from vernacular.types import Evaluation


def data_files(config: Config, evaluation: Evaluation) -> list[str]:
    """Return the paths of a dataset's local files, including missing ones; none for the Hub or the web.

    They are not inputs of the rule: Snakemake would stop at a missing file, and compare times instead of contents.
    """
    language = config.tasks[evaluation.task]["languages"][evaluation.language]
    samples = WORKFLOW / "samples" / evaluation.task / evaluation.language
    task_dir = Path(config.tasks[evaluation.task]["directory"])
    if evaluation.data != "samples" or not samples.is_dir():
        sources = [source for source in language["source"] if "treebank" in source]
        treebanks = [file for source in sources for file in treebank_files(source, task_dir)]
        if treebanks:
            return [os.path.relpath(file) for file in treebanks]
    entries = [source.get(key) for source in language["source"] for key in ("file", "few_shot") if "file" in source]
    files = [file for entry in entries for file in (entry if isinstance(entry, list) else [entry]) if file]
    if local_files := [file for file in files if "://" not in file]:
        return [os.path.relpath(task_dir / Path(file).expanduser()) for file in local_files]
    if evaluation.data == "samples":
        return sorted(os.path.relpath(file) for file in samples.iterdir())
    return []


@functools.cache  # a file with a new time is hashed; a job's key must not change while it runs
def files_key(path: Path, is_checkpoint: bool = False) -> str:
    """Return a text that changes with the files of the model or encoder recorded at `path`.

    It is the text stored in the record as long as the files are unchanged, by size, times and inode, or else by
    content. Without a record, nothing is hashed here; the job that writes it does so. A checkpoint of a series that was
    deleted is as recorded.
    """
    try:
        record = read_record(path)
    except ArtifactError:
        return "damaged" if path.exists() else "not recorded yet"
    recorded_key = record.get("files_key") or "not recorded yet"
    if is_checkpoint and is_deleted(record):
        return recorded_key
    changed_paths = inputs.stale(record)
    return (
        f"{recorded_key[:16]} changed: {fingerprint([{path: _stamp(path) for path in changed_paths}, recorded_key])}"
        if changed_paths
        else recorded_key
    )


def _stamp(path: str) -> dict[str, int] | None:
    try:
        return stamp(os.stat(path))
    except OSError:
        return None


@functools.cache  # many evaluations share a file, which does not change during planning
def content_hash(path: str) -> str | None:
    """Return the SHA-256 of a data file; None if it is missing, which its job reports."""
    try:
        return file_fingerprint(path)
    except OSError:
        return None
