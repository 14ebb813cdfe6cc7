"""Snakemake's messages on the terminal, as formatted for a run and for a dry run."""

import logging
from pathlib import Path

import pytest
from snakemake.exceptions import LockException
from snakemake.logging import DefaultFilter, DefaultFormatter, logger
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent
from vernacular.core.console import FailedJobs, simplify, warn_without_slurm

JOB = {"jobid": 3, "rule_name": "infer", "rule_msg": "infer: evaluate tiny", "reason": "Params have changed"}
ERROR = JOB | {
    "msg": None,
    "rule_msg": None,
    "input": ["a"],
    "output": [],
    "log": ["logs/infer/tiny.log"],
    "conda_env": None,
}
ERROR |= {"shellcmd": "python workflow/stage.py infer <<< '{}'", "aux": {}}


@pytest.mark.parametrize("lines", [(set(), False)], indirect=True)
def test_locked_directory_is_unlocked_by_the_command_of_the_run(lines, monkeypatch):
    monkeypatch.setenv("VERNACULAR_RUN", "vernacular run mine.yaml -c4")
    message = str(LockException())
    assert lines((None, message, {}))[-1].endswith(
        " It can be removed by this command: vernacular run mine.yaml -c4 --unlock"
    )


@pytest.fixture
def lines(request):
    """Return a function that logs records and returns the printed lines, as a run with these options."""
    quiet, dry_run = request.param
    printed: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: printed.extend(handler.format(record).splitlines())
    handler.name = "DefaultStreamHandler"
    handler.addFilter(DefaultFilter(quiet, False, False, dry_run, False))
    handler.setFormatter(DefaultFormatter(quiet, False))
    previous, level = logger.handlers[:], logger.level
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)

    def log(*records: tuple) -> list[str]:
        simplify(FailedJobs())
        for event, message, fields in records:
            fields = {key: value for key, value in fields.items() if key != "msg"}
            logger.info(message, extra={"event": event, **fields})
        return printed

    yield log
    logger.handlers[:] = previous
    logger.setLevel(level)


RUN = {Quietness.REASON, Quietness.HOST}
RECORDS = [
    (LogEvent.RUN_INFO, "Job stats:", {}),
    (None, "Select jobs to execute...", {}),
    (LogEvent.JOB_STARTED, "Execute 1 jobs...", {}),
    (LogEvent.JOB_INFO, None, JOB),
    (LogEvent.JOB_FINISHED, "Finished jobid: 3 (Rule: infer)", {"job_id": 3}),
    (LogEvent.PROGRESS, None, {"done": 5, "total": 20}),
    (LogEvent.JOB_INFO, None, JOB | {"rule_msg": "collect: write the outputs of tiny"}),
]


@pytest.mark.parametrize("lines", [(RUN, False)], indirect=True)
def test_run_prints_a_line_per_job_with_the_number_of_finished_jobs(lines):
    assert lines(*RECORDS) == ["Job stats:", "infer: evaluate tiny", "[5 of 20] collect: write the outputs of tiny"]


@pytest.mark.parametrize("lines", [(RUN, True)], indirect=True)
def test_dry_run_lists_jobs_instead_of_the_table(lines):
    assert lines(*RECORDS[:4]) == ["infer: evaluate tiny"]


@pytest.mark.parametrize("lines", [(RUN, True)], indirect=True)
def test_dry_run_prints_the_reasons_of_all_jobs_without_a_reference_to_single_ones(lines):
    reasons = (
        "Reasons:\n    (check individual jobs above for details)\n    input files updated by another job:\n        all"
    )
    assert lines((None, "Building DAG of jobs...", {}), (None, reasons, {})) == [
        *("Reasons:", "    input files updated by another job:", "        all")
    ]


@pytest.mark.parametrize("lines", [({Quietness.HOST, Quietness.RULES}, True)], indirect=True)
def test_dry_run_without_rules_prints_the_table(lines):
    assert lines(*RECORDS[:4]) == ["Job stats:"]


@pytest.mark.parametrize("lines", [({Quietness.HOST}, True)], indirect=True)
def test_reason_is_printed_unless_quiet(lines):
    assert lines(RECORDS[3]) == ["infer: evaluate tiny", "    Reason: Params have changed"]


@pytest.mark.parametrize("lines", [(RUN, False)], indirect=True)
def test_failure_names_rule_and_log_without_shell_command(lines):
    command_error = (
        "RuleException:\nCalledProcessError in file \"inference.smk\", line 65:\nCommand 'set -euo pipefail'"
    )
    text = "\n".join(lines((LogEvent.JOB_ERROR, None, ERROR), (None, command_error, {})))
    assert "Error in rule infer" in text
    assert "logs/infer/tiny.log" in text
    assert "stage.py" not in text
    assert "input" not in text, "a job may have thousands of files"
    assert "pipefail" not in text


@pytest.mark.parametrize("lines", [(RUN, False)], indirect=True)
def test_other_errors_of_the_workflow_are_printed(lines):
    assert (
        lines((None, "RuleException:\nKeyError in file x", {}), (None, "WorkflowError: x", {}))[1]
        == "KeyError in file x"
    )


@pytest.mark.parametrize("lines", [(RUN, False)], indirect=True)
def test_last_message_of_a_failed_run_is_how_to_resume(lines):
    last = (LogEvent.ERROR, "WorkflowError:\nAt least one job did not complete successfully.", {})
    assert lines((None, "Exiting because a job execution failed. Look above for error messages", {}), last) == [
        "",
        "The run was stopped before all jobs were completed.",
        "Finished results are kept. To resume, run the same command again.",
    ]


@pytest.mark.parametrize("lines", [(RUN, False)], indirect=True)
def test_messages_do_not_control_the_terminal(lines):
    printed = lines(
        (LogEvent.JOB_INFO, None, JOB | {"rule_msg": "infer: evaluate \x1b[2J\u202etiny", "log": [], "wildcards": {}}),
        (None, "WorkflowError:\nAt least one job did not complete successfully: \x9b2J", {}),
        (None, "another \x1b]0;message\x07", {}),
    )
    assert printed[0] == r"infer: evaluate \u001b[2J\u202etiny"
    assert r"another \u001b]0;message\u0007" in printed
    assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set("".join(printed))


def test_nothing_is_said_of_slurm_where_it_is_or_is_not_used(tmp_path, monkeypatch, capsys):
    profile = Path(__file__).parents[2] / "profiles" / "slurm"
    monkeypatch.setenv("PATH", str(tmp_path))
    warn_without_slurm(["--profile", str(profile.parent / "default")])
    warn_without_slurm(["--profile", str(tmp_path / "missing")])
    warn_without_slurm(["-c4"])
    (tmp_path / "sbatch").touch(mode=0o755)
    warn_without_slurm(["--profile", str(profile)])
    assert capsys.readouterr() == ("", "")
