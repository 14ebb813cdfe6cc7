"""Runs killed at random times, drawn from a seed, until one finishes: its tables equal those of an uninterrupted run.

Times are fractions of the duration of an uninterrupted run, so that kills hit every stage: planning, inference, and the
tables after it. Killed is the running job, Snakemake alone (its job continues, and the next run starts a second one in the
same directory), or both.
"""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support.faults import RESULT_FILE, WatchedWorkspace, is_alive, session_commands, terminate

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.soak]

PAUSE = 0.1  # seconds after each batch: half of an uninterrupted run is inference
TARGETS = ("the job", "snakemake", "both")


class Killer:
    """Kills runs of a workspace; `counts` has the number of kills by target and running commands."""

    def __init__(self, seed: int, seconds: float):
        self.rng, self.seconds, self.counts = random.Random(seed), seconds, Counter()

    def run_and_kill(self, workspace: WatchedWorkspace, target: str) -> bool:
        """Start snakemake and kill at a random time; return False if the run finished before."""
        workspace.start_locally("--unlock")
        workspace.wait()
        workspace.start_locally(RESULT_FILE, pause=PAUSE)
        deadline = time.monotonic() + self.rng.uniform(0, self.seconds)
        while time.monotonic() < deadline or (target == "the job" and not running_commands(workspace)):
            if workspace.process.poll() is not None:
                assert workspace.process.returncode == 0, workspace.output()
                return False
            time.sleep(0.02)
        commands = running_commands(workspace)
        self.counts[target, *sorted(set(commands.values()))] += 1
        if target == "both":
            os.killpg(workspace.process.pid, signal.SIGKILL)
        elif target == "snakemake":
            workspace.process.send_signal(signal.SIGKILL)
        else:
            for pid in commands:
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
        workspace.wait()
        return True


def running_commands(workspace: WatchedWorkspace) -> dict[int, str]:
    """Return the running commands of the package, by pid."""
    arguments = {pid: command.split() for pid, command in session_commands(workspace.process.pid).items()}
    commands = {
        pid: words[2] for pid, words in arguments.items() if len(words) > 2 and Path(words[1]).name == "stage.py"
    }
    return {pid: name for pid, name in commands.items() if name != "print-results"}


def kill_repeatedly(prepared_directory, directory, reference_run, killer: Killer, targets: list[str]) -> int:
    """Kill successive runs in a copy of the prepared directory until one finishes; return the number of kills."""
    workspace, n_kills, sessions = WatchedWorkspace(prepared_directory, directory), 0, []
    try:
        for target in targets:
            finished = not killer.run_and_kill(workspace, target)
            sessions.append(workspace.process.pid)
            if finished:
                break
            n_kills += 1
        workspace.start_locally("--unlock")
        workspace.wait()
        workspace.finish()
        # processes left by a killed Snakemake would still write to the compared tables
        workspace.wait_until(
            lambda: not any(session_commands(leader) for leader in sessions), "the end of leftover processes"
        )
        assert workspace.differing_tables(reference_run) == []
        assert not workspace.journal_parts(), "journals of finished evaluations are removed"
    finally:
        for leader in sessions:
            if session_commands(leader):
                os.killpg(leader, signal.SIGKILL)
        terminate(workspace)
    return n_kills


@pytest.fixture(scope="module")
def seconds(prepared_directory, tmp_path_factory) -> float:
    """Duration of an uninterrupted run on this machine."""
    workspace = WatchedWorkspace(prepared_directory, tmp_path_factory.mktemp("timed") / "run")
    started = time.monotonic()
    workspace.start_locally(RESULT_FILE, pause=PAUSE)
    assert workspace.wait() == 0, workspace.output()
    return time.monotonic() - started


def test_run_killed_up_to_three_times_yields_the_tables_of_an_uninterrupted_run(
    prepared_directory, reference_run, seconds, tmp_path
):
    killer = Killer(seed=1, seconds=seconds / 2)
    assert kill_repeatedly(prepared_directory, tmp_path / "run", reference_run, killer, list(TARGETS)) >= 1, (
        "a run may finish before it is killed"
    )


@pytest.mark.soak
def test_runs_killed_twenty_times_yield_the_tables_of_an_uninterrupted_run(
    prepared_directory, reference_run, seconds, tmp_path, capsys
):
    killer, n_kills, n_runs = Killer(seed=20, seconds=seconds), 0, 0
    while n_kills < 20:
        n_runs += 1
        targets = [killer.rng.choice(TARGETS) for _ in range(min(5, 20 - n_kills))]
        n_kills += kill_repeatedly(prepared_directory, tmp_path / f"run{n_runs}", reference_run, killer, targets)
    with capsys.disabled():
        print(f"\n{n_kills} kills in {n_runs} directories; an uninterrupted run takes {seconds:.0f} s")
        for event, count in sorted(killer.counts.items()):
            print(f"{count} x {event[0]} during {', '.join(event[1:]) or 'no job'}")
