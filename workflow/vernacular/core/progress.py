"""Progress of long commands: a line on standard error every 30 seconds, in a terminal, a log file or a batch job."""

import sys
import threading
import time
from types import TracebackType

from vernacular.core.errors import format_count

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
