"""A real SLURM of one node on 127.0.0.1, and a place to copy in which all is ready to ask a tiny model."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "workflow")]

from faults import Place, prepare  # noqa: E402


def _why_not() -> str | None:
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurmctld slurmd slurm-client munge"
    return None if os.geteuid() == 0 else "SLURM starts jobs for users, and so must be started by root"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """SLURM with eight pretended cores and two pretended GPUs; stopped at the end."""
    if reason := _why_not():
        pytest.skip(reason)
    before = dict(os.environ)
    os.environ["SLURMLAB_RUN"] = str(tmp_path_factory.mktemp("slurm"))
    start = subprocess.run([HERE / "start-slurm.sh"], capture_output=True, text=True, check=False)
    if start.returncode == 4:
        pytest.skip(start.stderr.strip())
    assert start.returncode == 0, start.stderr
    os.environ["SLURM_CONF"] = f"{os.environ['SLURMLAB_RUN']}/slurm.conf"
    yield
    subprocess.run([HERE / "stop-slurm.sh"], check=True)
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
