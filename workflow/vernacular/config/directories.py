"""Where a run is: the directories of results (`output:`) and store (`store:`), config file, package of the rules.

In a workflow that imports this one as a module, the directories are below the module's `prefix:`.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, UserError
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.written import foreign_files, named_files

DEFAULT_STORE = "results/store"
_CONFIG_FILES = ("config.yaml", "config/config.yaml")
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


def default_config() -> str:
    """Return the config file of the working directory; the first of the two names if neither exists."""
    return next(filter(os.path.exists, _CONFIG_FILES), _CONFIG_FILES[0])


def rule_files() -> list[str]:
    """Return the names of the files of rules."""
    return sorted(path.name for path in (WORKFLOW / "rules").glob("*.smk"))


def check_package(rules: str, copies: list[str]) -> None:
    """Check that the imported package belongs to the rules.

    Python imports one package of a name: of two checkouts in one workflow, one would run with the code of the other.

    Args:
        rules: Directory of the rules, or the address of one that is not on this disk.
        copies: Files of rules from that address, as `rule_files` names them.

    Raises:
        UserError: The package is of another checkout or version.
    """
    if os.path.isdir(rules):
        if not os.path.samefile(rules, WORKFLOW / "rules"):
            raise UserError(
                f"{display_path(rules)}: the package vernacular was already imported from {display_path(WORKFLOW)}. "
                "All modules of a workflow must use the same copy of Vernacular."
            )
        return
    for copy in map(Path, copies):
        # Snakemake's copies of files from git lack the last end of line
        if copy.read_text("utf-8").rstrip() != (WORKFLOW / "rules" / copy.name).read_text("utf-8").rstrip():
            raise UserError(
                f"{rules}: {copy.name} differs from that of the installed package vernacular. "
                "Install the package of the same tag or commit."
            )


def directory_of(path: str, replace_prefix: Callable[[str], str]) -> str:
    """Return where a run writes the directory `path`.

    Args:
        replace_prefix: Changes the path of a file of a rule as Snakemake does in a module; otherwise returns it.
    """
    return os.path.normpath(os.path.join(replace_prefix(f"{path}/a/file"), "../.."))
