"""A real SLURM on 127.0.0.1, and a place to copy in which all is ready to ask a tiny model."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.faults import Place, prepare

HERE = Path(__file__).parent


def _why_not() -> str | None:
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurmctld slurmd slurm-client munge"
    if os.path.isfile("/etc/slurm/slurm.conf") and not os.path.islink("/etc/slurm/slurm.conf"):
        return "this machine belongs to a SLURM: /etc/slurm/slurm.conf"
    return None if os.geteuid() == 0 else "SLURM starts jobs for users, and so must be started by root"


@pytest.fixture(scope="session")
def slurm_is_here() -> None:
    if reason := _why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(slurm_is_here, tmp_path_factory):
    """The folder of a SLURM of four pretended nodes with a pretended GPU each; ended with the tests, however they end."""
    folder = tmp_path_factory.mktemp("slurm")
    before = dict(os.environ)
    os.environ["SLURMLAB_RUN"] = str(folder)
    with open(folder / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ours as long as this process lives
        started = subprocess.run([HERE / "start-slurm.sh"], capture_output=True, text=True, check=False)
        if started.returncode == 4:
            pytest.skip(started.stderr.strip())
        assert started.returncode == 0, started.stderr
        watch = subprocess.Popen(
            ["flock", folder / "owner.lock", HERE / "stop-slurm.sh"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        os.environ["SLURMLAB_OF"] = str(folder)  # the mark that everything carries which is started from here
        yield folder
        subprocess.run([HERE / "stop-slurm.sh"], check=True)
        watch.terminate()
        watch.wait()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def ready(tmp_path_factory) -> Path:
    """A folder in which all is made up to the requests and the model's record."""
    return prepare(tmp_path_factory.mktemp("ready") / "run")  # as deep as its copies: relative paths stay the same


@pytest.fixture(scope="session")
def whole(ready, tmp_path_factory) -> Place:
    """What an uninterrupted run leaves."""
    place = Place(ready, tmp_path_factory.mktemp("whole") / "run")
    place.finish()
    return place
