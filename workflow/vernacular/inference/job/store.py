"""The content-addressed store: finished evaluations, and the journals of unfinished ones.

An evaluation's key is a hash of the model, its output-changing options, the requests and the engine's code, so that
restoring an option, or running again, costs one lookup. While an evaluation runs, finished batches are written to its
journal in parts: each is a separate file, checksummed, fsynced and renamed into place, so that after a kill at any
moment each part is complete or absent. Every file is verified when it is read: a damaged one, or one of another key, is
dropped with a note.

Any number of processes, on any number of hosts, may use one store concurrently, without locks. Every file is written
under a unique name and then renamed, its name determines its content, and directories are never removed. A file that
another process has just removed is no longer needed. Directories and files have the permissions of the store's
directory, so that a group can share a group-writable store.

Concurrent writers use no locks: flock is unreliable over NFS, whereas renames are atomic there, too.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import stat
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind, replacing
from vernacular.core.errors import ArtifactError, WriteError
from vernacular.core.processes import StopFlag

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


log = logging.getLogger("vernacular")


class Store:
    """Finished evaluations under `root`, one Parquet file per key, and the journals of unfinished ones."""

    def __init__(self, root):
        self.root = Path(root)

    def path(self, key: str, kind: Kind) -> Path:
        """Return the path of the finished evaluation of `key`, whether it exists or not."""
        return self.root / kind.name / key[:2] / f"{key}.parquet"

    def get(self, key: str, kind: Kind) -> tuple[pa.Table, dict] | None:
        """Return (rows, metadata) of a finished evaluation; None if it is absent, damaged or of another key.

        Raises StoreError if the store's directories cannot be read.
        """
        path = self.path(key, kind)
        for _ in range(ATTEMPTS):
            identity = file_identity(path)
            if identity is None:
                return None
            try:
                result, damage = self._read(path, key, kind), None
            except ArtifactError as error:
                result, damage = None, error
            if file_identity(path) == identity:  # otherwise, it was replaced while it was read
                break
        if damage:
            log.warning("store: %s The evaluation is computed again.", damage)
        return result

    def _read(self, path: Path, key: str, kind: Kind) -> tuple[pa.Table, dict]:
        metadata = artifacts.metadata(path, allow_moved=True)  # identified by its key instead of its path
        if metadata.get("store_key") != key:
            raise ArtifactError(f"{path}: expected the evaluation {key}, got {metadata.get('store_key')}.")
        return artifacts.read(path, kind, allow_moved=True), metadata

    def put(self, key: str, kind: Kind, table: pa.Table, metadata: dict) -> Path:
        """Store a finished evaluation and remove its journal; an entry put by another process is retained.

        Raises StoreError, which names the path, if it cannot be written.
        """
        path = self.path(key, kind)
        if self.get(key, kind) is None:
            metadata = {**metadata, "store_key": key}
            with write_access(path, self.root):
                retry(lambda: artifacts.write(path, kind, table, metadata))
            remove_leftovers(path)
        self.remove_journal(key)
        return path

    def check_writable(self, key: str, kind: Kind) -> None:
        """Raise StoreError, which names the path, if a finished evaluation of `key` could not be written."""
        path = self.path(key, kind)
        with write_access(path, self.root):
            retry(lambda: check_replaceable(path))

    def journal(self, key: str, *, stop: StopFlag | None = None, seconds: float = 20.0) -> "Journal":
        """Return the journal of an unfinished evaluation, with the batches of earlier and concurrent attempts."""
        return Journal(self._journal_directory(key), key, stop=stop, seconds=seconds, root=self.root)

    def remove_journal(self, key: str) -> None:
        """Remove the journal of a finished evaluation; parts that cannot be removed remain and have no effect."""
        with contextlib.suppress(StoreError):
            for part in journal_parts(self._journal_directory(key), key):
                with contextlib.suppress(OSError):  # removed by another process, or removable by its owner only
                    part.unlink()

    def _journal_directory(self, key: str) -> Path:
        return self.root / "journal" / key[:2]


class Journal:
    """Finished batches of one evaluation: `get(batch)` returns a batch's rows, `add(batch, rows)` stores them.

    A batch's name is a hash of its content, computed by the caller, so that a stored batch is exactly the requested
    one. Rows are JSON-like dicts; floats are restored bit for bit. A part is written on a stop signal, and after 1, 2,
    4, … and then every `seconds` seconds: a kill loses half of the work or `seconds` of it, whichever is less, and a
    long evaluation has few parts. Jobs that compute the same evaluation concurrently write separate parts, and each
    starts from the parts of all.
    """

    def __init__(
        self,
        directory: Path,
        key: str = "",
        *,
        stop: StopFlag | None = None,
        seconds: float = 20.0,
        root: Path | None = None,
    ):
        self.directory, self.key, self.stop, self.seconds = directory, key, stop, seconds
        self.notes: list[str] = []  # parts dropped while reading, for the metadata
        self._root = root or directory  # of the store; parts have its permissions
        self._done: dict[str, list[dict]] = {}  # batches of earlier attempts
        self._written: set[str] = set()  # names of the batches that this attempt has written
        self._begin_part()
        self._written_at = time.monotonic()
        self._wait = min(1.0, seconds)
        for part in journal_parts(directory, key):
            self._done.update(self._read(part))
        if stop is not None:
            stop.journal = self

    def get(self, batch: str) -> list[dict] | None:
        """Return the rows of a batch that an earlier attempt finished, or None; of this one's, only names are kept."""
        return self._done.get(batch)

    @property
    def n_batches(self) -> int:
        """Number of batches known, from earlier attempts and this one."""
        return len(self._done.keys() | self._written | self._unwritten)

    def defer_signals(self):
        """Return a context in which a batch is computed and added; a signal takes effect at its end."""
        return contextlib.nullcontext() if self.stop is None else self.stop.defer_signals()

    def add(self, batch: str, rows: list[dict]) -> None:
        """Add a finished batch. Raises Stopped, after writing all batches, if a stop signal was received."""
        text = ", " if self._unwritten else f'{{"key": {json.dumps(self.key)}, "batches": {{'
        # at once: the rows of 20 seconds would be hundreds of MB as Python's numbers
        self._body.append(self._compressor.compress(f"{text}{json.dumps(batch)}: {json.dumps(rows)}".encode()))
        self._unwritten.add(batch)
        if self.stop:
            raise self.stop.stopped()
        if time.monotonic() - self._written_at >= self._wait:
            self.flush()
            self._wait = min(2 * self._wait, self.seconds)

    def flush(self) -> None:
        """Write the batches not yet on disk as one part. Raises StoreError if the store cannot be written."""
        if self._unwritten:
            end = self._compressor.copy()  # another attempt to write follows if this one fails
            body = b"".join([*self._body, end.compress(b"}}"), end.flush()])
            # sorts by time; unique across processes and hosts
            part = self.directory / f"{self.key}.{time.time_ns():020d}-{uuid.uuid4().hex}.part"
            with write_access(part, self._root):
                retry(lambda: write_part(part, hashlib.sha256(body).digest() + body))
        self._written |= self._unwritten
        self._begin_part()
        self._written_at = time.monotonic()

    def _begin_part(self) -> None:
        self._unwritten: set[str] = set()  # names of the batches of the next part
        self._body: list[bytes] = []  # their rows, as compressed JSON
        self._compressor = zlib.compressobj(level=1)

    def _read(self, part: Path) -> dict[str, list[dict]]:
        try:
            content = part.read_bytes()
        except OSError as error:
            if error.errno in VANISHED:  # another process has finished the evaluation
                return {}
            return self._drop(part, f"unreadable ({error.strerror or error})")
        digest, body = content[:32], content[32:]
        if hashlib.sha256(body).digest() != digest:
            return self._drop(part, "incomplete or damaged")
        entry = json.loads(zlib.decompress(body))
        if entry["key"] != self.key:
            return self._drop(part, "from another evaluation")
        return entry["batches"]

    def _drop(self, part: Path, problem: str) -> dict:
        note = f"journal part {part.name} is {problem} and was dropped. Its batches are computed again."
        log.warning("store: %s", note)
        self.notes.append(note)
        return {}
