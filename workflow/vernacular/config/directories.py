"""Checks of the directories that a config names for results (`output:`) and for the store (`store:`)."""

import os
from collections.abc import Iterator
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.paths import display_path
from vernacular.core.written import foreign_files, named_files

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


def benchmarks_directory(output: str) -> str:
    """Return the directory of the times of jobs, one per directory of results: configs share names of models.

    >>> benchmarks_directory("results"), benchmarks_directory("runs/second")
    ('benchmarks', 'benchmarks/runs--second')
    """
    return "benchmarks" if output == "results" else f"benchmarks/{output.strip('/').replace('/', '--')}"


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


def output_conflicts(results: Path, exports: list[str], config_files: list[str]) -> Iterator[str]:
    """Yield why a run would replace what is not its own: files of a user, or the results of another config file.

    Args:
        results: Directory of the results.
        exports: Directories of exports, as `{model}/{evaluation}`.
        config_files: The files of the config.
    """
    directories = {"report": "report", "comparisons": "comparisons"} | dict.fromkeys(
        (f"exports/{name}" for name in exports), "exports"
    )
    directories |= {f"summary/{name}": name for name in ("lm_eval", "every_eval_ever")}
    for name, kind in directories.items():
        if foreign := foreign_files(results / name, kind):
            files = named_files(results / name, foreign)
            yield (
                f"{display_path(results / name)}: expected only files that a run wrote, which the next run replaces, "
                f"got {files}. Move these to another directory, or choose another output."
            )
    summary = results / "summary" / "results.parquet"
    try:
        recorded = artifacts.metadata(summary, allow_moved=True).get("config", [])
    except ArtifactError:  # no results, or those of an earlier version
        return
    previous = [os.path.realpath(summary.parent / name) for name in recorded]
    if previous != list(map(os.path.realpath, config_files)) and previous and all(map(os.path.exists, previous)):
        yield (
            f"{_names(config_files)}: {display_path(results)} has the results of {_names(previous)}. Choose another "
            f"output in one of the files, or delete {display_path(summary)} to replace these results."
        )


def _names(files: list[str]) -> str:
    return " + ".join(map(display_path, files))
