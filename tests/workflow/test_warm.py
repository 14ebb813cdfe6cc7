"""The interpreter with which tests run Snakemake: a fork behaves as a process of its own would."""

import json
import signal
import subprocess
import sys

import pytest
from support import warm

pytestmark = pytest.mark.slow

PROGRAM = """
import atexit, json, os, signal, sys, threading, time
import given
seen = [sys.argv, os.getcwd(), dict(os.environ), sys.stdin.read(), sys.path[:4], __name__, sys.executable, given.VALUE]
print(json.dumps([seen, "torch" in sys.modules]), flush=True)
print("aside", file=sys.stderr)
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.1), print("from a thread"))).start()
{end}
"""
ENDS = {
    "end": ("", 0),
    "status": ("sys.exit(3)", 3),
    "message": ("sys.exit('message')", 1),
    "exception": ("1 / 0", 1),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


def run(python, directory, **variables: str):
    (directory / "installed").mkdir(exist_ok=True)
    (directory / "installed" / "given.py").write_text("VALUE = 7\n")
    variables = {"VERNACULAR_RUN": "snakemake", "PYTHONPATH": str(directory / "installed")} | variables
    environment = warm.environment() | {"PWD": str(directory)} | variables
    command = [str(python), str(directory / "stage.py"), "items", "two words"]
    return subprocess.run(command, cwd=directory, input="é\n", capture_output=True, text=True, env=environment)


@pytest.mark.skipif(sys.platform != "linux", reason="without a safe fork, it is the interpreter itself")
@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=ENDS)
def test_fork_is_like_a_process_of_its_own(end, status, tmp_path):
    (tmp_path / "stage.py").write_text(PROGRAM.format(end=end))
    own, fork = (run(python, tmp_path) for python in (sys.executable, warm.directory() / "python"))
    assert own.returncode == fork.returncode == status
    assert own.stderr.splitlines()[:1] == fork.stderr.splitlines()[:1] == ["aside"]
    assert own.stderr.splitlines()[-1] == fork.stderr.splitlines()[-1]
    [(own_seen, own_imported), (fork_seen, fork_imported)] = (json.loads(r.stdout.splitlines()[0]) for r in (own, fork))
    assert own_seen == fork_seen
    rest = ["from a thread", "at exit"] if status >= 0 else []
    assert own.stdout.splitlines()[1:] == fork.stdout.splitlines()[1:] == rest
    assert (own_imported, fork_imported) == (False, True)


def test_variable_that_libraries_read_starts_a_process(tmp_path):
    (tmp_path / "stage.py").write_text(PROGRAM.format(end=""))
    (tmp_path / "sitecustomize.py").write_text("")
    for variables in ({"HF_ENDPOINT": "x"}, {"PYTHONPATH": f"{tmp_path}/installed:{tmp_path}"}):
        _, is_imported = json.loads(run(warm.directory() / "python", tmp_path, **variables).stdout.splitlines()[0])
        assert not is_imported
