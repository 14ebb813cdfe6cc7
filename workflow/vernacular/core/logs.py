"""The log of a stage: messages and warnings, without credentials; what a command prints on a terminal; its progress."""

import contextlib
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TextIO

from vernacular.core.errors import as_write_error, escape_controls, format_count, redact_secrets, writing

INTERVAL = 30.0  # seconds

_active: list["Progress"] = []  # outermost first


class Progress:
    """Counter of completed units; prints `infer tiny: 12 of 36 evaluations, about 4 min left`.

    The line appears also during a unit that takes minutes, because a thread prints it. Counters can be nested: only the
    outermost prints, and the others are the completed share of its current unit.

    Args:
        label: Beginning of the line.
        total: Number of units.
        noun: Unit, in the singular.

    Example:
        >>> with Progress("infer tiny", 4, "evaluation") as progress:
        ...     progress.advance()
        ...     progress.line(elapsed=60.0)
        'infer tiny: 1 of 4 evaluations, about 3 min left'
    """

    def __init__(self, label: str, total: int, noun: str):
        self.label, self.total, self.noun = label, total, noun
        self.done = 0
        self.span: tuple[float, float] | None = None  # completed share and share of the current unit; None: all alike
        self._stopped = threading.Event()

    def advance(self, count: int = 1) -> None:
        """Add completed units."""
        self.done += count

    def line(self, elapsed: float) -> str:
        """Return the line after `elapsed` seconds; without an estimate if nothing is completed."""
        text = f"{self.label}: {self.done} of {format_count(self.total, self.noun)}"
        share = self._share()
        if not 0 < share < 1:
            return text
        return f"{text}, about {format_duration(elapsed * (1 - share) / share)} left"

    def __enter__(self) -> "Progress":
        _active.append(self)
        if len(_active) == 1:
            threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        _active.remove(self)

    def _share(self) -> float:
        """Return the completed share, 0 to 1; the nested counters are those after this one."""
        if not self.total:
            return 0.0
        completed, current = self.span or (self.done / self.total, 1 / self.total)
        nested = _active[_active.index(self) + 1 :] if self in _active else []
        if nested:
            completed += current * nested[0]._share()
        return min(1.0, completed)

    def _print_lines(self) -> None:
        started = time.monotonic()
        while not self._stopped.wait(INTERVAL):
            # one write, so that jobs do not interrupt each other's lines if PYTHONUNBUFFERED is set
            print(f"{self.line(time.monotonic() - started)}\n", end="", file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(41), format_duration(250), format_duration(9000)
    ('41 s', '4 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MESSAGE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) \S+: (.*)")  # a line in _FORMAT


def log_to(path: Path | None, *, append: bool = False) -> None:
    """Send messages and warnings to the file `path`, with `append` after its content; None: warnings to a terminal."""
    logging.captureWarnings(True)
    if path:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _LogFile(path, mode="a" if append else "w", encoding="utf-8", errors="backslashreplace")
        logging.basicConfig(handlers=[file], level=logging.INFO)
        log_format = _FORMAT
    else:
        logging.basicConfig(level=logging.WARNING)
        log_format = "%(message)s"
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_RedactingFormatter(log_format))


def last_error(path: Path) -> str | None:
    """Return the last error message of a log, of an unexpected one the line below its traceback; None without one."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    messages: list[tuple[str, list[str]]] = []
    for line in lines:
        if match := _MESSAGE.match(line):
            messages.append((match[1], [match[2]]))
        elif messages:
            messages[-1][1].append(line)
    errors = [text for level, text in messages if level == "ERROR"]
    return _without_traceback(errors[-1]) if errors else None


def _without_traceback(lines: list[str]) -> str:
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    if not frames:
        return "\n".join(lines)
    return next((line for line in lines[frames[-1] :] if line and not line[0].isspace()), lines[0])


class _LogFile(logging.FileHandler):
    """Log file that reports a full disk with one line on the terminal, not with a traceback for each message."""

    has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = as_write_error(sys.exc_info()[1], self.baseFilename)
        if error is None:
            super().handleError(record)
        elif not self.has_failed:
            self.has_failed = True
            print(error, file=sys.stderr)


class _RedactingFormatter(logging.Formatter):
    """Formatter that removes credentials: HTTP clients log all URLs, and the Hub redirects to URLs with a signature."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(redact_secrets(super().format(record)))


class Escaped:
    """Stream of texts in which nothing controls the terminal: datasets, servers and models are not trusted."""

    def __init__(self, unescaped: TextIO):
        self.unescaped = unescaped

    def __getattr__(self, name: str):
        return getattr(self.unescaped, name)

    def write(self, text: str) -> int:
        self.unescaped.write(escape_controls(text))
        return len(text)

    def writelines(self, lines) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is printed inside the block, also if it is redirected: it may be read on a terminal later."""
    if isinstance(sys.stdout, Escaped):
        yield
        return
    with contextlib.redirect_stdout(Escaped(sys.stdout)), contextlib.redirect_stderr(Escaped(sys.stderr)):
        yield
