"""A kill in the middle of a run, for the tests of what is found again."""

from vernacular.inference.job.store import Journal


class Killed(BaseException):
    """Stands for SIGKILL: nothing is caught, nothing cleaned up."""


def dying_journal(folder, monkeypatch, *, after: int) -> Journal:
    """A journal that writes every batch down at once, and whose run is killed when it knows `after` of them."""
    journal = Journal(folder, "key", seconds=0)
    add = journal.add

    def add_then_die(*given):
        add(*given)
        if journal.known == after:
            raise Killed

    monkeypatch.setattr(journal, "add", add_then_die)
    return journal
