"""Python reads this at its start where the tests put the folder on PYTHONPATH: it slows the journal down and counts.

Every batch that a model has answered is a line of `batches.log` (pid, time, batch), then takes `PAUSE` seconds more, so
that a kill lands in the middle of a run that would else be over. A number in the file `hog` is so many MB to take, once.
The product knows nothing of it.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import time
from pathlib import Path

PAUSE = float(os.environ.get("PAUSE", 0))
STORE = "vernacular.inference.store"


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != STORE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_slow(module):
            load(module)
            module.Journal.add = slow(module.Journal.add)

        spec.loader.exec_module = load_and_slow
        return spec


def slow(add):
    def add_slowly(self, batch, rows):
        with open("batches.log", "a") as file:
            file.write(f"{os.getpid()} {time.time()} {self.key}/{batch}\n")
        time.sleep(PAUSE)
        if self.known and (hog := Path("hog")).exists():
            megabytes = int(hog.read_text())
            hog.unlink()
            self.taken = b"x" * (megabytes * 1_000_000)
            time.sleep(20)  # until SLURM has looked
        add(self, batch, rows)

    return add_slowly


sys.meta_path.insert(0, Finder())
