"""Patches of the tests that slow a run down and hold its jobs; Python imports this file from PYTHONPATH at startup.

Each computed batch is logged as a line of `batches.log` (pid, time, batch) and then takes `PAUSE` seconds more.
If the file `hold` exists, a job that has flushed a part of its journal and has computed more since then writes its pid
to `held` and waits until it is killed, stopped by a signal (ignored if the file `deaf` exists), or released. If `hold`
contains "loading", jobs wait while they load the model instead. If the file `hog` contains a number, the job allocates
that many MB there instead, once. Snakemake polls its SLURM jobs every second; otherwise it would wait 10 seconds longer
each time. The package itself does not know about these patches.
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
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            PATCHES[name](module)

        spec.loader.exec_module = load_and_patch
        return spec


def patch_journal(store):
    add, flush = store.Journal.add, store.Journal.flush

    def add_with_pause(self, batch, rows):
        with LOG.open("a") as file:
            file.write(f"{os.getpid()} {time.time()} {self.key}/{batch}\n")
        time.sleep(PAUSE)
        if getattr(self, "has_flushed", False) and self._unwritten:
            if HOG.exists():
                megabytes = int(HOG.read_text())
                HOG.unlink()
                self.allocated = allocate(megabytes)
                wait(lambda: False, "for termination by the out-of-memory killer")
            elif is_held(""):
                HELD.write_text(str(os.getpid()))
                wait(lambda: not HOLD.exists() or (self.stop and not DEAF.exists()), "for release or a signal")
        add(self, batch, rows)

    def flush_and_mark(self):
        flush(self)
        self.has_flushed = True

    store.Journal.add, store.Journal.flush = add_with_pause, flush_and_mark


def is_held(phase):
    return HOLD.exists() and HOLD.read_text() == phase


def patch_load(load):
    read = load._read_weights

    def read_with_hold(*args):
        if is_held("loading"):
            HELD.write_text(str(os.getpid()))
            wait(lambda: not HOLD.exists(), "for release or a signal")
        return read(*args)

    load._read_weights = read_with_hold


def allocate(megabytes):
    """Map 100 MB repeatedly: counts as `megabytes` against the limit, but uses 100 MB."""
    file = os.memfd_create("hog")
    os.ftruncate(file, 100_000_000)
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return [mmap.mmap(file, 100_000_000, flags=flags) for _ in range(megabytes // 100)]


def wait(condition, description, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out waiting {description}")
        time.sleep(0.05)


def poll_every_second(remote):
    interval = property(lambda self: 1, lambda self, seconds: None)
    remote.RemoteExecutor.next_seconds_between_status_checks = interval


PATCHES = {
    "vernacular.inference.job.store": patch_journal,
    "vernacular.inference.model.load": patch_load,
    "snakemake_interface_executor_plugins.executors.remote": poll_every_second,
}
sys.meta_path.insert(0, Finder())
