"""Worker pools, commands in child processes, time limits, and signal handling of jobs.

A worker never outlives the process that started it. A signal to a job (Ctrl-C, scancel, the end of its walltime) is
recorded and takes effect between batches, so that finished results are written. A process that the kernel kills for
lack of memory, or that crashes in a library, cannot write anything: its parent uses little memory, survives, and
records why the results are missing.
"""

import contextlib
import gc
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process

from vernacular.core.errors import ArtifactError, UserError, counted


def pool(count: int) -> ProcessPoolExecutor:
    """Return a pool of `count` newly spawned processes for work on rows, to be used as a context manager.

    Workers ignore Ctrl-C, which their parent handles: running tasks end, pending tasks are not started.
    """
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # rows contain no reference cycles, and scanning them for cycles would take a third of the time
    gc.disable()
    # a killed parent cannot shut down its pool: without this thread, workers would wait for tasks indefinitely
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)


class TimeLimitExceeded(BaseException):
    """Exceeded time limit. Not an Exception, because Jinja suppresses those while it folds constants."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise TimeLimitExceeded inside the block after `seconds`; yield whether a limit is set.

    The limit uses SIGALRM, of which a process has one timer, and which its main thread receives: in other threads
    there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = signal.signal(signal.SIGALRM, _raise_exceeded)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)


def _raise_exceeded(*_):
    raise TimeLimitExceeded


class Stopped(UserError):
    """Stop of the run by a signal (SIGTERM, SIGUSR1, SIGINT); finished batches are in the journal."""


class _Interruption(BaseException):
    """Immediate interruption by a signal. Not an Exception, because libraries catch those while they load a model."""


class StopFlag:
    """Flag that is true once a signal requests a stop; `name` is that signal."""

    def __init__(self):
        self.name: str | None = None
        self.journal = None  # of the current evaluation
        self._at_once = False

    def __bool__(self) -> bool:
        return self.name is not None

    def remember(self, name: str) -> None:
        """Record a signal; the first one interrupts the process immediately inside `at_once`."""
        first, self.name = self.name is None, self.name or name
        if first and self._at_once:
            raise _Interruption

    @contextlib.contextmanager
    def at_once(self):
        """Let a signal interrupt the block as soon as Python handles it, and raise Stopped.

        Errors that libraries raise after the signal are consequences of the interruption and raised as Stopped, too.
        """
        with self._changed(at_once=True):
            try:
                yield
            except ArtifactError:  # results that cannot be stored are reported
                raise
            except (_Interruption, Exception):
                if self:
                    raise self.stopped() from None
                raise

    @contextlib.contextmanager
    def finishing(self):
        """Defer signals to the end of the block; an earlier one, which a library may have suppressed, acts first."""
        self._look()
        with self._changed(at_once=False):
            yield
        self._look()

    def stopped(self) -> Stopped:
        """Write finished batches to the journal, and return the error that reports the stop."""
        stored = "finished outputs are stored"
        if self.journal is not None:
            self.journal.flush()
            stored = f"{counted(self.journal.known, 'finished batch is', 'finished batches are')} stored"
        return Stopped(f"stopped by {self.name}: {stored}; the next run resumes from there.")

    def _look(self) -> None:
        if self._at_once and self:
            raise _Interruption

    @contextlib.contextmanager
    def _changed(self, *, at_once: bool):
        before, self._at_once = self._at_once, at_once
        try:
            yield
        finally:
            self._at_once = before


@contextlib.contextmanager
def stoppable(signals=(signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)):
    """Yield a StopFlag that these signals set, to be checked between batches.

    After the first signal, Ctrl-C has its usual effect, for users who do not want to wait. The others are still only
    recorded: SLURM sends SIGTERM twice (as a warning and at the time limit, or again through srun), and the second one
    must not interrupt a process that is writing its outputs.
    """
    flag = StopFlag()
    before = {}

    def remember(number, frame):
        if signal.SIGINT in before:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        flag.remember(signal.Signals(number).name)

    for each in signals:
        before[each] = signal.signal(each, remember)
    try:
        yield flag
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


_DEATHS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def in_child() -> int | None:
    """Fork; return None in the child, and in the parent wait for the child and return its exit status.

    The status is negative if a signal ended the child, as in `subprocess`. The child has its own process group, so that
    signals to the parent, including Ctrl-C in a terminal, reach it once. If the parent is killed, the child ends.
    """
    alive, held = os.pipe()  # the parent's end closes when the parent dies
    child = os.fork()
    if child == 0:
        os.close(held)
        os.setpgid(0, 0)
        threading.Thread(target=_end_when_closed, args=(alive,), daemon=True).start()
        return None
    os.close(alive)
    with contextlib.suppress(OSError):  # the child has already set it, or has ended
        os.setpgid(child, child)
    before = {number: signal.getsignal(number) for number in _FORWARDED}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup: the child ignores it too
            signal.signal(number, lambda n, _: _send(child, n))
    try:
        _, status = os.waitpid(child, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(held)
    return os.waitstatus_to_exitcode(status)


def death(status: int) -> str | None:
    """Return the cause of death for a status of `in_child`: a kill or a crash; None for any other exit."""
    if -status not in _DEATHS:
        return None
    name = signal.Signals(-status).name
    cause = "probable cause: out of memory" if name == "SIGKILL" else "a crash in native code"
    return f"its process was terminated by {name} ({cause})"


def _send(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _end_when_closed(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)
