"""Content hashes of files, cached by size, times and inode, so that an unchanged file costs one `stat`.

The change time (`ctime`) is compared in addition to the modification time: a program can set the latter back
(`os.utime`, `rsync -t`, `cp -p`), but not the former.
"""

import contextlib
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from vernacular.core.errors import ModelError
from vernacular.core.logs import Progress

log = logging.getLogger("vernacular")

_CHUNK = 8 << 20  # bytes read at a time
_LARGE = 1 << 30  # bytes from which hashing is logged and shows a progress bar
_TICK = 20_000_000  # ns within which two writes may get the same timestamp
_COARSE_TICK = 2_000_000_000  # the same, on file systems that store full seconds


def contents(root: Path, files: Iterable[str], known: dict | None = None) -> dict[str, dict]:
    """Return {name: {"sha256", "size", "mtime_ns", "ctime_ns", "inode"}} of files, which are relative to `root`.

    Those of `known` are reused without reading unless size, times or inode differ. Raises ModelError if a file is
    missing, not regular, unreadable, or modified while it is read.
    """
    root, known = Path(root), known or {}
    return {name: _entry(root / name, known.get(name)) for name in sorted(files)}


def compare_contents(root: Path, files: Iterable[str], known: dict) -> tuple[list[str], dict[str, dict]]:
    """Return the names that differ from `known`, are new or missing, and the current entries of all others."""
    root, present = Path(root), set(files)
    differing, entries = [], {}
    for name in sorted(present | known.keys()):
        try:
            same_size = name in known and name in present and _regular(root / name).st_size == known[name]["size"]
            entry = _entry(root / name, known[name]) if same_size else None
        except ModelError:  # missing, unreadable, not a file: the next reader reports the reason
            entry = None
        if entry is not None and entry["sha256"] == known[name]["sha256"]:
            entries[name] = entry
        else:
            differing.append(name)
    return differing, entries


def open_regular(path: Path):
    """Open a file for reading, without waiting as for a FIFO; raise ModelError unless it is regular and readable."""
    _regular(path)
    try:
        # O_NONBLOCK: does not block on a FIFO that replaced the file after the check
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _not_regular(path, os.stat(path).st_mode)
    return file


def _regular(path: Path) -> os.stat_result:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        problem = f"a link to {os.readlink(path)}, which does not exist" if os.path.islink(path) else "file not found"
        raise ModelError(f"{path}: {problem}. Restore the file and run again.") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path, status.st_mode)
    return status


def _entry(path: Path, known: dict | None) -> dict:
    status = _regular(path)
    if known is not None and stamp(status) == {key: known.get(key) for key in stamp(status)}:
        return known
    _settle(status)
    with open_regular(path) as file:
        stamp_before = stamp(os.fstat(file.fileno()))
        digest = _hash(path, file, stamp_before["size"])
        stamp_after = stamp(os.fstat(file.fileno()))
    # stat the path as well: another file may have been renamed to it
    if not stamp_before == stamp_after == stamp(_regular(path)):
        raise ModelError(f"{path}: modified while it was read. Wait until it is complete and run again.")
    return {"sha256": digest, **stamp_before}


def _hash(path: Path, file, size: int) -> str:
    digest, large = hashlib.sha256(), size >= _LARGE
    if large:
        log.info("hashing %s (%.1f GB)", path, size / 1e9)
    remaining = size  # not until EOF: a growing file may never reach it
    try:
        with Progress(f"hash {path.name}", size, "byte") if large else contextlib.nullcontext() as progress:
            while remaining > 0 and (chunk := file.read(min(_CHUNK, remaining))):
                digest.update(chunk)
                remaining -= len(chunk)
                if progress:
                    progress.advance(len(chunk))
    except OSError as error:
        raise _unreadable(path, error) from None
    return digest.hexdigest()


def _settle(status: os.stat_result) -> None:
    """Wait until a later write would get a new timestamp, which takes at most one tick of the file system's clock."""
    latest = max(status.st_mtime_ns, status.st_ctime_ns)
    tick = _TICK if latest % 1_000_000_000 else _COARSE_TICK
    age = time.time_ns() - latest
    if 0 <= age < tick:
        time.sleep((tick - age) / 1e9)


def stamp(status: os.stat_result) -> dict[str, int]:
    """Return the attributes of a file that reveal a change without reading it."""
    times = {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    return {"size": status.st_size, **times, "inode": status.st_ino}


_TYPES = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a named pipe (FIFO)"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def _not_regular(path: Path, mode: int) -> ModelError:
    problem = next((name for matches, name in _TYPES if matches(mode)), "a file of an unknown type")
    return ModelError(f"{path}: expected a regular file, got {problem}. Replace it with the file itself.")


def _unreadable(path: Path, error: Exception) -> ModelError:
    reason = getattr(error, "strerror", None) or error
    return ModelError(f"{path}: cannot be read ({reason}). Check its permissions and the file system.")
