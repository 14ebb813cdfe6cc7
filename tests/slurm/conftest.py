"""A SLURM installation on 127.0.0.1, and a prepared run directory to copy, ready for inference with a tiny model."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.faults import RESULT_FILE, WatchedWorkspace, prepare
from support.once import once

HERE = Path(__file__).parent


def _unavailable_reason() -> str | None:
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurmctld slurmd slurm-client munge"
    if os.path.isfile("/etc/slurm/slurm.conf") and not os.path.islink("/etc/slurm/slurm.conf"):
        return "this machine belongs to a SLURM: /etc/slurm/slurm.conf"
    return None if os.geteuid() == 0 else "SLURM starts jobs for users, and so must be started by root"


@pytest.fixture(scope="session")
def slurm_available() -> None:
    if reason := _unavailable_reason():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(slurm_available, tmp_path_factory):
    """The directory of a SLURM with four simulated nodes and one simulated GPU each; always stopped after the tests."""
    directory = tmp_path_factory.mktemp("slurm")
    environment = dict(os.environ)
    os.environ["SLURMLAB_RUN"] = str(directory)
    with open(directory / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held while this process is alive
        startup = subprocess.run([HERE / "start-slurm.sh"], capture_output=True, text=True, check=False)
        if startup.returncode == 4:
            pytest.skip(startup.stderr.strip())
        assert startup.returncode == 0, startup.stderr
        watchdog = subprocess.Popen(
            ["flock", directory / "owner.lock", HERE / "stop-slurm.sh"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.environ["SLURM_CONF"] = str(directory / "slurm.conf")
        os.environ["SLURMLAB_OF"] = str(directory)  # inherited by every process started from here
        yield directory
        subprocess.run([HERE / "stop-slurm.sh"], check=True)
        watchdog.terminate()
        watchdog.wait()
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(scope="session")
def prepared_directory(tmp_path_factory) -> Path:
    """A directory with the requests and the model record, ready for inference."""
    return once(tmp_path_factory, "prepared", prepare)


@pytest.fixture(scope="session")
def reference_run(prepared_directory, tmp_path_factory) -> WatchedWorkspace:
    """An uninterrupted run, up to the table of values."""

    def finish(directory: Path) -> None:
        WatchedWorkspace(prepared_directory, directory).finish(RESULT_FILE)

    return WatchedWorkspace(None, once(tmp_path_factory, "uninterrupted", finish))
