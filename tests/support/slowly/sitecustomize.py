"""Python reads this at its start where the tests put the folder on PYTHONPATH: it makes runs that can be hit in the middle.

Every batch that a model has answered is a line of `batches.log` (pid, time, batch), then takes `PAUSE` seconds more.
Where there is a file `hold`, a job that has written a part of its journal, and has answered more since, writes its pid to
`held` and waits there: to be killed, told to stop (where there is a file `deaf` it does not hear), or let go. If `hold`
says "loading", a job waits where it loads the model instead. A number in the file `hog` is so many MB to take there
instead, once. And Snakemake looks after its SLURM jobs every second: it would else wait 10 seconds longer each time.
The product knows nothing of it.
"""

import importlib.abc
import importlib.machinery
import mmap
import os
import sys
import time
from pathlib import Path

PAUSE = float(os.environ.get("PAUSE", 0))
HOLD, HELD, DEAF, HOG, LOG = map(Path, ("hold", "held", "deaf", "hog", "batches.log"))


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            CHANGES[name](module)

        spec.loader.exec_module = load_and_change
        return spec


def slow_down(store):
    add, flush = store.Journal.add, store.Journal.flush

    def add_slowly(self, batch, rows):
        with LOG.open("a") as file:
            file.write(f"{os.getpid()} {time.time()} {self.key}/{batch}\n")
        time.sleep(PAUSE)
        if getattr(self, "has_written", False) and self._unwritten:
            if HOG.exists():
                megabytes = int(HOG.read_text())
                HOG.unlink()
                self.taken = take(megabytes)
                wait(lambda: False, "to be ended for taking too much")
            elif held_in(""):
                HELD.write_text(str(os.getpid()))
                wait(lambda: not HOLD.exists() or (self.stop and not DEAF.exists()), "to be hit")
        add(self, batch, rows)

    def flush_and_remember(self):
        flush(self)
        self.has_written = True

    store.Journal.add, store.Journal.flush = add_slowly, flush_and_remember


def held_in(phase):
    return HOLD.exists() and HOLD.read_text() == phase


def slow_to_load(load):
    read = load._read_weights

    def read_slowly(*given):
        if held_in("loading"):
            HELD.write_text(str(os.getpid()))
            wait(lambda: not HOLD.exists(), "to be hit")
        return read(*given)

    load._read_weights = read_slowly


def take(megabytes):
    """Memory that counts as so much but is 100 MB: the same again and again."""
    file = os.memfd_create("hog")
    os.ftruncate(file, 100_000_000)
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return [mmap.mmap(file, 100_000_000, flags=flags) for _ in range(megabytes // 100)]


def wait(true, what, seconds=300):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain {what}")
        time.sleep(0.05)


def look_often(remote):
    often = property(lambda self: 1, lambda self, seconds: None)
    remote.RemoteExecutor.next_seconds_between_status_checks = often


CHANGES = {
    "vernacular.inference.job.store": slow_down,
    "vernacular.inference.model.load": slow_to_load,
    "snakemake_interface_executor_plugins.executors.remote": look_often,
}
sys.meta_path.insert(0, Finder())
