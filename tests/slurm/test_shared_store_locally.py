"""Two simultaneous runs in two directories with one store: each yields the tables of a single run."""

import os
import signal

import pytest
from support.faults import WatchedWorkspace, parent_of, terminate

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.slow]


@pytest.fixture
def workspaces(prepared_directory, tmp_path):
    workspaces = [WatchedWorkspace(prepared_directory, tmp_path / name) for name in ("one", "two")]
    for workspace in workspaces:
        workspace.use_store(tmp_path / "lab")
    yield workspaces
    for workspace in workspaces:
        terminate(workspace)


def finish_both(workspaces) -> None:
    for workspace in workspaces:
        workspace.release()
    assert [workspace.wait() for workspace in workspaces] == [0] * len(workspaces), [
        workspace.output() for workspace in workspaces
    ]


def start_both(workspaces) -> list[int]:
    """Start both runs and hold them in the same evaluation, each with journaled and unjournaled outputs."""
    for workspace in workspaces:
        workspace.hold()
        workspace.start_locally("results/summary/results.csv", pause=0.15)  # long enough for a part
    return [workspace.wait_until_held() for workspace in workspaces]


def test_two_simultaneous_runs_with_one_store_yield_the_tables_of_a_single_run(
    workspaces, reference_run, prepared_directory, tmp_path
):
    start_both(workspaces)
    assert len(workspaces[0].journal_parts()) >= 2
    finish_both(workspaces)
    for workspace in workspaces:
        assert workspace.differing_tables(reference_run) == []
        assert workspace.batches(), "both computed"
        assert not (workspace.directory / "results" / "store").exists()
    assert not list(workspaces[0].store.rglob("*.part"))
    assert not list(workspaces[0].store.rglob("*.tmp"))

    third_run = WatchedWorkspace(prepared_directory, tmp_path / "three")
    third_run.use_store(workspaces[0].store)
    third_run.finish()
    assert third_run.differing_tables(reference_run) == []
    assert not third_run.batches(), "stored outputs of other runs are not recomputed"

    third_run.use_store(third_run.directory / "elsewhere")
    third_run.start_locally("results/summary/results.csv", pause=0)
    assert third_run.wait() == 0
    assert "Nothing to be done" in third_run.output(), "another path of the store changes nothing"
    assert not third_run.batches()
    assert not (third_run.directory / "elsewhere").exists()


def test_killed_run_resumes_from_the_shared_store(workspaces, reference_run):
    pids = start_both(workspaces)
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    assert workspaces[0].wait() == 1
    finish_both([workspaces[1]])
    assert workspaces[1].differing_tables(reference_run) == []
    n_computed = len(workspaces[0].batches())
    workspaces[0].finish()
    assert workspaces[0].differing_tables(reference_run) == []
    assert len(workspaces[0].batches()) == n_computed, "the other run has computed everything"
