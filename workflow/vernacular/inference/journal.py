"""What scoring and generation need of a journal, and the one that keeps nothing on disk.

`store.Journal` is the durable one. It is not imported here: how outputs are kept does not change them, so editing the
store must not score anything again.
"""

import contextlib
from typing import Protocol


class Journal(Protocol):
    """Finished batches of one evaluation, by a name that is a hash of the batch's content."""

    notes: list[str]  # what was dropped while reading, for the metadata

    def done(self, batch: str) -> list[dict] | None:
        """The rows of a finished batch, or None."""

    def add(self, batch: str, rows: list[dict]) -> None:
        """Keep the rows of a finished batch."""

    def finishing(self) -> contextlib.AbstractContextManager:
        """Inside, a batch is computed and added: a signal acts afterwards."""

    def flush(self) -> None:
        """Write what is not yet on disk."""


class MemoryJournal:
    """Finished batches of this process, for runs without a store."""

    def __init__(self):
        self.notes: list[str] = []
        self._rows: dict[str, list[dict]] = {}

    def done(self, batch: str) -> list[dict] | None:
        return self._rows.get(batch)

    def add(self, batch: str, rows: list[dict]) -> None:
        self._rows[batch] = rows

    def finishing(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def flush(self) -> None:
        pass
