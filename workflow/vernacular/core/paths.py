"""The directory of the workflow's data files, and the display of paths in messages."""

import os
from pathlib import Path

WORKFLOW = Path(__file__).resolve().parents[2]


def display_path(path) -> str:
    """Return a path as a user would type it: relative to the working directory if it is below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
