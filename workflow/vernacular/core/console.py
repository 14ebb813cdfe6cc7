"""Snakemake's messages on the terminal: a line per job, without shell commands.

Snakemake's own handler is kept, with its colors and its options `--quiet`, `--printshellcmds` and `--show-failed-logs`;
its log file under `.snakemake/log/` is unchanged. A job starts with

    [5 of 20] infer: evaluate smollm2-135m (shard 1of2), except for outputs in the store

where 5 is the number of finished jobs, and ends with the line that its command prints. A failed job is named with its
log, and a run ends with the reasons of all failures instead of Snakemake's sentence. A dry run lists these lines
without numbers instead of the table of rules; `--quiet rules` prints the table. (The logger plugin `rich` was tried:
its dry run shows no reasons and no commands, and on a terminal its table is redrawn below each line of a job.)
"""

import contextlib
import io
import logging
import shutil

from snakemake.cli import parse_args
from snakemake.logging import DefaultFilter, DefaultFormatter, get_event, is_quiet_about, logger, show_logs
from snakemake_interface_logger_plugins.common import LogEvent

from vernacular.core.errors import escape_controls
from vernacular.core.failed_jobs import FailedJobs

_HIDDEN = {LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED, LogEvent.PROGRESS}
_HIDDEN_MESSAGES = (
    "Select jobs to execute...",
    "Assuming unrestricted shared filesystem usage.",
    "Rules claiming more threads will be scaled down.",
    "RuleException:\nCalledProcessError",  # contains the shell command; JOB_ERROR names the rule and its log
    "Exiting because a job execution failed.",
)
_MISLEADING = "    (check individual jobs above for details)\n"  # of the reasons in a dry run: not with `quiet: reason`
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
    """Simplify the messages of this process on the terminal; call it when the workflow is read.

    Args:
        failed_jobs: Source of the last message of a run that failed.
    """
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
    """Snakemake's formatter, with one line per job.

    Args:
        original: The formatter that it replaces.
        failed_jobs: Source of the last message of a run that failed.
        dry_run: Whether no job is run.
    """

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
        return escape_controls(super().format(record).replace(_MISLEADING, ""))
