"""Checks of the directories that a config names for results (`output:`) and for the store (`store:`)."""

import os
from pathlib import Path

DEFAULT_STORE = "results/store"
_WRITTEN = ("resources", "logs", "benchmarks", ".snakemake")  # by the workflow, in addition to `output:`


def output_directory(setting: str, report) -> str:
    """Return the directory of the results without creating it; report a path that other files of the run are in."""
    output = os.path.normpath(os.path.expanduser(setting))
    path = Path(os.path.abspath(output))
    if Path.cwd().is_relative_to(path):
        report(f'expected a directory of its own, got "{setting}", which contains the working directory.')
    for name in _WRITTEN:
        if path.is_relative_to(os.path.abspath(name)):
            report(f'expected a directory outside of {name}/, which the workflow uses, got "{setting}".')
    _check_access(setting, path, report)
    return output


def store_directory(setting: str, output: str, report) -> str:
    """Return the store's directory without creating it; report a directory that the workflow clears."""
    store = os.path.expanduser(setting)
    path = Path(os.path.abspath(store))
    stores = (DEFAULT_STORE, f"{output}/store")
    for name in ("results", output, *_WRITTEN):
        if path.is_relative_to(os.path.abspath(name)) and not any(
            path.is_relative_to(Path(s).absolute()) for s in stores
        ):
            report(
                f'expected {stores[-1]} or a directory outside of {name}/, which the workflow clears, got "{setting}".'
            )
            return store
    _check_access(setting, path, report)
    return store


def _check_access(setting: str, path: Path, report) -> None:
    """Report a path that is not a directory, or that can be neither read nor created."""
    existing = next(directory for directory in (path, *path.parents) if os.path.lexists(directory))
    if not existing.is_dir():
        report(f'expected a directory, got "{setting}": {existing} is not a directory.')
        return
    needed = os.X_OK | (os.R_OK if existing == path else os.W_OK)
    if not os.access(existing, needed, effective_ids=os.access in os.supports_effective_ids):
        action = "read" if existing == path else "created"
        report(f'"{setting}" cannot be {action}: permission denied in {existing}.')
