"""Worker pools, commands in child processes, time limits, and signal handling of jobs.

A worker never outlives the process that started it. A signal to a job (Ctrl-C, scancel, the end of its walltime) is
recorded and takes effect between batches, so that finished results are written. A process that the kernel kills for
lack of memory, or that crashes in a library, cannot write anything: its parent uses little memory, survives, and
records why the results are missing.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from types import TracebackType
from typing import Generic, NoReturn, TypeVar

from vernacular.core.errors import ArtifactError, UserError, format_count

T = TypeVar("T")

# A signal that arrives just before a wait begins does not end it: Python handles it when the thread wakes up.
_WAKE = 0.5  # seconds


def pool(count: int) -> ProcessPoolExecutor:
    """Return a pool of `count` newly spawned processes, a context manager; they leave Ctrl-C to their parent."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_init_worker)


def _init_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # a killed parent cannot shut down its pool: without this thread, workers would wait for tasks indefinitely
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent_process().join()
    os._exit(1)


def completed(futures: Collection[Future]) -> set[Future]:
    """Wait until one of `futures` is done, and return those that are; the main thread handles signals meanwhile."""
    while not (done := wait(futures, _WAKE, FIRST_COMPLETED).done):
        pass
    return done


class TimeLimitExceeded(BaseException):
    """Exceeded time limit. Not an Exception, because Jinja suppresses those while it folds constants."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raise TimeLimitExceeded inside the block after `seconds`, at the next Python instruction.

    In the main thread, by SIGALRM, of which a process has one timer; that also interrupts waiting.
    """
    if threading.current_thread() is not threading.main_thread():
        with thread_time_limit(seconds, TimeLimitExceeded):
            yield
        return
    previous_handler = signal.signal(signal.SIGALRM, _raise_exceeded)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, previous_handler)


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
        self._interruptible = False
        self._failure: BaseException | None = None

    def __bool__(self) -> bool:
        return self.name is not None

    def record_signal(self, name: str) -> None:
        """Record a signal; the first one interrupts the process immediately inside `interruptible`."""
        first, self.name = self.name is None, self.name or name
        if first and self._interruptible:
            raise _Interruption

    def fail(self, error: BaseException) -> None:
        """Make the main thread raise an error of another thread, before or after its current batch."""
        self._failure = error

    @contextlib.contextmanager
    def interruptible(self):
        """Let a signal interrupt the block as soon as Python handles it, and raise Stopped, also for its effects."""
        with self._set_interruptible(True):
            try:
                yield
            except ArtifactError:  # results that cannot be stored are reported
                raise
            except (_Interruption, Exception):
                if self:
                    raise self.stopped() from None
                raise

    @contextlib.contextmanager
    def defer_signals(self):
        """Defer signals to the end of the block; an earlier one, which a library may have suppressed, acts first."""
        self._raise_pending()
        with self._set_interruptible(False):
            yield
        self._raise_pending()

    def stopped(self) -> Stopped:
        """Write finished batches to the journal, and return the error that reports the stop."""
        stored = "finished outputs are stored"
        if self.journal is not None:
            self.journal.flush()
            stored = f"{format_count(self.journal.n_batches, 'finished batch is', 'finished batches are')} stored"
        return Stopped(f"stopped by {self.name}: {stored}; the next run resumes from there.")

    def _raise_pending(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._interruptible and self:
            raise _Interruption

    @contextlib.contextmanager
    def _set_interruptible(self, value: bool):
        previous, self._interruptible = self._interruptible, value
        try:
            yield
        finally:
            self._interruptible = previous


@contextlib.contextmanager
def stop_on_signals(signals=(signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)):
    """Yield a StopFlag that these signals set, to be checked between batches.

    After the first one, Ctrl-C has its usual effect, for users who do not want to wait. SLURM sends SIGTERM twice, and
    the second one must not interrupt a process that is writing its outputs.
    """
    flag = StopFlag()
    previous_handlers = {}

    def record_signal(signum, frame):
        if signal.SIGINT in previous_handlers:
            signal.signal(signal.SIGINT, previous_handlers[signal.SIGINT])
        flag.record_signal(signal.Signals(signum).name)

    for signum in signals:
        previous_handlers[signum] = signal.signal(signum, record_signal)
    try:
        yield flag
    finally:
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)


_FATAL_SIGNALS = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def fork_child() -> int | None:
    """Fork; return None in the child, in the parent its exit status, negative for a signal as in `subprocess`.

    The child has its own process group, so that signals to the parent reach it once. What a library has started there
    (vLLM) ends with the child, and all of it if the parent is killed.
    """
    read_end, write_end = os.pipe()  # the parent's end closes when the parent dies
    child_pid = os.fork()
    if child_pid == 0:
        os.close(write_end)
        os.setpgid(0, 0)
        threading.Thread(target=_exit_when_closed, args=(read_end,), daemon=True).start()
        return None
    os.close(read_end)
    with contextlib.suppress(OSError):  # the child has already set it, or has ended
        os.setpgid(child_pid, child_pid)
    previous_handlers = {signum: signal.getsignal(signum) for signum in _FORWARDED}
    for signum, handler in previous_handlers.items():
        if handler is not signal.SIG_IGN:  # as under nohup: the child ignores it too
            signal.signal(signum, lambda n, _: _send_signal(child_pid, n))
    try:
        _, status = os.waitpid(child_pid, 0)
        with contextlib.suppress(OSError):  # usually, none is left
            os.killpg(child_pid, signal.SIGTERM)
    finally:
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)
        os.close(write_end)
    return os.waitstatus_to_exitcode(status)


def exit_child(status: int) -> NoReturn:
    """End a forked child as multiprocessing ends its own: objects are not freed one by one, a second after torch."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def termination_cause(status: int) -> str | None:
    """Return the cause of death for a status of `fork_child`: a kill or a crash; None for any other exit."""
    if -status not in _FATAL_SIGNALS:
        return None
    name = signal.Signals(-status).name
    cause = "probable cause: out of memory" if name == "SIGKILL" else "a crash in native code"
    return f"its process was terminated by {name} ({cause})"


def _send_signal(child_pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child_pid, signum)


def _exit_when_closed(read_end: int) -> None:
    os.read(read_end, 1)
    os.killpg(0, signal.SIGKILL)


class Cancelled(BaseException):
    """Cancellation of a task. Not an Exception, because libraries catch those."""


class Task(Generic[T]):
    """A call of `function` in a thread, at once or when the event `after` is set; cancelled by an error in its context.

    The main thread handles signals while it waits for a result. The thread does not delay the end of the process.
    """

    def __init__(self, function: Callable[[], T], *, after: threading.Event | None = None):
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, after), daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the call has returned or raised."""
        return self._done.is_set()

    def result(self) -> T:
        """Wait for the call; return its result, or raise its error, of any class."""
        while not self._done.wait(_WAKE):
            pass
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        """Interrupt the call at its next Python instruction; a library that it calls is not waited for."""
        if not self.is_done:
            raise_in_thread(self._thread.ident, Cancelled)
            self._thread.join(timeout=1.0)

    def __enter__(self) -> "Task[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.cancel()

    def _run(self, function: Callable[[], T], after: threading.Event | None) -> None:
        try:
            if after is not None:
                after.wait()
            self._value = function()
        except BaseException as error:  # noqa: BLE001 (raised again by `result`)
            self._error = error
        finally:
            self._done.set()


def raise_in_thread(thread_id: int, kind: type[BaseException] | None) -> None:
    """Raise an exception of class `kind` in another thread, at its next Python instruction; None: not after all."""
    exception = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exception)


@contextlib.contextmanager
def thread_time_limit(seconds: float, kind: type[BaseException]) -> Iterator[None]:
    """Raise an exception of class `kind` inside the block after `seconds`, in any thread."""
    thread_id, lock = threading.get_ident(), threading.Lock()
    is_active = True

    def interrupt() -> None:
        with lock:
            if is_active:
                raise_in_thread(thread_id, kind)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:  # an exception raised before is delivered in this block
            is_active = False
