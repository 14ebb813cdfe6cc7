"""Limits of the requests that a server receives at a time.

`Slots` is the configured limit, shared by all jobs of a user on one machine: each request holds one of `count` lock
files. The kernel releases the lock of a process that is killed, so that no slot is lost. `AdaptiveLimit` is that of one
job, which a busy server reduces.
"""

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from vernacular.core.fingerprint import fingerprint

_POLL = 0.02  # seconds between two attempts while all slots are taken


class Slots:
    """`count` slots for requests to `address` (scheme, host and port), shared by processes and threads."""

    def __init__(self, address: str, count: int, directory: Path | None = None):
        root = directory or Path(tempfile.gettempdir(), f"vernacular-{os.getuid()}")
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = fingerprint(address)[:16]
        self._paths = [root / f"{stem}.{index}.lock" for index in range(count)]
        self._files = [open(path, "a") for path in self._paths]  # noqa: SIM115 (open as long as the object)
        self._free = list(range(count))  # not taken by this process
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def slot(self, wait: Callable[[float], None]) -> Iterator[None]:
        """Hold one slot; `wait(seconds)` is called while all are taken, and may raise."""
        while (index := self._take()) is None:
            wait(_POLL)
        try:
            yield
        finally:
            fcntl.flock(self._files[index], fcntl.LOCK_UN)
            with self._lock:
                self._free.append(index)

    def _take(self) -> int | None:
        with self._lock:
            for index in list(self._free):
                try:
                    fcntl.flock(self._files[index], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # another process holds it
                    continue
                self._free.remove(index)
                return index
        return None

    def close(self) -> None:
        for file in self._files:
            file.close()


_GROWTH = 50  # answered requests after which a reduced limit is raised by one


class AdaptiveLimit:
    """A limit of `size` requests that is halved when the server is busy (429), and recovers slowly."""

    def __init__(self, size: int):
        self._size = self.limit = size  # requests: the most, and now
        self._active = self._answered = 0
        self._condition = threading.Condition()

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the requests that the limit allows."""
        with self._condition:
            self._condition.wait_for(lambda: self._active < self.limit)
            self._active += 1
        try:
            yield
        finally:
            with self._condition:
                self._active -= 1
                self._condition.notify_all()

    def halve(self) -> None:
        """Reduce the limit, to at least one request."""
        with self._condition:
            self.limit, self._answered = max(1, self.limit // 2), 0

    def count_answer(self) -> None:
        """Count an answered request."""
        with self._condition:
            self._answered += 1
            if self._answered >= _GROWTH and self.limit < self._size:
                self.limit, self._answered = self.limit + 1, 0
                self._condition.notify_all()
