"""Directories that several test files need, created once for all processes of a test session."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def once(tmp_path_factory, name: str, create: Callable[[Path], None]) -> Path:
    """Return a directory for which the first process that needs it has called `create(directory / "run")`.

    Its `run` has the same depth as `tmp_path / "run"`, so that relative paths in a copy stay valid. Tests may read it,
    and must not change it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent / "shared"
        root.mkdir(exist_ok=True)
    directory = root / name
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "complete").exists():
            shutil.rmtree(directory, ignore_errors=True)  # of a process that failed
            directory.mkdir()
            create(directory / "run")
            (directory / "complete").touch()
    return directory / "run"
