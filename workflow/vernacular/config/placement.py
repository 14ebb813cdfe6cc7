"""Where a run is: whose package its rules use, which config file it reads, and the directories that it writes.

In a workflow that imports this one as a module, the directories are below the module's `prefix:`.
"""

import dataclasses
import os
import shlex
from collections.abc import Callable
from pathlib import Path

from vernacular.config.directories import DEFAULT_STORE
from vernacular.config.load import Config
from vernacular.core.errors import UserError
from vernacular.core.paths import WORKFLOW, display_path

_CONFIG_FILES = ("config.yaml", "config/config.yaml")


def default_config() -> str:
    """Return the config file of the working directory; the first of the two names if neither exists."""
    return next(filter(os.path.exists, _CONFIG_FILES), _CONFIG_FILES[0])


def run_command(config: os.PathLike | str, target: str | None = None) -> str:
    """Return the command that runs a config in the working directory, for messages; `target`: one file only."""
    has_rules = any(map(os.path.exists, ("Snakefile", "workflow/Snakefile")))
    parts = ["snakemake -c4", shlex.quote(target) if target else ""]
    parts.append("" if has_rules else "--snakefile $(vernacular snakefile)")
    is_default = os.path.realpath(config) == os.path.realpath(default_config())
    parts.append("" if is_default and has_rules else f"--configfile {shlex.quote(os.fspath(config))}")
    return " ".join(filter(None, parts))


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


def placed(config: Config, directory: Callable[[str], str]) -> Config:
    """Return the config with the directories that a run writes, each in its place (`directory_of`)."""
    return dataclasses.replace(
        config,
        resources=directory(config.resources),
        benchmarks=directory(config.benchmarks),
        results=directory(config.output),
        store=directory(config.store) if config.store == DEFAULT_STORE else config.store,
    )
