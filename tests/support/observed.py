"""What the code does during a block: calls of a function, opened files, sleeps. Nothing is replaced."""

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any


@contextlib.contextmanager
def calls(function: Callable, record: Callable[[dict], Any] = dict) -> Iterator[list]:
    """Yield a list of what `record` returns for each call of a Python function, in this thread and those it starts.

    `record` is given the arguments by name, at the beginning of the call: what it raises is raised there.
    """
    code, recorded = inspect.unwrap(function).__code__, []
    _recorders[code] = lambda arguments: recorded.append(record(arguments))
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    try:
        yield recorded
    finally:
        del _recorders[code]
        if not _recorders:
            sys.setprofile(None)
            threading.setprofile(None)


_recorders: dict[CodeType, Callable[[dict], None]] = {}


def _profile(frame, event, _) -> None:
    if event == "call" and frame.f_code in _recorders:
        _recorders[frame.f_code](frame.f_locals)


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
