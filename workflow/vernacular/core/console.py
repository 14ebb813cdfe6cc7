"""Snakemake's messages on the terminal: a line per job, without shell commands, and the reasons of failed jobs.

Snakemake's own handler is kept, with its colors and its options `--quiet`, `--printshellcmds` and `--show-failed-logs`;
its log file under `.snakemake/log/` is unchanged. A job starts with

    [5 of 20] infer: evaluate smollm2-135m (shard 1of2), except for outputs in the store

where 5 is the number of finished jobs, and ends with the line that its command prints. A failed job is named with its
log, and a run ends with the reasons of all failures instead of Snakemake's sentence. A dry run lists these lines
without numbers instead of the table of rules; `--quiet rules` prints the table.

Failed jobs are grouped by model, with reasons from Snakemake's messages and the logs of the stages. A stage ends with
an error in its log, also if its process is killed (`cli.py`). If it did not get that far, the reason is the signal or
the exit status in Snakemake's message, or what the executor reports (`OUT_OF_MEMORY` of SLURM).
"""

import contextlib
import io
import logging
import os
import re
import shutil
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from snakemake.cli import parse_args
from snakemake.logging import DefaultFilter, DefaultFormatter, get_event, is_quiet_about, logger, show_logs
from snakemake_interface_logger_plugins.common import LogEvent

from vernacular.core.errors import escape_controls
from vernacular.core.logs import last_error
from vernacular.core.paths import rerun_command
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
        """Whether the reason is a list of models, of rule `finish`."""
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

    @property
    def has_summary(self) -> bool:
        """Whether only `finish` failed, which follows the summary: some results are missing from it."""
        return all(failure.is_list for failure in self._failures.values()) and bool(self._failures)

    def _logs_with_errors(self) -> list[str]:
        """Return a line that names logs of completed jobs in which a part failed, such as one evaluation of a model."""
        named = {path for failure in self._failures.values() for path in failure.logs}
        times = [pair for job in self._jobs.values() for pair in job.log_times.items()]
        written = [path for path, time in times if _time_of(path) != time]
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


_HIDDEN = {LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED, LogEvent.PROGRESS}
_HIDDEN_MESSAGES = (
    "Select jobs to execute...",
    "Assuming unrestricted shared filesystem usage.",
    "Rules claiming more threads will be scaled down.",
    "RuleException:\nCalledProcessError",  # contains the shell command; JOB_ERROR names the rule and its log
    "Exiting because a job execution failed.",
)
_MISLEADING = "    (check individual jobs above for details)\n"  # of the reasons in a dry run: not with `quiet: reason`
_UNLOCK = "with the --unlock argument."  # of a directory that is locked
_LAST = "WorkflowError:\nAt least one job did not complete successfully."


def record_failed_jobs() -> FailedJobs:
    """Return the failed jobs of this process, which are recorded from the first call on."""
    for handler in logger.handlers:
        if isinstance(handler, FailedJobs):  # the workflow is imported twice
            return handler
    failed_jobs = FailedJobs()
    logger.addHandler(failed_jobs)
    return failed_jobs


def simplify(failed_jobs: FailedJobs) -> None:
    """Simplify the messages of this process on the terminal; call it when the workflow is read."""
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            is_dry_run = any(isinstance(each, DefaultFilter) and each.dryrun for each in handler.filters)
            formatter = _Formatter(handler.formatter, failed_jobs, dry_run=is_dry_run)
            handler.setFormatter(formatter)
            handler.addFilter(formatter.is_shown)


def warn_without_slurm(arguments: list[str]) -> None:
    """Warn if a profile submits jobs by SLURM, which is not on this machine: a dry run would not notice."""
    if shutil.which("sbatch") or not any("profile" in each or "executor" in each for each in arguments):
        return
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):  # Snakemake has parsed them before
        if parse_args(arguments)[1].executor == "slurm":
            logger.warning(
                "sbatch not found: the profile submits jobs by SLURM, which is not on this machine. Run the command "
                "on a login node, or without the profile."
            )


class _Formatter(DefaultFormatter):
    """Snakemake's formatter (`original`), with a line per job, and the reasons of a run that failed at the end."""

    def __init__(self, original: DefaultFormatter, failed_jobs: FailedJobs, *, dry_run: bool):
        super().__init__(original.quiet, original.show_failed_logs)
        self.failed_jobs = failed_jobs
        self.dry_run = dry_run
        self.progress = ""  # of the run: "[5 of 20] "

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Return whether a message is printed; store the progress of the run."""
        event = get_event(record)
        if event == LogEvent.PROGRESS:
            self.progress = f"[{record.__dict__['done']} of {record.__dict__['total']}] "
        if event == LogEvent.RUN_INFO:
            return not self.dry_run or is_quiet_about(self.quiet, "rules")
        if self.dry_run and record.msg == "Building DAG of jobs...":
            return False
        return event not in _HIDDEN and not str(record.msg).startswith(_HIDDEN_MESSAGES)

    def format_job_info(self, msg: dict) -> str:
        """Format the start of a job: its message, and the reason unless `--quiet reason` is set."""
        lines = [f"{self.progress}{msg['rule_msg'] or msg['rule_name']}"]
        if not is_quiet_about(self.quiet, "reason"):
            lines.append(f"    Reason: {msg['reason']}")
        return "\n".join(lines)

    def format_job_error(self, msg: dict) -> str:
        """Format the failure of a job: its rule and log, without its shell command and its files."""
        lines = [f"Error in rule {msg['rule_name']} (log: {', '.join(msg['log']) or 'none'})"]
        if msg["rule_msg"]:  # of an executor
            lines.append(f"    {msg['rule_msg']}")
        lines += [f"    {name}: {value}" for name, value in msg["aux"].items()]
        if self.show_failed_logs:
            lines += show_logs(msg["log"])
        return "\n".join(lines)

    def format(self, record: logging.LogRecord) -> str:
        """Format a message, without what would control the terminal; the last one of a failed run gives the reasons."""
        if str(record.msg).startswith(_LAST):
            return escape_controls(self.failed_jobs.summary())
        text = super().format(record).replace(_MISLEADING, "")
        return escape_controls(text.replace(_UNLOCK, f"by this command: {rerun_command('--unlock')}"))
