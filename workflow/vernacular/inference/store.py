"""The content-addressed store: finished evaluations, and the journal of the one in hand.

An evaluation's key is a hash of the model, its number-changing options, the requests and the engine's code, so that
changing an option back, or running again, costs a look-up. While an evaluation runs, finished batches go to its journal
in parts: each is a file of its own, checksummed, fsynced and renamed into place, so that a kill at any moment leaves
whole parts or none. Nothing here is trusted when read: what is torn, or of another key, is dropped with a note.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
import uuid
import zlib
from pathlib import Path

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import ArtifactError
from vernacular.core.signals import StopFlag

log = logging.getLogger("vernacular")


class StoreError(ArtifactError):
    """The store cannot be read or written (a full disk, no permission): nothing that is computed could be kept."""


class Store:
    """Finished evaluations under `root`, one Parquet file per key, and the journals of unfinished ones."""

    def __init__(self, root):
        self.root = Path(root)

    def path(self, key: str, kind: Kind) -> Path:
        """Where the finished evaluation of `key` stands, or would stand."""
        return self.root / kind.name / key[:2] / f"{key}.parquet"

    def get(self, key: str, kind: Kind) -> tuple[pa.Table, dict] | None:
        """(rows, metadata) of a finished evaluation, or None; a damaged or foreign file is noted and counts as none."""
        path = self.path(key, kind)
        if not path.exists():
            return None
        try:
            note = artifacts.metadata(path, anywhere=True)  # known by its key, which says more
            if note.get("store_key") != key:
                raise ArtifactError(f"{path}: holds another evaluation ({note.get('store_key')}).")
            return artifacts.read(path, kind, anywhere=True), note
        except ArtifactError as error:
            log.warning("store: %s It is computed again.", error)
            return None

    def put(self, key: str, kind: Kind, table: pa.Table, metadata: dict) -> Path:
        """Store a finished evaluation whole, then forget its journal."""
        with _writing(self.root):
            path = artifacts.write(self.path(key, kind), kind, table, {**metadata, "store_key": key})
            self.remove_journal(key)
        return path

    def journal(self, key: str, *, stop: StopFlag | None = None, seconds: float = 20.0) -> "Journal":
        """The journal of an evaluation in hand, with what an earlier attempt finished."""
        return Journal(self._journal_folder(key), key, stop=stop, seconds=seconds)

    def remove_journal(self, key: str) -> None:
        """Remove what the journal of an evaluation holds."""
        shutil.rmtree(self._journal_folder(key), ignore_errors=True)

    def _journal_folder(self, key: str) -> Path:
        return self.root / "journal" / key


class Journal:
    """Finished batches of one evaluation: `done(batch)` gives them back, `add(batch, rows)` keeps one.

    A batch's name is a hash of its content (the caller's duty), so that a batch found here is the very one asked for.
    Rows are JSON-like dicts; floats come back bit for bit. A part is written on a stop signal, and after 1 second, 2, 4
    and so on up to every `seconds`: a kill costs half of what was done, or `seconds` of work, whichever is less, and a
    long evaluation leaves few parts.
    """

    def __init__(self, folder: Path, key: str = "", *, stop: StopFlag | None = None, seconds: float = 20.0):
        self.folder, self.key, self.stop, self.seconds = folder, key, stop, seconds
        self.notes: list[str] = []  # what was dropped while reading, for the metadata
        self._done: dict[str, list[dict]] = {}  # what an earlier attempt finished
        self._written: set[str] = set()  # names of what this one has
        self._unwritten: dict[str, list[dict]] = {}
        self._written_at = time.monotonic()
        self._wait = min(1.0, seconds)
        if folder.exists():
            with _reading(folder):
                parts = sorted(folder.glob("*.part"))
            for part in parts:
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
            name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.part"  # sorted by time, unique among processes
            with _writing(self.folder), artifacts.replacing(self.folder / name) as temporary:
                temporary.write_bytes(hashlib.sha256(body).digest() + body)
            with _writing(self.folder):
                _sync_folder(self.folder)
        self._written.update(self._unwritten)
        self._unwritten = {}
        self._written_at = time.monotonic()

    def _read(self, part: Path) -> dict[str, list[dict]]:
        with _reading(part):
            content = part.read_bytes()
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


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _writing(place: Path):
    try:
        yield
    except OSError as error:
        raise StoreError(f"the store cannot be written at {place}: {error.strerror or error}.") from error


@contextlib.contextmanager
def _reading(place: Path):
    try:
        yield
    except OSError as error:
        raise StoreError(f"the store cannot be read at {place}: {error.strerror or error}.") from error
