"""Reasons of failed jobs, from Snakemake's messages and the logs of the stages."""

import logging

import pytest
from snakemake_interface_logger_plugins.common import LogEvent
from vernacular.core.console import FailedJobs
from vernacular.core.logs import last_error

RESUME = "Finished results are kept. To resume, run the same command again."
TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 3, in run
    return 1 / 0
           ~~^~~
ZeroDivisionError: division by zero
  in an indented message
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a run in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Run()


class Run:
    """Messages of Snakemake, and the logs that the jobs write."""

    def __init__(self):
        self.failed_jobs = FailedJobs()

    def send(self, event, message="", **fields):
        record = logging.LogRecord("snakemake", logging.INFO, "", 0, message, (), None)
        record.__dict__.update(fields, event=event)
        self.failed_jobs.handle(record)

    def start(self, number, **wildcards):
        self.send(LogEvent.JOB_INFO, jobid=number, wildcards=wildcards, log=[f"{number}.log"])

    def write(self, number, *, log, after=""):
        with open(f"{number}.log", "a") as file:
            file.writelines(f"2026-01-02 03:04:05,678 {line}\n" for line in log.splitlines())
            file.write(after)

    def fail(self, number, *, log="", after="", status="returned non-zero exit status 1", remark=None):
        if log:
            self.write(number, log=log, after=after)
        if status:
            command = f"Command 'set -euo pipefail; infer --log {number}.log' {status}."
            self.send(LogEvent.ERROR, f'RuleException:\nCalledProcessError in file "x", line 1:\n{command}')
        self.send(LogEvent.JOB_ERROR, jobid=number, rule_name=f"rule{number}", rule_msg=remark, log=[f"{number}.log"])

    def lines(self):
        return self.failed_jobs.summary().splitlines()[1:]


def test_reasons_are_grouped_by_model(run):
    for number, wildcards in enumerate(({"base": "tiny", "shard": "1of2"}, {}, {"model": "other"}, {"model": "tiny"})):
        run.start(number, **wildcards)
    for number in range(4):
        run.fail(number, log=f"WARNING py.warnings: odd\nERROR vernacular: reason {number}.\nINFO vernacular: the end")
    assert run.lines() == [
        *("These jobs failed:", "  tiny", "    rule0: reason 0.", "      log: 0.log", "    rule3: reason 3."),
        *("      log: 3.log", "  all models", "    rule1: reason 1.", "      log: 1.log"),
        *("  other", "    rule2: reason 2.", "      log: 2.log", RESUME),
    ]


@pytest.mark.parametrize(
    ("status", "remark", "reason"),
    [
        ("died with <Signals.SIGSEGV: 11>", None, "its process was terminated by SIGSEGV (a crash in native code)"),
        ("returned non-zero exit status 137", None, "its process was terminated by SIGKILL (probable cause: out of memory)"),
        ("returned non-zero exit status 127", None, "exit status 127"),
        ("", "SLURM-job '7' failed, SLURM status is: 'OUT_OF_MEMORY'. For further", "SLURM-job '7' failed, SLURM status is: 'OUT_OF_MEMORY'"),
        ("", None, "unknown reason"),
    ],
)  # fmt: skip
def test_job_without_an_error_in_its_log_is_explained_by_its_status(run, status, remark, reason):
    run.start(1, model="tiny")
    run.fail(1, log="INFO vernacular: started", status=status, remark=remark)
    assert run.lines() == ["These jobs failed:", "  tiny", f"    rule1: {reason}", "      log: 1.log", RESUME]


def test_status_of_a_job_does_not_explain_the_next(run):
    run.start(1)
    run.start(2)
    run.fail(1, status="died with <Signals.SIGKILL: 9>")
    run.fail(2, status="")
    assert run.lines()[-2] == "    rule2: unknown reason"


def test_log_of_an_earlier_run_is_not_read(run):
    run.start(1)
    run.fail(1, log="ERROR vernacular: earlier")
    run.start(1)
    run.fail(1, status="returned non-zero exit status 127")
    assert run.lines() == ["These jobs failed:", "  all models", "    rule1: exit status 127", RESUME]


def test_repeated_job_has_not_failed(run):
    run.start(1)
    run.fail(1, log="ERROR vernacular: out of memory")
    run.start(1)
    assert run.lines() == ["The run was stopped before all jobs were completed.", RESUME]


def test_list_of_missing_results_is_a_block_of_its_own_with_the_logs_of_completed_jobs(run):
    for number in range(2, 5):
        run.start(number, model="tiny")
    run.start(1)
    run.write(3, log="ERROR vernacular: cola.gl: no data")
    run.write(4, log="INFO vernacular: done")
    run.fail(1, log="ERROR vernacular: results are missing:", after="  tiny\n    cola.gl: no data\n")
    run.fail(2, log="ERROR vernacular: two\nERROR vernacular: lines", after="of text\n")
    assert run.lines() == [
        *("These jobs failed:", "  tiny", "    rule2: lines", "      of text", "      log: 2.log"),
        *("Results are missing:", "  tiny", "    cola.gl: no data", "Logs: 3.log", RESUME),
    ]


def test_only_the_list_of_missing_results_follows_a_summary(run):
    assert not run.failed_jobs.has_summary, "stopped"
    run.start(1)
    run.fail(1, log="ERROR vernacular: results are missing:", after="  tiny\n    cola.gl: no data\n")
    assert run.failed_jobs.has_summary
    run.start(2, model="tiny")
    run.fail(2, log="ERROR vernacular: no memory")
    assert not run.failed_jobs.has_summary


def test_unexpected_error_is_the_line_below_its_traceback(tmp_path):
    log = tmp_path / "log"
    log.write_text(f"2026-01-02 03:04:05,678 ERROR vernacular: unexpected\n{TRACEBACK}")
    assert last_error(log) == "ZeroDivisionError: division by zero"


def test_log_without_errors_has_no_last_error(tmp_path):
    (tmp_path / "log").write_text("2026-01-02 03:04:05,678 INFO vernacular: ERROR\n")
    assert last_error(tmp_path / "log") is None
    assert last_error(tmp_path / "absent") is None


def test_several_errors_give_the_last(tmp_path):
    lines = (f"2026-01-02 03:04:05,678 ERROR vernacular: {text}\n" for text in ("first", "second"))
    (tmp_path / "log").write_text("".join(lines))
    assert last_error(tmp_path / "log") == "second"
