"""Repeated interruptions on one machine: results of the next plain `snakemake`, and recomputed batches.

The tests depend on each other: each one continues the run of the previous one. They do not require SLURM.
"""

import re
import shutil
import signal
import subprocess

import pytest
from support.faults import RESULT_FILE, STATUS_FILE, WatchedWorkspace, fault_table, terminate

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.slow]


@pytest.fixture(scope="module")
def workspace(prepared_directory, tmp_path_factory):
    workspace = WatchedWorkspace(prepared_directory, tmp_path_factory.mktemp("local") / "run")
    workspace.hold()
    yield workspace
    terminate(workspace)


def test_killed_job_leaves_its_journal_and_a_truncated_part_is_dropped(workspace):
    workspace.start_locally()
    workspace.inject_fault("kill -9 of the job", workspace.kill_worker)
    assert workspace.wait() == 1
    assert workspace.journal_parts()
    last_part = max(workspace.journal_parts(), key=lambda part: part.name)
    last_part.write_bytes(last_part.read_bytes()[:-1])
    workspace.inject_fault("a torn journal part", exclude=last_part)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_stop_signal_stores_all_outputs(workspace, number):
    workspace.start_locally()
    workspace.inject_fault(number.name, lambda: workspace.kill_worker(number))
    assert workspace.wait() == 1
    assert f"stopped by {number.name}" in workspace.output()


def test_second_run_in_a_locked_directory_fails_without_effect(workspace):
    workspace.start_locally()
    workspace.wait_until_held()
    first_process, workspace.process = workspace.process, None
    workspace.start_locally()
    assert workspace.wait() == 1
    assert "Directory cannot be locked" in workspace.output()
    workspace.process = first_process


def test_killing_snakemake_and_its_job_leaves_a_lock_and_a_journal(workspace):
    workspace.inject_fault("kill -9 of Snakemake and the job", workspace.kill_snakemake, workspace.kill_worker)
    workspace.start_locally("--unlock")
    assert workspace.wait() == 0


def test_lost_store_is_recreated(workspace):
    workspace.release()
    known_files = set(workspace.finished_files())
    workspace.start_locally(pause=0.1)
    workspace.wait_until(lambda: set(workspace.finished_files()) - known_files, "a finished evaluation")
    moved_store = workspace.directory / "lost"  # renamed atomically: parts may be written meanwhile
    workspace.inject_fault(
        "the store lost in the middle", lambda: (workspace.directory / "results" / "store").rename(moved_store)
    )
    workspace.faults[-1] = (*workspace.faults[-1][:2], 0.0)  # nothing is stored
    assert workspace.wait() == 1
    # the second message if the store was lost between the creation of a directory and of a file in it
    assert re.search("outputs not found in results/store|the store cannot be written", workspace.output())
    shutil.rmtree(moved_store)


def test_final_tables_equal_those_of_an_uninterrupted_run(workspace, reference_run, capsys):
    workspace.finish()
    assert workspace.differing_tables(reference_run) == []
    assert {batch for _, batch in workspace.batches()} == {batch for _, batch in reference_run.batches()}
    recomputed = workspace.recomputed()
    assert recomputed["SIGTERM"] == recomputed["SIGUSR1"] == 0
    assert recomputed["a torn journal part"] > 0, "the truncation had an effect"
    with capsys.disabled():
        print("\n" + fault_table(workspace, reference_run))


def mount(directory, *options: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "vernacular", str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"cannot mount: {result.stderr.strip()}")


@pytest.fixture
def limited_store(prepared_directory, tmp_path):
    workspace = WatchedWorkspace(prepared_directory, tmp_path / "run")
    store = workspace.directory / "results" / "store"
    mount(store, "size=10m", "ro")
    yield workspace
    terminate(workspace)
    subprocess.run(["umount", store], check=True)


def test_unwritable_store_stops_the_job_immediately_with_an_error(limited_store, reference_run, capsys):
    store = str(limited_store.directory / "results" / "store")
    limited_store.start_locally(STATUS_FILE)
    assert limited_store.wait() == 1
    assert (
        f"the store cannot be written at {store.removeprefix(str(limited_store.directory) + '/')}"
        in limited_store.output()
    )
    assert "Read-only file system" in limited_store.output()
    limited_store.inject_fault("a store that may only be read")

    subprocess.run(["mount", "-o", "remount,rw,size=12k", store], check=True)
    limited_store.start_locally(STATUS_FILE)
    assert limited_store.wait() == 1
    assert "No space left on device" in limited_store.output()
    assert len(limited_store.batches()) < len(reference_run.batches()), "outputs that cannot be stored are not computed"
    limited_store.inject_fault("a full disk")

    subprocess.run(["mount", "-o", "remount,size=10m", store], check=True)
    limited_store.finish(RESULT_FILE)
    assert limited_store.differing_tables(reference_run) == []
    with capsys.disabled():
        print("\n" + fault_table(limited_store, reference_run))
