"""Limits to the time and the memory that somebody else's template may take."""

import contextlib
import resource
import signal
import sys
import threading

# far more than any template needs, which takes microseconds and kilobytes
SECONDS = 10
MEMORY = 1 << 30


class Endless(BaseException):
    """It took longer than it may. No Exception: Jinja takes every one of those for a part that it can do without."""


@contextlib.contextmanager
def limits():
    """Within: Endless is raised after SECONDS, and MemoryError for more than MEMORY bytes beside what is in use.

    The alarm is the process's only one and is heard by its main thread; in another thread there is no limit. Memory is
    limited on Linux alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = signal.signal(signal.SIGALRM, _stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        if sys.platform == "linux":
            most = _in_use() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most if soft == -1 else min(soft, most), hard))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, heard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _in_use() -> int:
    """Bytes of address space that this process has taken (proc(5): the first number of statm, in pages)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _stop(*_):
    raise Endless
