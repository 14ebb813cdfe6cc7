"""Tests receive the signals that they send. (That each process collects the same tests is checked by pytest-xdist.)"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def test_files_that_send_signals_use_the_default_signals_fixture():
    pattern = re.compile(r"\b(os\.kill|os\.killpg|send_signal|kill_worker)\(|raise_signal")
    files = {path.name: path.read_text("utf-8") for path in TESTS.rglob("test_*.py")}
    senders = {name for name, text in files.items() if pattern.search(text)} - {"test_on_slurm.py"}  # it sends SIGKILL
    assert len(senders) > 5
    assert not [name for name in senders if "default_signals" not in files[name]], (
        "they need this fixture of conftest.py"
    )


def test_ctrl_c_reaches_a_test_and_its_child_processes(default_signals):
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with subprocess.Popen(["sleep", "600"]) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == -signal.SIGINT


def test_ctrl_c_reaches_tests_started_with_sigint_ignored():
    program = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [
        sys.executable,
        "-c",
        program,
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    command += [f"{__file__}::{test_ctrl_c_reaches_a_test_and_its_child_processes.__name__}"]
    run = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout
