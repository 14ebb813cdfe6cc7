"""A simulated kill in the middle of a run, for tests of resuming."""

from vernacular.inference.job.store import Journal


class SimulatedKill(BaseException):
    """Stand-in for SIGKILL: never caught, no cleanup."""


def crashing_journal(directory, monkeypatch, *, n_batches: int) -> Journal:
    """Return a journal that flushes every batch immediately and raises SimulatedKill after `n_batches` batches."""
    journal = Journal(directory, "key", seconds=0)
    add = journal.add

    def add_then_crash(*args):
        add(*args)
        if journal.n_batches == n_batches:
            raise SimulatedKill

    monkeypatch.setattr(journal, "add", add_then_crash)
    return journal
