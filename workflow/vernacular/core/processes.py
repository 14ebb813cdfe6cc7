"""Several processes for work that Python itself does: a pool whose processes never outlive the one that asked."""

import gc
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process


def pool(count: int) -> ProcessPoolExecutor:
    """A pool of `count` fresh processes for work on rows; use it in a `with`.

    An interruption (Ctrl-C) is left to the process that asked: what is running ends, the rest is not begun.
    """
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # rows are trees that need no collector, which would walk through all of them again and again: a third of the time
    gc.disable()
    # a process that is killed cannot tell its pool to end: without this, its processes would wait for work for ever
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)
