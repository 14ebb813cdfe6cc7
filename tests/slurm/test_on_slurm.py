"""On a real SLURM: what is sent there, what it asks for, and what the next `snakemake` makes of jobs that were hit.

The tests are one story of two runs, each in a folder of its own: while a job of one starts, the other's is hit.
"""

import fcntl
import os
import re
import signal
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.faults import QUICKLY, Place, end, run, table
from support.workplace import ROOT


def test_what_an_aborted_session_left_is_ended_and_what_another_runs_is_let_alone(slurm_is_here, tmp_path):
    aborted, living = tmp_path / "aborted", tmp_path / "living"
    for folder in (aborted, living):
        folder.mkdir()
    (aborted / "owner.lock").touch()  # and nobody holds it
    left = lab("start", aborted)
    job = subprocess.Popen(["sleep", "1000"], env={**os.environ, "SLURMLAB_OF": str(aborted)})
    with open(living / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken_over = lab("start", living)
        refused = lab("start", tmp_path / "third")
        stopped = lab("stop", living)
    assert left.returncode == taken_over.returncode == stopped.returncode == 0, left.stderr + taken_over.stderr
    assert f"ending what an aborted run left in {aborted}" in taken_over.stderr
    assert job.wait(timeout=10) == -signal.SIGKILL
    assert refused.returncode == 4
    assert f"another one is running, of {living}" in refused.stderr
    assert not os.path.lexists("/etc/slurm/slurm.conf")
    assert not [path for folder in (aborted, living) for path in folder.rglob("*.pid")]


def lab(verb: str, folder: Path) -> subprocess.CompletedProcess:
    """start-slurm.sh or stop-slurm.sh for a folder."""
    environment = {**os.environ, "SLURMLAB_RUN": str(folder)}
    script = Path(__file__).parent / f"{verb}-slurm.sh"
    return subprocess.run([script], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def one(cluster, ready, tmp_path_factory):
    """Its job is told to stop in three ways, and killed."""
    place = Place(ready, tmp_path_factory.mktemp("one") / "run")
    place.hold()
    place.start_on_slurm("--retries", "3")
    yield place
    end(place)


@pytest.fixture(scope="module")
def two(cluster, ready, tmp_path_factory):
    """Its job runs out of memory, then loses its node, then its Snakemake."""
    place = Place(ready, tmp_path_factory.mktemp("two") / "run")
    place.hold()
    (place.folder / "hog").write_text("4600")
    # SLURM itself would send a job whose node is lost again, but some minutes later
    place.start_on_slurm("--retries", "2", "--slurm-no-requeue")
    yield place
    end(place)


def job_of(place: Place) -> dict[str, str]:
    """What SLURM says of the job that runs for this place."""
    listed = run("squeue", "-h", "-t", "R", "-o", "%A %Z")
    found = [line.split()[0] for line in listed.splitlines() if line.split()[1] == str(place.folder)]
    assert len(found) == 1, listed
    return shown(found[0])


def shown(job: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", run("scontrol", "show", "job", job)))


def end_in(place: Place, seconds: float) -> None:
    """Let the time of this place's job be over so soon; SLURM looks for that twice a minute."""
    soon = datetime.now() + timedelta(seconds=seconds)
    run("scontrol", "update", f"JobId={job_of(place)['JobId']}", f"EndTime={soon:%Y-%m-%dT%H:%M:%S}")


def test_a_job_asks_for_what_was_estimated_and_for_a_gpu(one, two):
    worker = one.until_held()
    job = job_of(one)
    assert job["Partition"] == "gpu"
    assert (job["MinMemoryNode"], job["TimeLimit"], job["NumCPUs"]) == ("4501M", "00:11:00", "2")
    assert job["TresPerJob"] == "gres:gpu:1"
    environment = Path(f"/proc/{worker}/environ").read_text().split("\0")
    assert "CUDA_VISIBLE_DEVICES=0" in environment


def test_scancel_lets_the_job_write_everything_down(one):
    worker = one.until_held()
    one.hit("scancel", lambda: run("scancel", job_of(one)["JobId"]), lambda: one.until_it_has_ended(worker))
    one.until(lambda: "stopped by SIGTERM" in one.said(), "the reason")


def test_what_runs_out_of_memory_gets_twice_as_much(two):
    two.until(lambda: not (two.folder / "hog").exists(), "the job to take its memory")
    two.hit("out of memory")
    two.until_held()
    job = job_of(two)
    assert (job["MinMemoryNode"], job["TimeLimit"]) == ("8501M", "00:22:00")


def test_a_node_that_is_lost_costs_no_more_than_a_part(two, cluster):
    job = job_of(two)
    two.hit("node lost", lambda: lose(cluster, job))
    two.until(lambda: "SLURM status is: 'NODE_FAIL'" in two.said(), "Snakemake to hear of it")


def lose(cluster: Path, job: dict[str, str]) -> None:
    """Kill all that runs on the job's node, and tell SLURM, which would find out in some minutes."""
    node, mark = job["NodeList"], f"SLURM_JOB_ID={job['JobId']}".encode()
    os.kill(int((cluster / f"slurmd-{node}.pid").read_text()), signal.SIGKILL)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            step = (process / "comm").read_text() == "slurmstepd\n"
            if (step and any(f"slurmd-{node}.log" in os.readlink(file) for file in (process / "fd").iterdir())) or (
                mark in (process / "environ").read_bytes().split(b"\0")
            ):
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended meanwhile, or is the machine's own
    run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")


def test_before_the_time_is_over_the_job_is_told(one):
    worker = one.until_held()
    # the profile asks for SIGTERM two minutes before the end: with less time than that left, it comes at once
    one.hit("--signal before the walltime", lambda: end_in(one, 110), lambda: one.until_it_has_ended(worker))
    one.until(lambda: one.said().count("stopped by SIGTERM") == 2, "the reason")
    assert "TIMEOUT" not in one.said()


def test_a_job_outlives_a_snakemake_that_is_killed_and_its_answers_are_found(two):
    worker = two.until_held()
    job = job_of(two)["JobId"]
    two.hit("kill -9 of Snakemake", two.kill_snakemake)
    known = set(two.kept())
    two.let_go()
    two.until(lambda: set(two.kept()) - known, "the job to go on")
    two.hold()
    assert two.until_held() == worker
    two.hit("kill -9 of Snakemake and the job", two.kill_worker)
    two.until(lambda: shown(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job to end")


def test_a_job_that_is_killed_leaves_its_journal(one):
    one.hit("kill -9 of the job", one.kill_worker)


def test_what_runs_over_its_time_is_named_as_such(one):
    worker = one.until_held()
    one.deafen()  # else the warning, which comes at once too, would end it first
    one.hit("walltime (TIMEOUT)", lambda: end_in(one, 1), lambda: one.until_it_has_ended(worker))
    assert one.wait() == 1
    assert "SLURM status is: 'TIMEOUT'" in one.said()


def test_the_next_run_ends_with_the_tables_of_an_uninterrupted_one(one, two, whole, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    subprocess.run(["make", "slurm-profile"], cwd=ROOT, check=True, capture_output=True)
    one.let_go()
    one.start("--profile", "slurm", *QUICKLY, pause=0)
    two.start_locally("--unlock")
    assert two.wait() == 0
    two.finish()
    assert one.wait() == 0, one.said()
    for place in (one, two):
        assert place.differs_from(whole) == []
        assert {batch for _, batch in place.batches()} == {batch for _, batch in whole.batches()}
        with capsys.disabled():
            print("\n" + table(place, whole))
    unheard = {"kill -9 of the job", "walltime (TIMEOUT)"}
    assert {fault for fault, n in one.redone().items() if n} == unheard, "the others were told first"
    assert [fault for fault, n in two.redone().items() if not n] == ["kill -9 of Snakemake"], "it ran on"


def test_only_models_jobs_went_to_slurm(one):
    sent = {path.parents[1].name for path in (one.folder / "logs" / "slurm").rglob("*.log")}
    assert sent == {"rule_infer"}  # there is nothing generated here whose similarity could be measured
