"""Failed jobs of a run and their reasons, grouped by model, from Snakemake's messages and the logs of the stages.

A stage ends with an error in its log, also if its process is killed (`cli.py`). If it did not get that far, the reason
is the signal or the exit status in Snakemake's message, or what the executor reports (`OUT_OF_MEMORY` of SLURM).

The log of a stage: messages and warnings, without credentials; and what a command prints on a terminal.
"""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from snakemake.logging import get_event
from snakemake_interface_logger_plugins.common import LogEvent

from vernacular.core.errors import as_write_error, escape_controls, redact_secrets, writing
from vernacular.core.processes import termination_cause

_EXIT = re.compile(r"CalledProcessError.* (?:died with <Signals\.(\w+)|returned non-zero exit status (\d+))", re.DOTALL)

_MAX_LOGS = 5  # named for a list of missing results


@dataclass(frozen=True)
class _Job:
    """A job that was started: its model, if it has one, and when each of its logs was last written before."""

    model: str | None
    log_times: dict[str, int | None]


@dataclass(frozen=True)
class _Failure:
    """A failed job: its reason, of one or several lines, and the logs that it wrote."""

    rule: str
    model: str | None
    reason: str
    logs: list[str]

    @property
    def is_list(self) -> bool:
        """Whether the reason is a list of models, of rule `verify`."""
        return self.model is None and self.reason.count("\n") > 1

    def __str__(self) -> str:
        logs = [f"log: {', '.join(self.logs)}"] if self.logs else []
        return "\n      ".join([*f"{self.rule}: {self.reason}".splitlines(), *logs])


class FailedJobs(logging.Handler):
    """Handler of Snakemake's messages that prints nothing and remembers which jobs failed."""

    def __init__(self):
        super().__init__(logging.INFO)
        self._jobs: dict[int, _Job] = {}
        self._failures: dict[int, _Failure] = {}
        self._thread = threading.local()  # Snakemake reports the exit status of a job before the job, in its thread

    def emit(self, record: logging.LogRecord) -> None:
        """Update the failed jobs by a message; a job that is started again has not failed."""
        fields = record.__dict__
        match get_event(record):
            case LogEvent.JOB_INFO:
                models = [fields["wildcards"].get(name) for name in ("model", "base", "encoder")]
                log_times = {path: _time_of(path) for path in fields["log"]}
                self._jobs[fields["jobid"]] = _Job(next(filter(None, models), None), log_times)
                self._failures.pop(fields["jobid"], None)
            case LogEvent.ERROR:
                self._thread.status = _exit_status(str(record.msg))
            case LogEvent.JOB_ERROR:
                self._add(fields, getattr(self._thread, "status", None))
                self._thread.status = None
            case LogEvent.GROUP_ERROR:
                for job_fields in fields["job_error_info"]:
                    self._add(job_fields, None)

    def summary(self) -> str:
        """Return the reasons, grouped by model, and how to resume."""
        by_model: dict[str, list[str]] = {}
        for failure in self._failures.values():
            if not failure.is_list:
                by_model.setdefault(failure.model or "all models", []).append(f"    {failure}")
        lines = [""]
        if by_model:
            lines.append("These jobs failed:")
        for model, failures in by_model.items():
            lines += [f"  {model}", *failures]
        for failure in self._failures.values():
            if failure.is_list:
                lines.append(failure.reason[0].upper() + failure.reason[1:])
                lines += self._logs_with_errors()
        if not self._failures:
            lines.append("The run was stopped before all jobs were completed.")
        return "\n".join([*lines, "Finished results are kept. To resume, run the same command again."])

    def _logs_with_errors(self) -> list[str]:
        """Return a line that names logs of completed jobs in which a part failed, such as one evaluation of a model."""
        named = {path for failure in self._failures.values() for path in failure.logs}
        written = [
            path for job in self._jobs.values() for path, time in job.log_times.items() if _time_of(path) != time
        ]
        logs = [path for path in written if path not in named and last_error(Path(path))]
        more = f" and {len(logs) - _MAX_LOGS} more" if len(logs) > _MAX_LOGS else ""
        return [f"Logs: {', '.join(logs[:_MAX_LOGS])}{more}"] if logs else []

    def _add(self, fields: dict, status: int | None) -> None:
        job = self._jobs.get(fields["jobid"], _Job(None, {}))
        logs = [path.partition(" (")[0] for path in fields["log"]]  # without a remark of Snakemake
        logs = [path for path in logs if _time_of(path) != job.log_times.get(path)]  # not of an earlier run
        reasons = (
            termination_cause(status) if status else None,
            last_error(Path(logs[0])) if logs else None,
            str(fields.get("rule_msg") or "").partition(". ")[0],
            f"exit status {status}" if status else "unknown reason",
        )
        reason = next(filter(None, reasons))
        self._failures[fields["jobid"]] = _Failure(fields["rule_name"], job.model, reason, logs)


def _time_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _exit_status(message: str) -> int | None:
    """Return the exit status in an error of `subprocess`, negative for a signal, as the process or its shell states it.

    >>> _exit_status("CalledProcessError in file x: Command 'infer' returned non-zero exit status 137.")
    -9
    >>> _exit_status("CalledProcessError in file x: Command 'infer' died with <Signals.SIGSEGV: 11>.")
    -11
    """
    match = _EXIT.search(message)
    if match is None:
        return None
    if match[1]:
        return -signal.Signals[match[1]].value
    status = int(match[2])
    return 128 - status if status > 128 else status


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MESSAGE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) \S+: (.*)")  # a line in _FORMAT


def log_to(path: Path | None, *, append: bool = False) -> None:
    """Send messages and warnings to the file `path`; if None, send warnings to the terminal.

    Args:
        append: Keep what the file contains.
    """
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
    """Return the last error message of a log, and of an unexpected error the line below its traceback.

    Returns:
        One or several lines; None if the log has no error, or does not exist.
    """
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
    """Stream of texts in which nothing controls the terminal: datasets, servers and models are not trusted.

    Args:
        unescaped: The stream to which the texts are written; all else is its own.
    """

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
