"""Snakemake's messages on the terminal: a line per job, without shell commands.

Snakemake's own handler is kept, with its colors and its options `--quiet`, `--printshellcmds` and `--show-failed-logs`;
its log file under `.snakemake/log/` is unchanged. A job starts with

    [5 of 20] infer: evaluate smollm2-135m (shard 1of2), except for outputs in the store

where 5 is the number of finished jobs, and ends with the line that its command prints. A dry run lists these lines
without numbers instead of the table of rules; `--quiet rules` prints the table. (The logger plugin `rich` was tried:
its dry run shows no reasons and no commands, and on a terminal its table is redrawn below each line of a job.)
"""

import logging

from snakemake.logging import DefaultFilter, DefaultFormatter, get_event, is_quiet_about, logger
from snakemake_interface_logger_plugins.common import LogEvent

_HIDDEN = {LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED, LogEvent.PROGRESS}
_HIDDEN_MESSAGES = (
    "Select jobs to execute...",
    "Assuming unrestricted shared filesystem usage.",
    "Rules claiming more threads will be scaled down.",
    "RuleException:\nCalledProcessError",  # contains the shell command; JOB_ERROR names the rule and its log
)


def simplify() -> None:
    """Simplify the messages of this process on the terminal; call it when the workflow is read."""
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            is_dry_run = any(isinstance(each, DefaultFilter) and each.dryrun for each in handler.filters)
            formatter = _Formatter(handler.formatter, dry_run=is_dry_run)
            handler.setFormatter(formatter)
            handler.addFilter(formatter.is_shown)


class _Formatter(DefaultFormatter):
    """Snakemake's formatter, with one line per job.

    Args:
        original: The formatter that it replaces.
        dry_run: Whether no job is run.
    """

    def __init__(self, original: DefaultFormatter, *, dry_run: bool):
        super().__init__(original.quiet, original.show_failed_logs)
        self.dry_run = dry_run
        self.progress = ""  # of the run: "[5 of 20] "

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Return whether a message is printed; store the progress of the run."""
        event = get_event(record)
        if event == LogEvent.PROGRESS:
            self.progress = f"[{record.__dict__['done']} of {record.__dict__['total']}] "
        if event == LogEvent.RUN_INFO:
            return not self.dry_run or is_quiet_about(self.quiet, "rules")
        return event not in _HIDDEN and not str(record.msg).startswith(_HIDDEN_MESSAGES)

    def format_job_info(self, msg: dict) -> str:
        """Format the start of a job: its message, and the reason unless `--quiet reason` is set."""
        lines = [f"{self.progress}{msg['rule_msg'] or msg['rule_name']}"]
        if not is_quiet_about(self.quiet, "reason"):
            lines.append(f"    Reason: {msg['reason']}")
        return "\n".join(lines)

    def format_job_error(self, msg: dict) -> str:
        """Format the failure of a job, without its shell command."""
        return super().format_job_error({**msg, "shellcmd": None})
