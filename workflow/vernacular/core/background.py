"""Work in a thread while the main thread does something else, and exceptions raised in another thread."""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Cancelled(BaseException):
    """Cancellation of a task. Not an Exception, because libraries catch those."""


class Task(Generic[T]):
    """A call of `function` in a thread, which starts immediately, or when the event `after` is set.

    As a context manager, it is cancelled if the block raises an error.

    Signals are handled by the main thread, which they interrupt while it waits for a result. The thread does not delay
    the end of the process.
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
        self._done.wait()
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
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if kind is None else ctypes.py_object(kind)
    )


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
