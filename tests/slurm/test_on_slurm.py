"""On a real SLURM: what is sent there, what it asks for, and what the next `snakemake` makes of jobs that were hit.

The tests are one story: each starts the run of the folder where the one before left it.
"""

import os
import re
import socket
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from faults import QUICKLY, Place, end, run, table
from workplace import ROOT


@pytest.fixture(scope="module")
def place(cluster, ready, tmp_path_factory):
    place = Place(ready, tmp_path_factory.mktemp("slurm") / "run")
    yield place
    end(place)


def shown(job: str) -> dict[str, str]:
    """What SLURM says of a job."""
    return dict(re.findall(r"(\w+)=(\S+)", run("scontrol", "show", "job", job)))


def test_a_job_asks_for_what_was_estimated_and_for_a_gpu(place):
    place.start_on_slurm()
    place.until_more_is_kept()
    job = shown(place.job())
    assert job["Partition"] == "gpu"
    assert (job["MinMemoryNode"], job["TimeLimit"], job["NumCPUs"]) == ("4501M", "00:11:00", "2")
    assert job["TresPerJob"] == "gres:gpu:1"
    environment = Path(f"/proc/{place.worker()}/environ").read_text().split("\0")
    assert re.search(r"CUDA_VISIBLE_DEVICES=[01]$", "\n".join(environment), re.MULTILINE)


def test_scancel_lets_the_job_write_everything_down(place):
    run("scancel", place.job())
    assert place.wait() == 1
    place.hit("scancel")
    assert "stopped by SIGTERM" in place.said()


def test_a_job_that_is_killed_leaves_its_journal(place):
    place.start_on_slurm()
    place.until_more_is_kept()
    place.hit("kill -9 of the job", place.kill_worker)
    assert place.wait() == 1


def test_before_the_time_is_over_the_job_is_told(place):
    place.start_on_slurm()
    place.until_more_is_kept()
    # the profile asks for SIGTERM two minutes before the end: with less time than that left, it comes at once
    soon = datetime.now() + timedelta(seconds=100)
    run("scontrol", "update", f"JobId={place.job()}", f"EndTime={soon:%Y-%m-%dT%H:%M:%S}")
    assert place.wait() == 1
    place.hit("--signal before the walltime")
    assert "stopped by SIGTERM" in place.said()


def test_what_runs_over_its_time_is_named_as_such(place):
    place.start_on_slurm("--set-resources", "infer:slurm_partition=gpu", "infer:runtime=2")  # and no --signal
    place.until_more_is_kept()
    now = datetime.now() + timedelta(seconds=1)
    run("scontrol", "update", f"JobId={place.job()}", f"EndTime={now:%Y-%m-%dT%H:%M:%S}")
    assert place.wait() == 1
    place.hit("walltime (TIMEOUT)")
    assert "SLURM status is: 'TIMEOUT'" in place.said()


def test_what_runs_out_of_memory_gets_twice_as_much(place):
    (place.folder / "hog").write_text("4600")
    place.start_on_slurm("--retries", "1")
    place.until(lambda: not (place.folder / "hog").exists(), "the job to take its memory")
    place.hit("out of memory")
    before = len(place.batches())
    place.until(lambda: len(place.batches()) > before, "the second try")
    job = shown(place.job())
    assert (job["MinMemoryNode"], job["TimeLimit"]) == ("8501M", "00:22:00")


def test_a_job_outlives_a_snakemake_that_is_killed_and_its_answers_are_found(place):
    place.until_more_is_kept()
    job = place.job()
    place.hit("kill -9 of Snakemake", place.kill_snakemake)
    place.until_more_is_kept()
    place.start_locally("--unlock")
    assert place.wait() == 0
    place.hit("kill -9 of Snakemake and the job", place.kill_worker)
    place.until(lambda: shown(job)["JobState"] not in ("RUNNING", "COMPLETING"), "the job to end")


def test_a_node_that_is_lost_costs_no_more_than_a_part(place):
    place.start_on_slurm("--slurm-no-requeue")  # else SLURM itself sends the job again, some minutes later
    place.until_more_is_kept()
    worker, node = place.worker(), socket.gethostname().split(".")[0]
    run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    place.until(lambda: not os.path.exists(f"/proc/{worker}"), "the node's processes to end")
    place.hit("node lost")
    assert place.wait() == 1
    assert "SLURM status is: 'NODE_FAIL'" in place.said()
    # it may have come back by itself (ReturnToService)
    subprocess.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], capture_output=True, check=False)


def test_a_plain_run_with_the_profile_ends_with_the_tables_of_an_uninterrupted_run(place, whole):
    place.start("--profile", str(ROOT / "profiles" / "slurm"), *QUICKLY, pause=0)
    assert place.wait() == 0, place.said()
    assert place.differs_from(whole) == []
    redone = place.redone()
    told = ("scancel", "--signal before the walltime")
    assert {fault: redone[fault] for fault in told if redone.get(fault)} == {}
    print("\n" + table(place, whole))


def test_only_models_jobs_went_to_slurm(place):
    sent = {path.parents[1].name for path in (place.folder / "logs" / "slurm").rglob("*.log")}
    assert sent == {"rule_infer"}  # there is nothing generated here whose similarity could be measured
