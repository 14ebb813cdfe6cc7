"""Every process collects the same tests, as pytest-xdist requires, and tests receive the signals that they send."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# collects the tests with a clock eleven days ahead, and prints their names
PROGRAM = """
import sys, time
now = time.time
time.time = lambda: now() + 1e6

class PrintNames:
    def pytest_collection_finish(self, session):
        print(*(item.nodeid.encode("unicode-escape").decode() for item in session.items), sep="\\n", file=sys.stderr)

import pytest
sys.exit(pytest.main(sys.argv[1:], plugins=[PrintNames()]))
"""


@pytest.mark.slow
def test_names_do_not_depend_on_time_hash_seed_directory_or_locale(request, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    seed = "1" if environment.get("PYTHONHASHSEED") != "1" else "2"
    environment |= {"PYTHONHASHSEED": seed, "TZ": "Pacific/Chatham", "LC_ALL": "C", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only"]
    command += ["--rootdir", str(TESTS.parent), "-c", str(TESTS.parent / "pyproject.toml"), str(TESTS)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    names_here, names_in_subprocess = {}, {}
    collected = [item.nodeid.encode("unicode-escape").decode() for item in request.session.items]
    for names_by_file, names in ((names_here, collected), (names_in_subprocess, run.stderr.splitlines())):
        for name in names:
            names_by_file.setdefault(name.partition("::")[0], []).append(name)
    for file, names in names_here.items():  # of the selected tests only
        assert [name for name in names_in_subprocess[file] if name in set(names)] == names


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
