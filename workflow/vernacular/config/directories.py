"""Where a run is: the directories of results (`output:`) and store (`store:`), config file, package of the rules.

In a workflow that imports this one as a module, the directories are below the module's `prefix:`. When a run has ended,
it deletes in them what the next one tries again.
"""

import logging
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, UserError, first_of
from vernacular.core.model_record import read_model, read_status
from vernacular.core.names import quoted
from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.written import foreign_files, named_files

log = logging.getLogger("vernacular")

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
    if "://" in setting:
        report(f'expected a directory, got the address "{setting}". Mount it, or use a directory of this machine.')
        return
    if character := next((each for each in setting if not each.isprintable()), None):
        report(f"expected the name of a directory, got {quoted(setting)}, which contains U+{ord(character):04X}.")
        return
    existing = next(directory for directory in (path, *path.parents) if os.path.lexists(directory))
    if not existing.is_dir():
        report(f'expected a directory, got "{setting}": {existing} is not a directory.')
        return
    needed = os.X_OK | (os.R_OK if existing == path else os.W_OK)
    if not os.access(existing, needed, effective_ids=os.access in os.supports_effective_ids):
        action = "read" if existing == path else "created"
        report(f'"{setting}" cannot be {action}: permission denied in {existing}.')


def output_conflicts(results: Path, exports: list[str], config_files: list[str]) -> Iterator[str]:
    """Yield why a run would replace what is not its own: files of a user, or another config's results.

    `exports`: directories, as `{model}/{evaluation}`.
    """
    directories = {"report": "report", "comparisons": "comparisons"}
    directories |= {f"exports/{name}": "exports" for name in exports}
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


def run_command(config: os.PathLike | str, *others: str, target: str | None = None) -> str:
    """Return the command that runs config files in the working directory, for messages; `target`: one file only."""
    names, only = shlex.join(map(display_path, (config, *others))), f" {shlex.quote(target)}" if target else ""
    if not others and not any(map(os.path.exists, ("Snakefile", "workflow/Snakefile"))):
        return f"vernacular run {names} -c4{only}"
    is_default = not others and os.path.realpath(config) == os.path.realpath(default_config())
    return f"snakemake -c4{only}" + ("" if is_default else f" --configfile {names}")


def check_written(path: Path, config: Path, *, only: bool = False, purpose: str = "") -> Path:
    """Return the path of a file of a run; raise UserError with the command that writes it, if it does not exist.

    `only`: the command writes no other file. `purpose`: ends with a space.
    """
    if not path.exists():
        command = run_command(config, target=str(path) if only else None)
        raise UserError(f"{path}: file not found. Run `{command}` {purpose}first.")
    return path


def check_any_written(paths: Sequence[Path], config: Path) -> None:
    """Raise UserError as `check_written` if no file of a run exists; print which do not.

    When a run ends, it deletes the files of what is unavailable, which the next run tries again.
    """
    missing = [path for path in paths if not path.exists()]
    if len(missing) == len(paths):
        check_written(missing[0], config)
    if missing:
        print(f"Left out, because results are missing: {first_of(list(map(str, missing)), 3)}")


def rule_files() -> list[str]:
    """Return the names of the files of rules."""
    return sorted(path.name for path in (WORKFLOW / "rules").glob("*.smk"))


def check_package(rules: str, copies: list[str]) -> None:
    """Raise UserError if the imported package is of another checkout or version than the rules.

    Python imports one package of a name. `rules`: directory or address of the rules; `copies`: files from that address.
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
            problem = f"{copy.name} differs from that of the installed package vernacular"
            raise UserError(f"{rules}: {problem}. Install the package of the same tag or commit.")


def locate_directory(path: str, replace_prefix: Callable[[str], str]) -> str:
    """Return where a run writes the directory `path`; `replace_prefix` changes a file's path as in a module."""
    return os.path.normpath(os.path.join(replace_prefix(f"{path}/a/file"), "../.."))


_STAGES = ("scores", "generations", "lm_eval", "similarity", "tasks")  # a file per model and evaluation, in this order


def clear_unavailable(resources: Path, results: Path, names: Collection[str] | None = None) -> list[Path]:
    """Delete what another run may try again, damaged files, and what was computed from either; return the paths.

    To Snakemake such a file is complete. Planning deletes nothing: the Snakefile calls this when a run has ended.
    `names`: of the config, because files of other names may be a user's; None: all.
    """
    patterns = ["requests/*.parquet", "inference_status/*/*.json", *(f"*/{stage}/*.parquet" for stage in _STAGES)]
    patterns += ["*/metrics.parquet", "compared/external/*.parquet"]
    records = ("items/*.parquet", "models/*.json", "encoders/*.json")
    outputs = [path for pattern in records for path in resources.glob(pattern)]
    outputs += [path for pattern in patterns for path in results.glob(pattern)]
    outputs += [path for path in results.glob("judges/*/*/*/*") if path.suffix in (".parquet", ".json")]
    stale = dict.fromkeys(path for output in outputs for path in _stale(output, results))
    deleted = [path for path in sorted(stale) if path.exists() and (names is None or _is_output(path, names))]
    for path in deleted:
        log.info("deleted %s", path)
        path.unlink(missing_ok=True)
    return deleted


def _is_output(path: Path, names: Collection[str]) -> bool:
    """Return whether a rule writes a file for a model, evaluation, dataset or encoder of these names."""
    *_, model, kind, _ = path.parts
    if path.parts[-5:-4] == ("judges",):
        return model in names and (path.stem in names or kind == "inference_status")
    if path.name == "metrics.parquet":
        return kind in names
    if path.suffix == ".parquet":
        is_shared = kind in ("items", "requests", "external")
        return path.stem in names and (is_shared or (model in names and kind in _STAGES))
    return path.stem in names or kind in names  # records, status files


def _stale_of_judge(path: Path, results: Path) -> Iterator[Path]:
    """Yield a file about the texts of a model that another run may replace, and what was computed from it."""
    directory, names = path.parents[1], [path.stem]
    try:
        if path.suffix == ".json":
            outcomes = (entry for entries in read_status(path).values() for entry in entries.items())
            names = [evaluation for evaluation, outcome in outcomes if outcome.may_try_again]
        elif not artifacts.metadata(path)["outcome"].may_try_again:
            names = []
    except ArtifactError:
        pass
    if names:
        yield path
        yield directory / "inference_status" / "1of1.json"
    for name in names:
        yield from (directory / kind / f"{name}.parquet" for kind in ("scores", "generations"))
        yield results / directory.name / "tasks" / f"{name}.parquet"


def _stale(path: Path, results: Path) -> Iterator[Path]:
    """Yield a file that is damaged, or that another run may try again, and what was computed from it."""
    *_, model, kind, _ = path.parts
    if path.parts[-5:-4] == ("judges",):
        yield from _stale_of_judge(path, results)
        return
    computed = {"models": [f"{path.stem}/**/*.parquet"], "requests": [f"*/*/{path.stem}.parquet"]}.get(kind, [])
    if kind in _STAGES:
        computed = [f"{model}/{stage}/{path.name}" for stage in _STAGES[_STAGES.index(kind) + 1 :]]
    try:
        if model == "inference_status":
            outcomes = [(name, *entry) for name, entries in read_status(path).items() for entry in entries.items()]
            computed = [f"{name}/*/{evaluation}.parquet" for name, evaluation, entry in outcomes if entry.may_try_again]
            is_stale = bool(computed)
        elif path.suffix == ".json":
            is_stale = read_model(path).unavailable is not None
        else:
            is_stale = artifacts.metadata(path)["outcome"].may_try_again
    except ArtifactError:
        is_stale = True
    if is_stale:
        yield path
        for pattern in computed:
            yield from results.glob(pattern)
