"""The directory of the workflow's files, and the display of paths and of the command of the run in messages."""

import os
import re
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# a wheel contains a copy of the checkout's workflow/ (setup.py), because the package is not in it there
WORKFLOW = installed if (installed := _PACKAGE / "checkout" / "workflow").is_dir() else _PACKAGE.parent


def user_cache() -> Path:
    """Return the directory of what the package keeps for this user; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "vernacular")


def display_path(path) -> str:
    """Return a path as a user would type it: relative to the working directory if it is below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def rerun_command(options: str) -> str:
    """Return the command of this run with other options, for messages of jobs; the rules state it (`common.smk`)."""
    return f"{os.environ.get('VERNACULAR_RUN', 'snakemake -c4')} {options}"


# an absolute path of two or more parts, with spaces inside only where a quoted path has them; not the path of a URL
_ABSOLUTE_PATH = re.compile(r"""(?<![\w:/.~\-\\>])/(?:[^\s/'"`,;:()<>|]+/)+[^\s/'"`,;:()<>|]*""")


def without_local_paths(text: str) -> str:
    """Return `text` for publication: paths below the working directory as relative ones, other absolute ones by name.

    >>> without_local_paths("/home/ana/models/tiny: not found; see https://example.org/a/b")
    '…/tiny: not found; see https://example.org/a/b'
    """
    return _ABSOLUTE_PATH.sub(lambda match: _published(match.group()), text)


def _published(path: str) -> str:
    relative = os.path.relpath(path)
    return f"…/{os.path.basename(os.path.normpath(path))}" if relative.startswith("..") else relative
