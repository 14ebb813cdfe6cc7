"""The content-addressed store: finished evaluations, and the journals of unfinished ones.

An evaluation's key is a hash of the model, its number-changing options, the requests and the engine's code, so that
changing an option back, or running again, costs a look-up. While an evaluation runs, finished batches go to its journal
in parts: each is a file of its own, checksummed, fsynced and renamed into place, so that a kill at any moment leaves
complete parts or none. Nothing here is trusted when read: what is torn, or of another key, is dropped with a note.

Any number of processes, on any number of hosts, may use one store at a time, without locks. Every file is written under
a name that no other process has and then renamed, the content of a file follows from its name, and no directory is ever
removed. A file that another process has just removed was no longer needed. The directories and files have the
permissions of the store's directory, so that a group can share a store that the group may write.
"""

import contextlib
import hashlib
import json
import logging
import time
import uuid
import zlib
from pathlib import Path

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ArtifactError
from vernacular.core.processes import StopFlag
from vernacular.inference.job import store_files as files
from vernacular.inference.job.store_files import StoreError

log = logging.getLogger("vernacular")


class Store:
    """Finished evaluations under `root`, one Parquet file per key, and the journals of unfinished ones."""

    def __init__(self, root):
        self.root = Path(root)

    def path(self, key: str, kind: Kind) -> Path:
        """Return where the finished evaluation of `key` is, or would be."""
        return self.root / kind.name / key[:2] / f"{key}.parquet"

    def get(self, key: str, kind: Kind) -> tuple[pa.Table, dict] | None:
        """Return (rows, metadata) of a finished evaluation, or None; a damaged or foreign file counts as none.

        Raises StoreError where the store's directories cannot be read.
        """
        path = self.path(key, kind)
        for _ in range(files.ATTEMPTS):
            identity = files.identity(path)
            if identity is None:
                return None
            try:
                found, damage = self._read(path, key, kind), None
            except ArtifactError as error:
                found, damage = None, error
            if files.identity(path) == identity:  # else it was replaced between two looks at it
                break
        if damage:
            log.warning("store: %s It is computed again.", damage)
        return found

    def _read(self, path: Path, key: str, kind: Kind) -> tuple[pa.Table, dict]:
        note = artifacts.metadata(path, anywhere=True)  # known by its key, which says more
        if note.get("store_key") != key:
            raise ArtifactError(f"{path}: holds another evaluation ({note.get('store_key')}).")
        return artifacts.read(path, kind, anywhere=True), note

    def put(self, key: str, kind: Kind, table: pa.Table, metadata: dict) -> Path:
        """Store a finished evaluation, and remove its journal; an entry that another process has put is kept.

        Raises StoreError, which names the path, where it cannot be written.
        """
        path = self.path(key, kind)
        if self.get(key, kind) is None:
            note = {**metadata, "store_key": key}
            with files.writing(path, self.root):
                files.again(lambda: artifacts.write(path, kind, table, note))
            files.sweep(path)
        self.remove_journal(key)
        return path

    def check_writable(self, key: str, kind: Kind) -> None:
        """Raise StoreError, which names the path, where a finished evaluation of `key` could not be put."""
        path = self.path(key, kind)
        with files.writing(path, self.root):
            files.again(lambda: files.check_replaceable(path))

    def journal(self, key: str, *, stop: StopFlag | None = None, seconds: float = 20.0) -> "Journal":
        """Return the journal of an unfinished evaluation, with what earlier attempts, or others at work, finished."""
        return Journal(self._journals_of(key), key, stop=stop, seconds=seconds, root=self.root)

    def remove_journal(self, key: str) -> None:
        """Remove what the journal of a finished evaluation holds; what may not be removed is left and does no harm."""
        with contextlib.suppress(StoreError):
            for part in files.parts(self._journals_of(key), key):
                with contextlib.suppress(OSError):  # another process has removed it, or its owner alone may
                    part.unlink()

    def _journals_of(self, key: str) -> Path:
        return self.root / "journal" / key[:2]


class Journal:
    """Finished batches of one evaluation: `done(batch)` gives them back, `add(batch, rows)` keeps one.

    A batch's name is a hash of its content (the caller's duty), so that a batch found here is the very one asked for.
    Rows are JSON-like dicts; floats come back bit for bit. A part is written on a stop signal, and after 1 second, 2, 4
    and so on up to every `seconds`: a kill costs half of what was done, or `seconds` of work, whichever is less, and a
    long evaluation leaves few parts. Jobs that compute the same evaluation at a time each write parts of their own, and
    begin with the parts of all.
    """

    def __init__(
        self,
        folder: Path,
        key: str = "",
        *,
        stop: StopFlag | None = None,
        seconds: float = 20.0,
        root: Path | None = None,
    ):
        self.folder, self.key, self.stop, self.seconds = folder, key, stop, seconds
        self.notes: list[str] = []  # what was dropped while reading, for the metadata
        self._root = root or folder  # of the store, whose permissions the parts have
        self._done: dict[str, list[dict]] = {}  # what an earlier attempt finished
        self._written: set[str] = set()  # names of what this one has
        self._unwritten: dict[str, list[dict]] = {}
        self._written_at = time.monotonic()
        self._wait = min(1.0, seconds)
        for part in files.parts(folder, key):
            self._done.update(self._read(part))
        if stop is not None:
            stop.journal = self

    def done(self, batch: str) -> list[dict] | None:
        """The rows of a finished batch, or None; of what this attempt has written down, names alone are remembered."""
        return self._unwritten.get(batch, self._done.get(batch))

    @property
    def known(self) -> int:
        """Batches known, from earlier attempts and this one."""
        return len(self._done.keys() | self._written | self._unwritten.keys())

    def finishing(self):
        """Inside, a batch is worked on and kept: a signal acts afterwards."""
        return contextlib.nullcontext() if self.stop is None else self.stop.finishing()

    def add(self, batch: str, rows: list[dict]) -> None:
        """Keep a finished batch. Raises Stopped, after writing everything down, if a signal asked to stop."""
        self._unwritten[batch] = rows
        if self.stop:
            raise self.stop.stopped()
        if time.monotonic() - self._written_at >= self._wait:
            self.flush()
            self._wait = min(2 * self._wait, self.seconds)

    def flush(self) -> None:
        """Write what is not yet on disk as one part. Raises StoreError if the store cannot be written."""
        if self._unwritten:
            body = zlib.compress(json.dumps({"key": self.key, "batches": self._unwritten}).encode(), level=1)
            # sorted by time, unique among processes and hosts
            part = self.folder / f"{self.key}.{time.time_ns():020d}-{uuid.uuid4().hex}.part"
            with files.writing(part, self._root):
                files.again(lambda: files.write_part(part, hashlib.sha256(body).digest() + body))
        self._written.update(self._unwritten)
        self._unwritten = {}
        self._written_at = time.monotonic()

    def _read(self, part: Path) -> dict[str, list[dict]]:
        try:
            content = part.read_bytes()
        except OSError as error:
            if error.errno in files.VANISHED:  # another process has finished the evaluation
                return {}
            return self._drop(part, f"unreadable ({error.strerror or error})")
        digest, body = content[:32], content[32:]
        if hashlib.sha256(body).digest() != digest:
            return self._drop(part, "torn or damaged")
        found = json.loads(zlib.decompress(body))
        if found["key"] != self.key:
            return self._drop(part, "of another evaluation")
        return found["batches"]

    def _drop(self, part: Path, why: str) -> dict:
        note = f"journal part {part.name} is {why}: dropped, its batches are computed again"
        log.warning("store: %s", note)
        self.notes.append(note)
        return {}
