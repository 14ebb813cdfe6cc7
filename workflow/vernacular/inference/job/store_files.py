"""File operations of a store with concurrent writers: vanishing files, permissions, leftovers.

No locks are used: flock is unreliable over NFS, whereas renames are atomic there, too.
"""

import contextlib
import errno
import os
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError, WriteError

ATTEMPTS = 5  # to write while a user removes directories, or to read a file that is being replaced
VANISHED = (errno.ENOENT, errno.ESTALE)  # NFS reports a removed file that is open as stale
_DAY = 24 * 3600.0


class StoreError(ArtifactError):
    """Failure to read or write the store (full disk, no permission): outputs cannot be stored."""


@contextlib.contextmanager
def write_access(path: Path, root: Path) -> Iterator[None]:
    """Raise StoreError, which names `path`, if it cannot be written inside this context.

    Files created inside have the permissions of the store's directory `root`, whatever the process's umask: with the
    usual umask, a group that may write the store could not write its subdirectories.
    """
    try:
        with _permissions_of(root):
            yield
    except WriteError as error:
        raise StoreError(f"the store cannot be written at {path}: {error.reason}.") from error
    except OSError as error:
        raise StoreError(f"the store cannot be written at {path}: {error.strerror or error}.") from error


@contextlib.contextmanager
def _permissions_of(root: Path) -> Iterator[None]:
    try:
        mode = root.stat().st_mode
    except FileNotFoundError:  # created inside, with the umask
        yield
        return
    _umask.set(~mode & 0o077)
    try:
        yield
    finally:
        _umask.restore()


class _Umask:
    """The umask of the process while any of its threads writes the store."""

    def __init__(self):
        self._lock, self._users, self._previous = threading.Lock(), 0, 0

    def set(self, mask: int) -> None:
        with self._lock:
            if not self._users:
                self._previous = os.umask(mask)
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                os.umask(self._previous)


_umask = _Umask()


def retry(operation: Callable[[], object]) -> None:
    """Call `operation`, and call it again if a directory was removed in the meantime, up to ATTEMPTS times."""
    for attempt in range(ATTEMPTS):
        try:
            operation()
            return
        except OSError as error:
            if error.errno not in (*VANISHED, errno.EEXIST) or attempt == ATTEMPTS - 1:
                raise


def check_replaceable(path: Path) -> None:
    """Raise the OSError that writing `path` would raise: create its directory and, for a moment, a file in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    probe = path.with_name(f".{uuid.uuid4().hex}.tmp")
    probe.touch()
    probe.unlink()
    directory, entry = path.parent.stat(), path.stat() if path.exists() else None
    # in a directory with the sticky bit only the owner of a file (or of the directory, or root) may replace it
    if entry and directory.st_mode & stat.S_ISVTX and os.geteuid() not in (0, directory.st_uid, entry.st_uid):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))


def file_identity(path: Path) -> tuple | None:
    """Return a value that distinguishes a file from its replacement; None if there is no file."""
    try:
        entry = path.stat()
    except NotADirectoryError:
        return None
    except OSError as error:
        if error.errno in VANISHED:
            return None
        raise read_error(path, error) from error
    return entry.st_ino, entry.st_size, entry.st_mtime_ns


def journal_parts(directory: Path, key: str) -> list[Path]:
    """Return the journal parts of one key, oldest first. Raises StoreError if `directory` cannot be read."""
    try:
        names = os.listdir(directory)
    except NotADirectoryError:
        return []
    except OSError as error:
        if error.errno in VANISHED:
            return []
        raise read_error(directory, error) from error
    return [directory / name for name in sorted(names) if name.startswith(f"{key}.") and name.endswith(".part")]


def write_part(part: Path, content: bytes) -> None:
    """Write a journal part durably, so that it survives a power failure."""
    with replacing(part) as temporary:
        temporary.write_bytes(content)
    descriptor = os.open(part.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of killed writers next to the file at `path`, which was just written.

    Only files more than a day older by the file system's clock are removed; a writer that was merely suspended writes
    its file again.
    """
    with contextlib.suppress(OSError):  # another process removes them, too; leftovers have no effect
        written_at = path.stat().st_mtime
        for leftover in path.parent.glob(".*.tmp"):
            if written_at - leftover.stat().st_mtime > _DAY:
                leftover.unlink()


def read_error(path: Path, error: OSError) -> StoreError:
    """Return the StoreError for a `path` that cannot be read."""
    return StoreError(f"the store cannot be read at {path}: {error.strerror or error}.")
