"""Ctrl-C as sent by a terminal: to Snakemake and all of its child processes at the same time."""

import os
import signal
import time

import pytest
from support.faults import STATUS_FILE, WatchedWorkspace, is_alive, session_commands, terminate

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.slow]


@pytest.fixture
def workspace(prepared_directory, tmp_path):
    workspace = WatchedWorkspace(prepared_directory, tmp_path / "run")
    yield workspace
    terminate(workspace)


def test_ctrl_c_stores_outputs_prints_resume_advice_and_stops_all_processes(workspace):
    workspace.hold()
    workspace.start_locally(STATUS_FILE)
    workspace.wait_until_held()
    n_computed = len(workspace.batches())
    assert any("stage.py infer" in command for command in session_commands(workspace.process.pid).values())
    os.killpg(workspace.process.pid, signal.SIGINT)
    assert workspace.wait() == 1
    stop_time = time.time()
    assert len(workspace.batches()) <= n_computed + 2, "only the current batch is finished"
    *_, failed, model, reason, log, advice = workspace.output().splitlines()
    assert (failed, model) == ("These jobs failed:", "  tiny")
    assert reason.startswith("    infer: stopped by SIGINT: ")
    assert reason.endswith(" stored; the next run resumes from there.")
    assert log == "      log: logs/infer/tiny.1of1.log"
    assert advice.endswith("To resume, run the same command again.")
    assert "<<<" not in workspace.output()
    assert "Traceback" not in workspace.output()
    workspace.wait_until(lambda: not session_commands(workspace.process.pid), "the end of all processes", seconds=120)
    assert not list((workspace.directory / ".snakemake").glob("locks/*"))
    assert not [
        path for path in workspace.directory.rglob("*") if path.name.endswith(".tmp") or "shell_tmp" in path.name
    ]

    stored = {batch for _, batch in workspace.batches()}
    workspace.release()
    workspace.start_locally(STATUS_FILE, pause=0)
    assert workspace.wait() == 0, workspace.output()
    resumed = {batch for batch_time, batch in workspace.batches() if batch_time > stop_time}
    assert resumed
    assert not resumed & stored, "stored batches are not recomputed"


def test_ctrl_c_interrupts_model_loading(workspace):
    workspace.hold("loading")
    workspace.start_locally(STATUS_FILE)
    pid = workspace.wait_until_held()
    os.killpg(workspace.process.pid, signal.SIGINT)
    assert workspace.wait() == 1  # without release
    assert not is_alive(pid)
    assert (
        "infer: stopped by SIGINT: finished outputs are stored; the next run resumes from there." in workspace.output()
    )
    assert "To resume, run the same command again." in workspace.output()
    assert "Traceback" not in workspace.output()
    workspace.wait_until(lambda: not session_commands(workspace.process.pid), "the end of all processes", seconds=120)
    assert not workspace.batches()
    assert not workspace.stored_files()
    assert not [
        path for path in workspace.directory.rglob("*") if path.name.endswith(".tmp") or "shell_tmp" in path.name
    ]
