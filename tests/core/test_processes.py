import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("heard_signals")

# a program that asks two processes to sleep, and says who they are; a file, since spawned processes import it
PROGRAM = """
import os, sys, time
from vernacular.core.processes import pool

def work(_):
    time.sleep(float(sys.argv[1]))
    return os.getpid()

if __name__ == "__main__":
    with pool(2) as several:
        futures = [several.submit(work, each) for each in range(2)]
        print(*several._processes, flush=True)
        if sys.argv[1] != "0":
            futures[0].result()
        raise SystemExit(3)
"""


def gone(pids, seconds=30):
    stop = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > stop:
            return False
        time.sleep(0.05)
    return True


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize(("ended_by", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (None, 3)])
def test_no_process_of_a_pool_outlives_the_one_that_asked(tmp_path, ended_by, code):
    (tmp_path / "program.py").write_text(PROGRAM)
    asked = [sys.executable, "program.py", "0" if ended_by is None else "600"]
    with subprocess.Popen(asked, cwd=tmp_path, env=os.environ, stdout=subprocess.PIPE, text=True) as main:
        pids = [int(pid) for pid in main.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids)) or ended_by is None
        if ended_by:
            main.send_signal(ended_by)
        assert main.wait(60) == code
    assert gone(pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stage_that_is_told_to_end_cleans_up_and_says_so(tmp_path, number):
    """A torch that takes minutes to import stands for a stage at work."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import time\nopen('held', 'w').close()\ntry:\n    time.sleep(300)\nfinally:\n    open('cleaned', 'w').close()\n"
    )
    command = [sys.executable, "-m", "vernacular", "similarity", "--spec", "{}", "--model", "m.json", "--out", "out"]
    command += ["--items-dir", ".", "--requests-dir", ".", "--generations", "g.parquet", "--encoders", "e.json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as stage:
        stop = time.monotonic() + 120
        while not (tmp_path / "held").exists():
            assert stage.poll() is None, stage.stderr.read()
            assert time.monotonic() < stop
            time.sleep(0.02)
        stage.send_signal(number)
        assert stage.wait(60) == 130
        assert stage.stderr.read() == "similarity: interrupted. Run the same command again to repeat it.\n"
    assert (tmp_path / "cleaned").exists()
