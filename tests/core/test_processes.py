import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vernacular.core.logs import last_error
from vernacular.core.processes import Task, completed

pytestmark = pytest.mark.usefixtures("default_signals")

# a program whose two workers sleep, and that prints their PIDs; a file, because spawned processes import it
PROGRAM = """
import os, sys, time
from vernacular.core.processes import pool

def work(_):
    time.sleep(float(sys.argv[1]))
    return os.getpid()

if __name__ == "__main__":
    with pool(2) as workers:
        futures = [workers.submit(work, i) for i in range(2)]
        print(*workers._processes, flush=True)
        if sys.argv[1] != "0":
            futures[0].result()
        raise SystemExit(3)
"""


def wait_until_ended(pids, seconds=30):
    deadline = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize(("stop_signal", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (None, 3)])
def test_pool_workers_end_with_their_parent(tmp_path, stop_signal, code):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", "0" if stop_signal is None else "600"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=subprocess.PIPE, text=True) as main:
        pids = [int(pid) for pid in main.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids)) or stop_signal is None
        if stop_signal:
            main.send_signal(stop_signal)
        assert main.wait(60) == code
    assert wait_until_ended(pids)


# a program whose supervised child starts a process that nobody ends, as libraries do; it prints the PIDs of both
SUPERVISED = """
import os, subprocess, sys, time
from vernacular.core.processes import fork_child

if (status := fork_child()) is None:
    print(os.getpid(), subprocess.Popen(["sleep", "600"]).pid, flush=True)
    time.sleep(float(sys.argv[1]))
    os._exit(3)
raise SystemExit(status % 256)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize(("killed", "code"), [("parent", -9), ("child", 256 - 9), (None, 3)])
def test_processes_of_a_supervised_child_end_with_it(killed, code):
    command = [sys.executable, "-c", SUPERVISED, "600" if killed else "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as main:
        pids = [int(pid) for pid in main.stdout.readline().split()]
        assert is_alive(pids[1]) or not killed
        if killed:
            os.kill(main.pid if killed == "parent" else pids[0], signal.SIGKILL)
        assert main.wait(60) == code
    assert wait_until_ended(pids)


def test_a_child_that_ends_at_once_writes_what_is_buffered_and_calls_exit_functions():
    code = """
import atexit, tempfile, threading, time
from vernacular.core.processes import exit_child, fork_child
if (status := fork_child()) is None:
    directory = tempfile.TemporaryDirectory()
    atexit.register(print, "exit function")
    threading.Thread(target=time.sleep, args=(600,)).start()  # of a library
    print(directory.name)
    exit_child(3)
raise SystemExit(status)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    directory, line = run.stdout.splitlines()
    assert (line, run.returncode) == ("exit function", 3)
    assert not Path(directory).exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_stage_cleans_up_and_exits_with_status_130(tmp_path, signum):
    """A library that takes minutes to import simulates a running stage."""
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text(
        "import time\ntry:\n    open('held', 'w').close()\n    time.sleep(300)\nfinally:\n    open('cleaned', 'w').close()\n"
    )
    command = [sys.executable, "-m", "vernacular", "similarity"]
    (tmp_path / "fields.json").write_text("{}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    with (
        open(tmp_path / "fields.json") as fields,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=fields, stderr=subprocess.PIPE, text=True
        ) as stage,
    ):
        deadline = time.monotonic() + 120
        while not (tmp_path / "held").exists():
            assert stage.poll() is None, stage.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        stage.send_signal(signum)
        assert stage.wait(60) == 130
        assert stage.stderr.read() == "similarity: interrupted. Run the same command again to repeat it.\n"
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("waits_for_task", [True, False])
def test_signal_that_does_not_end_a_wait_is_handled(waits_for_task):
    """Another thread receives the signal, so that the wait of the main thread goes on, as if it began just after it."""
    ended = threading.Event()
    sender = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    last = threading.Timer(30, ended.set)
    sender.start()
    last.start()
    with ThreadPoolExecutor(1) as pool:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with pytest.raises(KeyboardInterrupt):
                Task(ended.wait).result() if waits_for_task else completed([pool.submit(ended.wait)])
            assert not ended.is_set()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            last.cancel()
            ended.set()


def test_killed_stage_leaves_its_reason_in_the_log(tmp_path):
    """A hook at the start of Python kills the stage when it imports its command."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'vernacular.stages.finish':\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    command = [sys.executable, "-m", "vernacular", "finish"]
    fields = '{"notes": "n.csv", "out": "o.txt", "log": "v.log"}'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    stage = subprocess.run(command, cwd=tmp_path, env=environment, input=fields, capture_output=True, text=True)
    reason = "its process was terminated by SIGKILL (probable cause: out of memory)."
    assert (stage.returncode, stage.stderr) == (137, f"finish: {reason}\n")
    assert last_error(tmp_path / "v.log") == reason
