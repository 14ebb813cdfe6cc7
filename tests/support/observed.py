"""What the code does during a block: calls of a function, opened files, sleeps. Nothing is replaced."""

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def calls(function: Callable, on_call: Callable[[], None] = lambda: None) -> Iterator[list[dict]]:
    """Yield a list of the arguments, by name, of each call of a Python function, in this thread and those it starts.

    `on_call` is called at the beginning of each call, within it: what it raises is raised there.
    """
    code, arguments = inspect.unwrap(function).__code__, []

    def profile(frame, event, _):
        if event == "call" and frame.f_code is code:
            arguments.append(dict(frame.f_locals))
            on_call()

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield arguments
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


_listeners: list[Callable[[str, tuple], None]] = []  # of audit events
_has_hook = False


@contextlib.contextmanager
def _audit(listen: Callable[[str, tuple], None]) -> Iterator[None]:
    global _has_hook
    if not _has_hook:  # it cannot be removed
        sys.addaudithook(lambda event, arguments: [each(event, arguments) for each in _listeners] and None)
        _has_hook = True
    _listeners.append(listen)
    try:
        yield
    finally:
        _listeners.remove(listen)


@contextlib.contextmanager
def opened_files(directory, on_open: Callable[[str], None] = lambda path: None) -> Iterator[list[str]]:
    """Yield a list of the files below `directory`, as relative paths, that Python opens; `on_open` is called before."""
    paths, start = [], os.path.join(os.path.realpath(directory), "")

    def listen(event, arguments):
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = os.path.realpath(arguments[0])
            if path.startswith(start):
                paths.append(path.removeprefix(start))
                on_open(paths[-1])

    with _audit(listen):
        yield paths


@contextlib.contextmanager
def sleeps() -> Iterator[list[float]]:
    """Yield a list of the seconds of each `time.sleep`."""
    seconds = []
    with _audit(lambda event, arguments: seconds.append(arguments[0]) if event == "time.sleep" else None):
        yield seconds
