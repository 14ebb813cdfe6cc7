"""The tests are the same ones in every process, as workers of pytest-xdist demand, and hear the signals they send."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# collects later by eleven days, and prints the names
PROGRAM = """
import sys, time
now = time.time
time.time = lambda: now() + 1e6

class Names:
    def pytest_collection_finish(self, session):
        print(*(item.nodeid.encode("unicode-escape").decode() for item in session.items), sep="\\n", file=sys.stderr)

import pytest
sys.exit(pytest.main(sys.argv[1:], plugins=[Names()]))
"""


@pytest.mark.slow
def test_names_depend_on_no_time_hash_place_or_language(request, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    seed = "1" if environment.get("PYTHONHASHSEED") != "1" else "2"
    environment |= {"PYTHONHASHSEED": seed, "TZ": "Pacific/Chatham", "LC_ALL": "C", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only"]
    command += ["--rootdir", str(TESTS.parent), "-c", str(TESTS.parent / "pyproject.toml"), str(TESTS)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    here, there = {}, {}
    collected = [item.nodeid.encode("unicode-escape").decode() for item in request.session.items]
    for found, names in ((here, collected), (there, run.stderr.splitlines())):
        for name in names:
            found.setdefault(name.partition("::")[0], []).append(name)
    for file, names in here.items():  # of those that were asked for
        assert [name for name in there[file] if name in set(names)] == names


def test_files_that_send_signals_hear_them_where_a_shell_ignores_them():
    sends = re.compile(r"\b(os\.kill|os\.killpg|send_signal|kill_worker)\(|raise_signal")
    files = {path.name: path.read_text("utf-8") for path in TESTS.rglob("test_*.py")}
    sending = {name for name, text in files.items() if sends.search(text)} - {"test_on_slurm.py"}  # it sends SIGKILL
    assert len(sending) > 5
    assert not [name for name in sending if "heard_signals" not in files[name]], "they need that fixture of conftest.py"


def test_ctrl_c_reaches_a_test_and_what_it_starts(heard_signals):
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with subprocess.Popen(["sleep", "600"]) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == -signal.SIGINT


def test_ctrl_c_reaches_them_where_the_tests_are_started_with_sigint_ignored():
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [
        sys.executable,
        "-c",
        ignoring,
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    command += [f"{__file__}::{test_ctrl_c_reaches_a_test_and_what_it_starts.__name__}"]
    run = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout
