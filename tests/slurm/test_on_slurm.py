"""Runs on a real SLURM: submitted jobs, their resources, and recovery of the next `snakemake` from faults.

The tests depend on each other and use two runs in separate directories: a fault hits one while a job of the other starts.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.faults import FAST_POLLING, WatchedWorkspace, fault_table, run, terminate
from support.workspace import ROOT


def test_leftovers_of_an_aborted_session_are_stopped_and_active_sessions_are_not(slurm_available, tmp_path):
    aborted, active = tmp_path / "aborted", tmp_path / "living"
    for directory in (aborted, active):
        directory.mkdir()
    (aborted / "owner.lock").touch()  # not locked
    setup = run_slurm_script("start", aborted)
    job = subprocess.Popen(["sleep", "1000"], env={**os.environ, "SLURMLAB_OF": str(aborted)})
    with open(active / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        takeover = run_slurm_script("start", active)
        rejected = run_slurm_script("start", tmp_path / "third")
        stopped = run_slurm_script("stop", active)
    assert setup.returncode == takeover.returncode == stopped.returncode == 0, setup.stderr + takeover.stderr
    assert f"ending what an aborted run left in {aborted}" in takeover.stderr
    assert job.wait(timeout=10) == -signal.SIGKILL
    assert rejected.returncode == 4
    assert f"another one is running, of {active}" in rejected.stderr
    assert not os.path.lexists("/etc/slurm/slurm.conf")
    assert not [path for directory in (aborted, active) for path in directory.rglob("*.pid")]


def run_slurm_script(action: str, directory: Path) -> subprocess.CompletedProcess:
    """Run start-slurm.sh or stop-slurm.sh for a directory."""
    environment = {**os.environ, "SLURMLAB_RUN": str(directory)}
    script = Path(__file__).parent / f"{action}-slurm.sh"
    return subprocess.run([script], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def signaled_run(cluster, prepared_directory, tmp_path_factory):
    """A run whose job is stopped in three ways, and killed."""
    workspace = WatchedWorkspace(prepared_directory, tmp_path_factory.mktemp("one") / "run")
    workspace.hold()
    workspace.start_on_slurm("--retries", "3")
    yield workspace
    terminate(workspace)


@pytest.fixture(scope="module")
def retried_run(cluster, prepared_directory, tmp_path_factory):
    """A run whose job runs out of memory, then loses its node, then its Snakemake."""
    workspace = WatchedWorkspace(prepared_directory, tmp_path_factory.mktemp("two") / "run")
    workspace.hold()
    (workspace.directory / "hog").write_text("4600")
    # SLURM itself would requeue the job of a lost node, but some minutes later
    workspace.start_on_slurm("--retries", "2", "--slurm-no-requeue")
    yield workspace
    terminate(workspace)


@pytest.fixture(scope="module")
def requeued_run(cluster, prepared_directory, tmp_path_factory):
    """A run whose job SLURM stops and starts again, as after preemption."""
    workspace = WatchedWorkspace(prepared_directory, tmp_path_factory.mktemp("three") / "run")
    workspace.hold()
    workspace.start_on_slurm("--slurm-requeue")
    yield workspace
    terminate(workspace)


def job_of(workspace: WatchedWorkspace) -> dict[str, str]:
    """Return SLURM's information on the running job of this workspace."""
    queue = run("squeue", "-h", "-t", "R", "-o", "%A %Z")
    job_ids = [line.split()[0] for line in queue.splitlines() if line.split()[1] == str(workspace.directory)]
    assert len(job_ids) == 1, queue
    return job_info(job_ids[0])


def job_info(job: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", run("scontrol", "show", "job", job)))


def set_time_left(workspace: WatchedWorkspace, seconds: float) -> None:
    """Set the remaining time of the running job; SLURM checks it twice a minute."""
    end_time = datetime.now() + timedelta(seconds=seconds)
    run("scontrol", "update", f"JobId={job_of(workspace)['JobId']}", f"EndTime={end_time:%Y-%m-%dT%H:%M:%S}")


def test_job_requests_estimated_resources_and_a_gpu(signaled_run, retried_run):
    pid = signaled_run.wait_until_held()
    job = job_of(signaled_run)
    assert job["Partition"] == "gpu"
    assert (job["MinMemoryNode"], job["TimeLimit"], job["NumCPUs"]) == ("4501M", "00:11:00", "2")
    assert job["TresPerJob"] == "gres:gpu:1"
    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert "CUDA_VISIBLE_DEVICES=0" in environment


def test_scancel_lets_the_job_store_its_outputs(signaled_run):
    pid = signaled_run.wait_until_held()
    signaled_run.inject_fault(
        "scancel", lambda: run("scancel", job_of(signaled_run)["JobId"]), lambda: signaled_run.wait_for_exit(pid)
    )
    signaled_run.wait_until(lambda: jobs_stopped(signaled_run) == 1, "the reason of the stop")


def jobs_stopped(workspace: WatchedWorkspace) -> int:
    """Return the number of SLURM's logs that state that the job was stopped."""
    logs = (workspace.directory / "logs" / "slurm").rglob("*.log")
    return sum("stopped by SIGTERM" in path.read_text() for path in logs)


def test_out_of_memory_retry_doubles_the_resources(retried_run):
    retried_run.wait_until(lambda: not (retried_run.directory / "hog").exists(), "the job to allocate its memory")
    retried_run.inject_fault("out of memory")
    retried_run.wait_until_held()
    job = job_of(retried_run)
    assert (job["MinMemoryNode"], job["TimeLimit"]) == ("8501M", "00:22:00")


def test_lost_node_costs_at_most_one_journal_part(retried_run, cluster):
    job = job_of(retried_run)
    retried_run.inject_fault("node lost", lambda: fail_node(cluster, job))
    retried_run.wait_until(lambda: "SLURM status is: 'NODE_FAIL'" in retried_run.output(), "Snakemake to detect it")


def fail_node(cluster: Path, job: dict[str, str]) -> None:
    """Kill all processes on the job's node and notify SLURM, which would detect it only after some minutes."""
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
            continue  # the process has exited, or belongs to the system
    run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")


def test_job_receives_a_signal_before_its_time_limit(signaled_run):
    pid = signaled_run.wait_until_held()
    # the profile requests SIGTERM two minutes before the end: with less time left, SLURM sends it immediately
    signaled_run.inject_fault(
        "--signal before the walltime",
        lambda: set_time_left(signaled_run, 110),
        lambda: signaled_run.wait_for_exit(pid),
    )
    signaled_run.wait_until(lambda: jobs_stopped(signaled_run) == 2, "the reason of the stop")
    assert "TIMEOUT" not in signaled_run.output()


def test_job_outlives_a_killed_snakemake_and_its_outputs_are_reused(retried_run):
    pid = retried_run.wait_until_held()
    job = job_of(retried_run)["JobId"]
    retried_run.inject_fault("kill -9 of Snakemake", retried_run.kill_snakemake)
    stored = set(retried_run.stored_files())
    retried_run.release()
    retried_run.wait_until(lambda: set(retried_run.stored_files()) - stored, "the job to continue")
    retried_run.hold()
    assert retried_run.wait_until_held() == pid
    retried_run.inject_fault("kill -9 of Snakemake and the job", retried_run.kill_worker)
    retried_run.wait_until(lambda: job_info(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job to end")


def test_killed_job_leaves_its_journal(signaled_run):
    signaled_run.inject_fault("kill -9 of the job", signaled_run.kill_worker)


def test_exceeded_time_limit_is_reported(signaled_run):
    pid = signaled_run.wait_until_held()
    signaled_run.ignore_signals()  # otherwise the warning signal, also sent immediately, would stop it first
    signaled_run.inject_fault(
        "walltime (TIMEOUT)", lambda: set_time_left(signaled_run, 1), lambda: signaled_run.wait_for_exit(pid)
    )
    assert signaled_run.wait() == 1
    assert "SLURM status is: 'TIMEOUT'" in signaled_run.output()


def test_next_run_yields_the_tables_of_an_uninterrupted_run(
    signaled_run, retried_run, reference_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shutil.copytree(ROOT / "profiles" / "slurm", tmp_path / "snakemake" / "lab")
    signaled_run.release()
    signaled_run.start("--profile", "lab", *FAST_POLLING, pause=0)
    retried_run.start_locally("--unlock")
    assert retried_run.wait() == 0
    retried_run.finish()
    assert signaled_run.wait() == 0, signaled_run.output()
    for workspace in (signaled_run, retried_run):
        assert workspace.differing_tables(reference_run) == []
        assert {batch for _, batch in workspace.batches()} == {batch for _, batch in reference_run.batches()}
        with capsys.disabled():
            print("\n" + fault_table(workspace, reference_run))
    expected = {"kill -9 of the job", "walltime (TIMEOUT)"}
    assert {fault for fault, n in signaled_run.recomputed().items() if n} == expected, (
        "the other faults sent a signal first"
    )
    assert [fault for fault, n in retried_run.recomputed().items() if not n] == ["kill -9 of Snakemake"], (
        "the job continued"
    )


def test_only_inference_jobs_are_submitted_to_slurm(signaled_run):
    rules = {path.parents[1].name for path in (signaled_run.directory / "logs" / "slurm").rglob("*.log")}
    assert rules == {"rule_infer"}  # no generations here, hence no similarity jobs


def test_requeued_job_resumes(requeued_run, reference_run):
    pid = requeued_run.wait_until_held()
    job = job_of(requeued_run)["JobId"]
    requeued_run.inject_fault(
        "requeue", lambda: run("scontrol", "requeue", job), lambda: requeued_run.wait_for_exit(pid)
    )
    requeued_run.wait_until_held()
    assert job_of(requeued_run)["JobId"] == job
    requeued_run.release()
    assert requeued_run.wait() == 0, requeued_run.output()
    requeued_run.finish()
    assert requeued_run.differing_tables(reference_run) == []
