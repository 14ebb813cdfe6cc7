"""Pools of worker processes, commands that run in a child process, time limits, and what signals do to a job.

A worker never outlives the process that started it. A signal to a job (Ctrl-C, scancel, the end of its time) is
remembered and acts between batches, so that what is finished is written. A process that the kernel kills for memory, or
that a library crashes, can write nothing any more: its parent holds next to no memory, survives, and writes why the
results are missing.
"""

import contextlib
import gc
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process

from vernacular.core.errors import ArtifactError, UserError


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


class TimeLimitExceeded(BaseException):
    """Something took longer than it may. Not an Exception: Jinja treats those as a part that it can do without."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise TimeLimitExceeded in what is inside after `seconds`; yield whether there is a limit.

    The limit is an alarm, of which a process has one, and its main thread receives it: other threads have no limit.
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
    """The run was asked to stop (SIGTERM, SIGUSR1, SIGINT); what was finished is in the journal."""


class _Interruption(BaseException):
    """Raised by a signal there and then. No Exception: libraries catch those while they load a model."""


class StopFlag:
    """True once a signal asked to stop; `name` is that signal."""

    def __init__(self):
        self.name: str | None = None
        self.journal = None  # of the evaluation in hand
        self._at_once = False

    def __bool__(self) -> bool:
        return self.name is not None

    def remember(self, name: str) -> None:
        """A signal has come: the first one, where nothing is to be finished, ends what is being done."""
        first, self.name = self.name is None, self.name or name
        if first and self._at_once:
            raise _Interruption

    @contextlib.contextmanager
    def at_once(self):
        """Inside, a signal ends what is being done, as soon as Python hears of it: Stopped comes out of here.

        So does whatever a library makes of the interruption: an error of that moment is nobody's mistake.
        """
        with self._changed(at_once=True):
            try:
                yield
            except ArtifactError:  # what cannot be kept is said
                raise
            except (_Interruption, Exception):
                if self:
                    raise self.stopped() from None
                raise

    @contextlib.contextmanager
    def finishing(self):
        """Inside, a signal is only remembered; it acts afterwards. What came before acts now, should it be lost."""
        self._look()
        with self._changed(at_once=False):
            yield
        self._look()

    def stopped(self) -> Stopped:
        """What to say in the end, when all that is finished is written down."""
        kept = "what is finished is kept"
        if self.journal is not None:
            self.journal.flush()
            kept = f"{self.journal.known} finished batches are kept"
        return Stopped(f"stopped by {self.name}: {kept}; the next run goes on from there.")

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
    """Yield a StopFlag that these signals set, to be looked at between batches.

    After the first of them Ctrl-C acts as usual, for a person who will not wait. The others are still only remembered:
    SLURM sends SIGTERM twice (a warning and the end of the time at once, or srun passes on its own); the second must
    not end what is writing down its answers.
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
    """Fork. Return None in the child; in the parent, wait for the child and return its exit status.

    The status is negative where a signal ended the child, as in `subprocess`. Signals to the parent reach the child
    once, since it has a process group of its own: a Ctrl-C in a terminal too. If the parent is killed, the child ends.
    """
    alive, held = os.pipe()  # the parent holds one end, which closes when it dies
    child = os.fork()
    if child == 0:
        os.close(held)
        os.setpgid(0, 0)
        threading.Thread(target=_end_when_closed, args=(alive,), daemon=True).start()
        return None
    os.close(alive)
    with contextlib.suppress(OSError):  # the child has done it, or is gone
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
    """Return what a status of `in_child` says of a sudden end; None where the process ended by itself."""
    if -status not in _DEATHS:
        return None
    name = signal.Signals(-status).name
    why = "out of memory?" if name == "SIGKILL" else "a crash in native code"
    return f"its process was ended by {name} ({why})"


def _send(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _end_when_closed(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)
