"""Two simultaneous runs in two directories with one store: each yields the tables of a single run."""

import os
import signal

import pytest
from support.faults import RESULT_FILE, WatchedWorkspace, parent_of, terminate

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
        workspace.start_locally(RESULT_FILE, pause=0.15)  # long enough for a part
    return [workspace.wait_until_held() for workspace in workspaces]


def test_two_simultaneous_runs_with_one_store_yield_the_tables_of_a_single_run(workspaces, reference_run):
    start_both(workspaces)
    assert len(workspaces[0].journal_parts()) >= 2
    finish_both(workspaces)
    for workspace in workspaces:
        assert workspace.differing_tables(reference_run) == []
        assert workspace.batches(), "both computed"
        assert not (workspace.directory / "results" / "store").exists()
    assert not list(workspaces[0].store.rglob("*.part"))
    assert not list(workspaces[0].store.rglob("*.tmp"))


def test_killed_run_resumes_from_the_shared_store(workspaces, reference_run):
    pids = start_both(workspaces)
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    assert workspaces[0].wait() == 1
    finish_both([workspaces[1]])
    assert workspaces[1].differing_tables(reference_run) == []
    resumed, n_computed = workspaces[0], len(workspaces[0].batches())
    resumed.finish(RESULT_FILE)
    assert resumed.differing_tables(reference_run) == []
    assert len(resumed.batches()) == n_computed, "stored outputs of the other run are not recomputed"

    resumed.use_store(resumed.directory / "elsewhere")
    resumed.finish(RESULT_FILE)
    assert "Nothing to be done" in resumed.output(), "another path of the store changes nothing"
    assert len(resumed.batches()) == n_computed
    assert not (resumed.directory / "elsewhere").exists()
