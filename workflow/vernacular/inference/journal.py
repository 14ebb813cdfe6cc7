"""Interface of a journal for scoring and generation, and an implementation in memory.

`store.Journal` is the durable implementation. It is not imported here: the storage of outputs does not affect their
values, so an edit of the store must not invalidate any scores.
"""

import contextlib
import typing


class Journal(typing.Protocol):
    """Finished batches of one evaluation, by batch name (a hash of the batch's content)."""

    notes: list[str]  # parts dropped while reading, for the metadata

    def get(self, batch: str) -> list[dict] | None:
        """Return the rows of a finished batch, or None."""

    def add(self, batch: str, rows: list[dict]) -> None:
        """Store the rows of a finished batch."""

    def defer_signals(self) -> contextlib.AbstractContextManager:
        """Return a context in which a batch is computed and added; a signal takes effect at its end."""

    def flush(self) -> None:
        """Write the batches that are not yet on disk."""


class MemoryJournal:
    """A journal in memory, for runs without a store."""

    def __init__(self):
        self.notes: list[str] = []
        self._rows: dict[str, list[dict]] = {}

    def get(self, batch: str) -> list[dict] | None:
        return self._rows.get(batch)

    def add(self, batch: str, rows: list[dict]) -> None:
        self._rows[batch] = rows

    def defer_signals(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def flush(self) -> None:
        pass
