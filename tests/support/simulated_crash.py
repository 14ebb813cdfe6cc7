"""A simulated kill in the middle of a run, for tests of resuming."""

from vernacular.inference.job.store import Journal


class SimulatedKill(BaseException):
    """Stand-in for SIGKILL: never caught, no cleanup."""


class CrashingJournal(Journal):
    """A journal that flushes every batch immediately and raises SimulatedKill after `n_batches` batches."""

    def __init__(self, directory, n_batches: int):
        super().__init__(directory, "key", seconds=0)
        self.last = n_batches

    def add(self, batch: str, rows: list[dict]) -> None:
        super().add(batch, rows)
        if self.n_batches == self.last:
            raise SimulatedKill
