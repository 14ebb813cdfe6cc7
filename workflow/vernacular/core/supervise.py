"""Run a command in a child process, so that its death can be reported by a parent that is still alive.

A process that the kernel kills for memory, or that a library crashes, can write nothing any more. Its parent holds next
to no memory, survives, and writes why the results are missing.
"""

import contextlib
import os
import signal
import threading

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
        threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
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


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)
